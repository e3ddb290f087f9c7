// The CUDA kernels that move elements, emulated, against the CPU's.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cuda/ops/array/array.h"
#include "kernels/cuda/ops/array/array_copy.h"
#include "kernels/cuda/ops/array/shape_fill.h"
#include "kernels/cuda/runtime/kernels.h"
#include "tests/kernels/cuda/emulation/device_run.h"

namespace sluice::cuda {
namespace {

constexpr DType kOfEachSize[] = {DType::kInt8, DType::kFloat16, DType::kFloat32,
                                 DType::kInt64};

// A move of all elements of the result, with operands `skip` bytes past a
// 16-byte boundary.
void CheckMove(const std::string& op, const Attributes& attrs, DType dtype,
               const Shape& from, const Shape& to, size_t skip = 0) {
  const Tensor x = RandomTensor(dtype, from, -100, 100);
  const Tensor wanted = CpuResults(op, attrs, {x}, {{dtype, to}}).front();
  KernelSpec spec{.op = op, .attrs = attrs};
  spec.inputs = {{dtype, from}};
  spec.outputs = {{dtype, to}};
  const std::vector<Tensor> got = InEveryOrder([&] {
    std::vector<Tensor> results;
    for (size_t skip_result : {skip, size_t{0}}) {
      const DeviceBuffer in(x, skip), result(wanted.bytes(), skip_result);
      CHECK(CopyStrided("Copy", MoveOf(spec), dtype, in.get(), result.get(),
                        nullptr)
                .ok());
      results.push_back(result.Read(dtype, to));
    }
    return results;
  });
  const bool same = got[0].BitEqual(wanted) && got[1].BitEqual(wanted);
  CHECK_MESSAGE(same, op, " from ", from.ToString(), " to ", to.ToString(),
                " of ", std::string(NameOf(dtype)));
}

void CheckTranspose(DType dtype, const Shape& from,
                    const std::vector<int64_t>& permutation, size_t skip = 0) {
  Shape to;
  for (int64_t axis : permutation) to.push_back(from[static_cast<int>(axis)]);
  CheckMove("Transpose", {{"permutation", permutation}}, dtype, from, to, skip);
}

TEST_CASE("transposes, through squares and without") {
  for (DType dtype : kOfEachSize) {
    CheckTranspose(dtype, {70, 33}, {1, 0});
    CheckTranspose(dtype, {3, 40, 65}, {0, 2, 1});
    CheckTranspose(dtype, {2, 9, 5, 12}, {0, 3, 1, 2});  // NHWC to NCHW
    CheckTranspose(dtype, {2, 12, 9, 5}, {0, 2, 3, 1});  // and back
    CheckTranspose(dtype, {2, 6, 4, 16}, {0, 2, 1, 3});  // heads
    CheckTranspose(dtype, {2, 6, 4, 16}, {0, 2, 1, 3}, SizeOf(dtype));
    CheckTranspose(dtype, {4, 9, 3, 10}, {3, 2, 1, 0});
    CheckTranspose(dtype, {37, 3}, {1, 0});
    CheckTranspose(dtype, {70, 33}, {1, 0}, SizeOf(dtype));
  }
  CheckTranspose(DType::kFloat32, {}, {});
  CheckTranspose(DType::kBool, {5}, {0});
  CheckTranspose(DType::kFloat32, {200, 130}, {1, 0});
}

TEST_CASE("other moves") {
  for (DType dtype : kOfEachSize) {
    for (size_t skip : {size_t{0}, SizeOf(dtype)}) {
      CheckMove("Tile", {{"multiples", {2, 3}}}, dtype, {4, 16}, {8, 48}, skip);
      CheckMove("Tile", {{"multiples", {3, 1, 2}}}, dtype, {2, 3, 5},
                {6, 3, 10}, skip);
      CheckMove("Reverse", {{"axes", {0}}}, dtype, {7, 32}, {7, 32}, skip);
      CheckMove("Reverse", {{"axes", {0, 1}}}, dtype, {7, 9}, {7, 9}, skip);
      CheckMove("Slice", {{"begin", {1, 16}}, {"size", {3, 16}}}, dtype,
                {5, 48}, {3, 16}, skip);
      CheckMove("Slice", {{"begin", {1, 3}}, {"size", {3, 7}}}, dtype, {5, 48},
                {3, 7}, skip);
      CheckMove("StridedSlice",
                {{"begin", {0, -1}},
                 {"end", {40, -41}},
                 {"strides", {2, -2}},
                 {"begin_mask", 0},
                 {"end_mask", 0}},
                dtype, {40, 41}, {20, 20}, skip);
    }
  }
  CheckMove("Tile", {{"multiples", {300}}}, DType::kFloat32, {64}, {19200});
}

// --- Kernels of the table ----------------------------------------------------

// The results of the CUDA kernel of a spec, which must have the CPU's bits.
void CheckKernel(const KernelSpec& spec, const std::vector<Tensor>& inputs) {
  static const bool registered = [] {
    RegisterCudaKernels(KernelTable::Global());
    return true;
  }();
  REQUIRE(registered);
  const std::vector<Tensor> wanted =
      CpuResults(spec.op, spec.attrs, inputs, spec.outputs);
  const KernelDef* def =
      KernelTable::Global().Find(spec, DeviceType::kCuda).ValueOrThrow();
  const KernelPtr kernel = def->make(spec).ValueOrThrow();
  const std::vector<Tensor> got = InEveryOrder([&] {
    std::vector<DeviceBuffer> in, out;
    std::vector<void*> in_data, out_data;
    for (const Tensor& t : inputs) {
      in.emplace_back(t);
      in_data.push_back(in.back().get());
    }
    for (const TensorType& type : spec.outputs) {
      out.emplace_back(type.bytes());
      out_data.push_back(out.back().get());
    }
    const StepContext step;
    CHECK(kernel->Run({in_data.data(), out_data.data(), nullptr, &step}).ok());
    std::vector<Tensor> results;
    for (size_t i = 0; i < out.size(); ++i) {
      results.push_back(
          out[i].Read(spec.outputs[i].dtype, spec.outputs[i].shape));
    }
    return results;
  });
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK_MESSAGE(got[i].BitEqual(wanted[i]), spec.op, ", result ", i);
  }
}

KernelSpec Spec(const std::string& op, const Attributes& attrs,
                const std::vector<TensorType>& inputs,
                const std::vector<TensorType>& outputs) {
  KernelSpec spec{.op = op, .attrs = attrs};
  spec.inputs = inputs;
  spec.outputs = outputs;
  return spec;
}

TEST_CASE("parts and wholes of other than whole packs") {
  for (DType dtype : kOfEachSize) {
    const Tensor a = RandomTensor(dtype, {3, 5, 7}, -9, 9);
    const Tensor b = RandomTensor(dtype, {3, 0, 7}, -9, 9, 2);
    const Tensor c = RandomTensor(dtype, {3, 12, 7}, -9, 9, 3);
    CheckKernel(
        Spec("Concat", {{"axis", 1}},
             {{dtype, a.shape()}, {dtype, b.shape()}, {dtype, c.shape()}},
             {{dtype, {3, 17, 7}}}),
        {a, b, c});
    CheckKernel(
        Spec("Split", {{"axis", -2}, {"num", 3}}, {{dtype, c.shape()}},
             {{dtype, {3, 4, 7}}, {dtype, {3, 4, 7}}, {dtype, {3, 4, 7}}}),
        {c});
  }
}

TEST_CASE("what is around a part is filled") {
  for (DType dtype : kOfEachSize) {
    const Tensor x = RandomTensor(dtype, {3, 5, 16}, -9, 9);
    CheckKernel(Spec("Pad", {{"paddings", {1, 2, 0, 3, 0, 0}}, {"value", 3.0}},
                     {{dtype, x.shape()}}, {{dtype, {6, 8, 16}}}),
                {x});
    const Tensor dy = RandomTensor(dtype, {2, 20}, -9, 9);
    const Tensor shape = Tensor::Vector<int64_t>(std::vector<int64_t>{4, 41});
    CheckKernel(
        Spec("StridedSliceGrad",
             {{"begin", {1, -1}},
              {"end", {4, -41}},
              {"strides", {2, -2}},
              {"begin_mask", 0},
              {"end_mask", 0}},
             {{dtype, dy.shape()}, {DType::kInt64, {2}}}, {{dtype, {4, 41}}}),
        {dy, shape});
  }
}

TEST_CASE("rows grow by zeros while they are converted") {
  const auto check = [](DType from, DType to, const Shape& x, int64_t axis,
                        int64_t size) {
    Shape y = x;
    y.set(static_cast<int>(axis), size);
    CheckKernel(Spec("CastPad", {{"to", to}, {"axis", axis}, {"size", size}},
                     {{from, x}}, {{to, y}}),
                {RandomTensor(from, x, -100, 100)});
  };
  for (DType from : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (DType to : {DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
      check(from, to, {2, 9, 11, 3}, 3, 4);  // images, of an odd number
      check(from, to, {3, 2, 3, 8}, 2, 4);   // a filter
      check(from, to, {7, 5}, 1, 5);         // nothing to fill up
      check(from, to, {2, 0, 3}, 1, 2);      // nothing to read
    }
  }
  check(DType::kFloat32, DType::kFloat16, {4000, 3}, 1, 4);  // several blocks
}

TEST_CASE("sums of tiles, of several blocks") {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                      DType::kUInt8, DType::kInt64}) {
    const Tensor dy = RandomTensor(dtype, {6, 40, 14}, -9, 9);
    CheckKernel(Spec("TileGrad", {{"multiples", {3, 1, 2}}},
                     {{dtype, dy.shape()}}, {{dtype, {2, 40, 7}}}),
                {dy});
  }
}

TEST_CASE("sums of very many tiles keep their last digits") {
  constexpr int64_t kTiles = 100'000;
  const auto spec =
      Spec("TileGrad", {{"multiples", {kTiles}}}, {{DType::kFloat64, {kTiles}}},
           {{DType::kFloat64, {1}}});
  KernelTable table;
  RegisterArrayKernels(table);
  const KernelDef* def = table.Find(spec, DeviceType::kCuda).ValueOrThrow();
  const Tensor sum =
      testing::RunKernel(*def, spec,
                         {Tensor::Full(DType::kFloat64, {kTiles}, 0.1)})
          .front();
  const long double wanted = kTiles * static_cast<long double>(0.1);
  const auto error = static_cast<double>((sum.At(0) - wanted) / wanted);
  CHECK(std::abs(error) < 64 * std::numeric_limits<double>::epsilon());
}

}  // namespace
}  // namespace sluice::cuda
