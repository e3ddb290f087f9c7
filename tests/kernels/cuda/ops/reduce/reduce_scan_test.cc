// The CUDA kernels that go along an axis and keep it, or say where on it, and
// AllFinite, emulated, against the CPU's.
#include "kernels/cuda/ops/reduce/reduce_scan.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cuda/ops/reduce/reduce_finite.h"
#include "kernels/cuda/runtime/kernels.h"
#include "tests/kernels/cuda/emulation/device_run.h"

namespace sluice::cuda {
namespace {

constexpr DType kNumericTypes[] = {
    DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
    DType::kInt8,    DType::kUInt8,   DType::kInt32,   DType::kInt64};

Shape ShapeOf(const AxisForm& shape) {
  return {shape.outer, shape.n, shape.inner};
}

void CheckCumSum(DType dtype, const CumSumForm& form, size_t skip = 0) {
  const Tensor x = RandomTensor(dtype, ShapeOf(form.shape), -2, 3);
  Attributes attrs;
  attrs.Set("axis", int64_t{1});
  attrs.Set("exclusive", form.exclusive);
  attrs.Set("reverse", form.reverse);
  const Tensor wanted =
      CpuResults("CumSum", attrs, {x}, {{dtype, x.shape()}}).front();
  for (bool in_place : {false, true}) {
    const Tensor got =
        InEveryOrder([&] {
          const DeviceBuffer in(x, skip), own(x.bytes(), skip);
          const DeviceBuffer& out = in_place ? in : own;
          CHECK(FindCumSum(dtype)(in.get(), out.get(), form, nullptr).ok());
          return std::vector{out.Read(dtype, x.shape())};
        }).front();
    // Both sum in double, in different orders: some units of what is
    // summed.
    const double magnitude =
        dtype == DType::kFloat64 ? static_cast<double>(form.shape.n) : 0.25;
    const std::string difference = Difference(got, wanted, 4, magnitude);
    CHECK_MESSAGE(difference.empty(), x.shape().ToString(), ": ", difference);
  }
}

TEST_CASE("running sums, in either direction, of rows and across them") {
  for (bool exclusive : {false, true}) {
    for (bool reverse : {false, true}) {
      for (DType dtype : kNumericTypes) {
        CheckCumSum(dtype, {{3, 130, 1}, exclusive, reverse});
        CheckCumSum(dtype, {{3, 7, 5}, exclusive, reverse});
      }
      for (int64_t n : {1, 31, 128, 513, 2500}) {  // several chunks of a block
        CheckCumSum(DType::kFloat32, {{2, n, 1}, exclusive, reverse}, 4);
      }
      CheckCumSum(DType::kFloat32, {{2, 3, 300}, exclusive, reverse});
    }
  }
}

TEST_CASE("running sums of very many float64 elements keep their digits") {
  for (const AxisForm& shape : {AxisForm{1, 1 << 18, 1}, {1, 1 << 14, 2}}) {
    const Tensor x = Tensor::Full(DType::kFloat64, ShapeOf(shape), 0.1);
    const DeviceBuffer in(x), out(x.bytes());
    CHECK(FindCumSum(DType::kFloat64)(in.get(), out.get(), {shape}, nullptr)
              .ok());
    const Tensor sums = out.Read(DType::kFloat64, x.shape());
    int64_t wrong = 0;
    for (int64_t i = 0; i < sums.elements(); ++i) {
      const double wanted = static_cast<double>(i / shape.inner + 1) * 0.1;
      const double error = std::abs(sums.At(i) - wanted);
      wrong += error <= 64 * 0x1p-52 * wanted ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("of very many rows of nothing no sum is taken") {
  constexpr int64_t kMany = int64_t{1} << 40;
  for (const AxisForm& shape : {AxisForm{kMany, 0, 1}, {1, 0, kMany}}) {
    const int64_t before = emulation::Launches();
    CHECK(FindCumSum(DType::kFloat32)(nullptr, nullptr, {shape}, nullptr).ok());
    CHECK(emulation::Launches() == before);
  }
}

TEST_CASE("gradients of products, zeros among the factors") {
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const AxisForm& shape : {AxisForm{5, 9, 1}, {3, 4, 70}, {1, 1, 2}}) {
      Tensor x = RandomTensor(DType::kFloat32, ShapeOf(shape), -1.5, 1.5);
      for (int64_t i = 0; i < x.elements(); i += 7) x.data<float>()[i] = 0;
      x = x.Cast(dtype);
      const Tensor dy =
          RandomTensor(dtype, {shape.outer, 1, shape.inner}, -1, 1, 2);
      Attributes attrs;
      attrs.Set("axis", int64_t{1});
      const Tensor wanted =
          CpuResults("ProdGrad", attrs, {dy, x}, {{dtype, x.shape()}}).front();
      const Tensor got =
          InEveryOrder([&] {
            const DeviceBuffer in(x), grad(dy), out(x.bytes());
            const DeviceBuffer before(x.elements() * 8);
            CHECK(FindProdGrad(dtype)(grad.get(), in.get(), out.get(),
                                      before.as<double>(), shape, nullptr)
                      .ok());
            return std::vector{out.Read(dtype, x.shape())};
          }).front();
      const std::string difference = Difference(got, wanted, 2);
      CHECK_MESSAGE(difference.empty(), difference);
    }
  }
}

TEST_CASE("gradients of products whose first factors leave the range") {
  struct Case {
    DType dtype;
    std::vector<double> x;
    int at;
    double wanted;
  };
  for (const Case& c :
       {Case{DType::kFloat32, {1e30, 1e30, 2, 1e-30, 1e-20}, 2, 1e10},
        Case{DType::kFloat32, {1e-30, 1e-30, 2, 1e30, 1e20}, 2, 1e-10},
        Case{DType::kBFloat16, {1e30, 1e30, 2, 1e-30, 1e-20}, 2, 1e10},
        Case{DType::kFloat16, {300, 300, 2, 0.01}, 2, 900}}) {
    const auto n = static_cast<int64_t>(c.x.size());
    const Tensor x = Tensor::Vector<double>(c.x).Cast(c.dtype);
    KernelSpec spec{.op = "ProdGrad", .attrs = {{"axis", int64_t{0}}}};
    spec.inputs = {{c.dtype, {1}}, {c.dtype, {n}}};
    spec.outputs = {{c.dtype, {n}}};
    KernelTable table;
    RegisterReduceKernels(table);
    const KernelDef* def = table.Find(spec, DeviceType::kCuda).ValueOrThrow();
    const Tensor dx =
        testing::RunKernel(*def, spec, {Tensor::Full(c.dtype, {1}, 1), x})
            .front();
    CHECK(dx.At(c.at) == doctest::Approx(c.wanted).epsilon(
                             c.dtype == DType::kBFloat16 ? 0.03 : 1e-3));
  }
}

Tensor ArgOf(bool least, const Tensor& x, const AxisForm& shape, size_t skip) {
  const Shape y_shape{shape.outer, shape.inner};
  return InEveryOrder([&] {
           const DeviceBuffer in(x, skip), out(y_shape.elements() * 8);
           CHECK(FindArg(x.dtype())(least, in.get(), out.as<int64_t>(), shape,
                                    nullptr)
                     .ok());
           return std::vector{out.Read(DType::kInt64, y_shape)};
         })
      .front();
}

TEST_CASE("where the largest and the least are, the first of equals") {
  for (DType dtype : kNumericTypes) {
    for (const AxisForm& shape :
         {AxisForm{5, 10, 1}, {3, 1000, 1}, {2, 9, 37}, {1, 1, 1}}) {
      const Tensor x = RandomTensor(dtype, ShapeOf(shape), -20, 20);
      for (bool least : {false, true}) {
        Attributes attrs;
        attrs.Set("axis", int64_t{1});
        const Tensor wanted =
            CpuResults(least ? "ArgMin" : "ArgMax", attrs, {x},
                       {{DType::kInt64, {shape.outer, shape.inner}}})
                .front();
        CHECK(ArgOf(least, x, shape, SizeOf(dtype)).BitEqual(wanted));
      }
    }
  }
}

TEST_CASE("the first NaN is both largest and least") {
  Tensor x = RandomTensor(DType::kFloat32, {700}, -1, 1);
  x.data<float>()[12] = -INFINITY;
  x.data<float>()[300] = x.data<float>()[650] = std::nanf("");
  x.data<float>()[699] = INFINITY;
  for (bool least : {false, true}) {
    CHECK(ArgOf(least, x, {1, 700, 1}, 0).IntAt(0) == 300);
    CHECK(ArgOf(least, x, {1, 700, 1}, 0).IntAt(0) == 300);
    const Tensor columns = ArgOf(least, x, {1, 350, 2}, 0);
    CHECK(columns.IntAt(0) == 150);
  }
  const Tensor flat = Tensor::Full(DType::kFloat32, {2, 300}, -INFINITY);
  CHECK(ArgOf(false, flat, {2, 300, 1}, 0).IntAt(1) == 0);
}

// Of arrays of these sizes, one element not finite: `at` in array `array`, or
// none. Their dtypes are the given ones in turn.
bool AllFiniteOf(const std::vector<DType>& dtypes,
                 const std::vector<int64_t>& sizes, int array, int64_t at,
                 float what, const float* scale = nullptr) {
  std::vector<Tensor> values;
  std::vector<TensorType> types;
  for (int64_t n : sizes) {
    const DType dtype = dtypes[values.size() % dtypes.size()];
    values.push_back(RandomTensor(dtype, {n}, -9, 9));
    types.push_back({dtype, {n}});
  }
  if (array >= 0) {
    Tensor wide = values[array].Cast(DType::kFloat32);
    wide.data<float>()[at] = what;
    values[array] = wide.Cast(values[array].dtype());
  }
  return InEveryOrder([&] {
           std::vector<DeviceBuffer> buffers;
           ArrayList arrays = ListsOf(types).front();
           for (size_t k = 0; k < values.size(); ++k) {
             buffers.emplace_back(values[k], k % 2 * SizeOf(types[k].dtype));
             arrays.at[k].from = buffers.back().get();
           }
           const DeviceBuffer y(Tensor::Scalar(true));
           CHECK(LaunchAllFinite(arrays, scale, y.as<bool>(), nullptr).ok());
           return std::vector{y.Read(DType::kBool, {})};
         })
             .front()
             .At(0) != 0;
}

TEST_CASE("every element of every array is looked at") {
  const std::vector<int64_t> sizes = {5, 0, 8195, 1, 40};
  const float inf = std::numeric_limits<float>::infinity();
  const DType f32 = DType::kFloat32, f64 = DType::kFloat64;
  const DType f16 = DType::kFloat16, bf16 = DType::kBFloat16;
  for (const std::vector<DType>& dtypes : std::vector<std::vector<DType>>{
           {f32}, {f64}, {f16}, {bf16}, {f32, bf16, f16}}) {
    CHECK(AllFiniteOf(dtypes, sizes, -1, 0, 0));
    CHECK_FALSE(AllFiniteOf(dtypes, sizes, 0, 4, inf));
    CHECK_FALSE(AllFiniteOf(dtypes, sizes, 2, 8194, -inf));
    CHECK_FALSE(AllFiniteOf(dtypes, sizes, 2, 100, std::nanf("")));
    CHECK_FALSE(AllFiniteOf(dtypes, sizes, 3, 0, inf));
    CHECK_FALSE(AllFiniteOf(dtypes, sizes, 4, 39, inf));

    const float scales[] = {0.5f, inf};
    CHECK(AllFiniteOf(dtypes, sizes, -1, 0, 0, &scales[0]));
    CHECK_FALSE(AllFiniteOf(dtypes, sizes, 2, 8194, inf, &scales[0]));
    CHECK_FALSE(AllFiniteOf(dtypes, sizes, -1, 0, 0, &scales[1]));
  }
}

TEST_CASE("a product with the scale may overflow, or be in range again") {
  const float large = 1e30f;
  CHECK_FALSE(AllFiniteOf({DType::kFloat32}, {9, 40}, 1, 33, large, &large));
  CHECK(AllFiniteOf({DType::kFloat64}, {9, 40}, 1, 33, large, &large));
}

TEST_CASE(
    "AllFiniteScaled: the scale comes first, then more arrays than a "
    "launch takes") {
  std::vector<Tensor> inputs(1 + ArrayList::kMost + 3,
                             Tensor::Full(DType::kFloat32, {3}, 1e30));
  KernelSpec spec{.op = "AllFiniteScaled"};
  spec.inputs.assign(inputs.size(), {DType::kFloat32, {3}});
  spec.inputs[0].shape = {};
  spec.outputs = {{DType::kBool, {}}};
  KernelTable table;
  RegisterReduceKernels(table);
  const KernelDef* def = table.Find(spec, DeviceType::kCuda).ValueOrThrow();
  inputs[0] = Tensor::Scalar(0.5f);
  CHECK(testing::RunKernel(*def, spec, inputs).front().At(0) == 1);
  inputs.back() = Tensor::Full(DType::kFloat32, {3}, INFINITY);
  CHECK(testing::RunKernel(*def, spec, inputs).front().At(0) == 0);
  inputs.back() = inputs[1];
  inputs[0] = Tensor::Scalar(1e30f);
  CHECK(testing::RunKernel(*def, spec, inputs).front().At(0) == 0);
}

TEST_CASE("more arrays than one launch takes") {
  std::vector<Tensor> inputs(ArrayList::kMost + 3,
                             Tensor::Full(DType::kFloat32, {3}, 1));
  KernelSpec spec{.op = "AllFinite"};
  spec.inputs.assign(inputs.size(), {DType::kFloat32, {3}});
  spec.outputs = {{DType::kBool, {}}};
  KernelTable table;
  RegisterReduceKernels(table);
  const KernelDef* def = table.Find(spec, DeviceType::kCuda).ValueOrThrow();
  CHECK(testing::RunKernel(*def, spec, inputs).front().At(0) == 1);
  inputs.back() = Tensor::Full(DType::kFloat32, {3}, INFINITY);
  CHECK(testing::RunKernel(*def, spec, inputs).front().At(0) == 0);
}

}  // namespace
}  // namespace sluice::cuda
