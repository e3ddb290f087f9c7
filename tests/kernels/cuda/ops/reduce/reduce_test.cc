// The CUDA reductions, emulated, against the CPU's.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/ops/reduce/reduce.h"
#include "tests/kernels/cuda/emulation/device_run.h"

namespace sluice::cuda {
namespace {

ReducePlan PlanOf(const AxisForm& shape) {
  return {{shape.outer, shape.n, shape.inner}, {false, true, false}};
}

Tensor Reduced(const std::string& op, const Tensor& x, const ReducePlan& plan,
               const Shape& y_shape, size_t skip) {
  const Reduction reduction = FindReduce(op, x.dtype());
  REQUIRE((reduction.launch != nullptr));
  return InEveryOrder([&] {
           const DeviceBuffer in(x, skip);
           const DeviceBuffer out(y_shape.elements() * SizeOf(x.dtype()));
           const DeviceBuffer workspace(plan.states() * reduction.state_bytes);
           CHECK(
               reduction
                   .launch(in.get(), out.get(), plan, workspace.get(), nullptr)
                   .ok());
           return std::vector{out.Read(x.dtype(), y_shape)};
         })
      .front();
}
Tensor Reduced(const std::string& op, const Tensor& x, const AxisForm& shape,
               size_t skip) {
  return Reduced(op, x, PlanOf(shape), {shape.outer, shape.inner}, skip);
}

// Both sides sum in trees of float or better, so that the error is a few units
// of the sum of magnitudes; half results are rounded once more.
void CheckReduce(const std::string& op, DType dtype, const AxisForm& shape,
                 size_t skip = 0) {
  const bool product = op == "Prod";
  const Tensor x = RandomTensor(dtype, {shape.outer, shape.n, shape.inner},
                                product ? 0.97 : -2, product ? 1.03 : 3);
  Attributes attrs;
  attrs.Set("axes", std::vector<int64_t>{1});
  attrs.Set("keep_dims", false);
  const Tensor wanted =
      CpuResults(op, attrs, {x}, {{dtype, {shape.outer, shape.inner}}}).front();
  const Tensor got = Reduced(op, x, shape, skip);
  const bool exact = op == "Max" || op == "Min";
  const double magnitudes = op == "Sum" ? static_cast<double>(shape.n) : 1;
  const bool half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  // A product multiplies n roundings of half a unit each.
  const double units = exact     ? 0
                       : half    ? 1
                       : product ? static_cast<double>(shape.n)
                                 : 8;
  const std::string difference =
      Difference(got, wanted, units, half ? 0.01 : magnitudes);
  CHECK_MESSAGE(difference.empty(), op, " of [", shape.outer, ",", shape.n, ",",
                shape.inner, "]: ", difference);
}

constexpr const char* kOps[] = {"Sum", "Mean", "Prod",
                                "Max", "Min",  "LogSumExp"};

TEST_CASE("rows, columns, the middle and everything, in every dtype") {
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const char* op : kOps) {
      CheckReduce(op, dtype, {7, 129, 1});   // rows
      CheckReduce(op, dtype, {1, 77, 65});   // columns
      CheckReduce(op, dtype, {3, 20, 33});   // the middle
      CheckReduce(op, dtype, {1, 1003, 1});  // everything
    }
  }
}

TEST_CASE("one element, rows of whole packs, unaligned, no two blocks alike") {
  for (const char* op : kOps) {
    CheckReduce(op, DType::kFloat32, {1, 1, 1});
    CheckReduce(op, DType::kFloat32, {5, 1, 3});
    CheckReduce(op, DType::kFloat32, {9, 640, 1});
    CheckReduce(op, DType::kFloat32, {9, 640, 1}, 4);
    CheckReduce(op, DType::kFloat16, {3, 200, 1}, 2);
    CheckReduce(op, DType::kFloat64, {3, 50, 31}, 8);
  }
}

TEST_CASE("long dimensions are cut and combined in a second pass") {
  CHECK(PlanOf({1, 1 << 14, 1}).states() == 0);
  CHECK(PlanOf({2, (1 << 14) + 1, 1}).states() == 2 * 2);
  CHECK(PlanOf({1, 513, 3}).states() == 2 * 3);
  for (const char* op : {"Sum", "Mean", "Max"}) {
    CheckReduce(op, DType::kFloat32, {2, 40'001, 1});
    CheckReduce(op, DType::kFloat32, {1, 1300, 37});
    CheckReduce(op, DType::kFloat64, {1, 40'001, 1}, 8);
  }
  // Three passes.
  CheckReduce("Mean", DType::kFloat32, {1, (1 << 18) + 3, 1});
  CheckReduce("Sum", DType::kFloat32, {1, (1 << 18) + 3, 2});
}

TEST_CASE("NaN is kept, and nothing has a result of its own") {
  Tensor x = RandomTensor(DType::kFloat32, {2, 100}, -1, 1);
  x.data<float>()[57] = std::nanf("");
  for (const char* op : kOps) {
    const Tensor y = Reduced(op, x, {2, 100, 1}, 0);
    CHECK(std::isnan(y.At(0)));
    CHECK_FALSE(std::isnan(y.At(1)));
  }
  const Tensor none(DType::kFloat32, {2, 0});
  CHECK(Reduced("Sum", none, {2, 0, 1}, 0).At(1) == 0);
  CHECK(std::isnan(Reduced("Mean", none, {2, 0, 1}, 0).At(0)));
  CHECK(Reduced("Prod", none, {2, 0, 1}, 0).At(0) == 1);
  CHECK(Reduced("Max", none, {1, 0, 2}, 0).At(0) == -INFINITY);
  CHECK(Reduced("Min", none, {1, 0, 2}, 0).At(1) == INFINITY);
}

// Integers and bools, exactly; floats with the error of CheckReduce.
void CheckAxes(const std::string& op, DType dtype, const Shape& x_shape,
               const std::vector<int64_t>& axes) {
  const Tensor x = dtype == DType::kBool
                       ? RandomTensor(DType::kFloat32, x_shape, -1, 1)
                             .Cast(DType::kInt8)
                             .Cast(dtype)
                       : RandomTensor(dtype, x_shape, -100, 120);
  std::vector<bool> reduced(x_shape.rank(), false);
  for (int64_t axis : axes) reduced[axis] = true;
  Shape y_shape;
  for (int d = 0; d < x_shape.rank(); ++d) {
    y_shape.push_back(reduced[d] ? 1 : x_shape[d]);
  }
  Attributes attrs;
  attrs.Set("axes", axes);
  attrs.Set("keep_dims", true);
  const Tensor wanted = CpuResults(op, attrs, {x}, {{dtype, y_shape}}).front();
  const Tensor got = Reduced(op, x, ReducePlan(x_shape, reduced), y_shape, 0);
  const std::string difference = Difference(got, wanted, 8, 1e4);
  CHECK_MESSAGE(difference.empty(), op, " of ", x_shape.ToString(), ": ",
                difference);
}

TEST_CASE("dimensions that are not neighbours, in several passes") {
  for (const char* op : {"Sum", "Max", "LogSumExp"}) {
    CheckAxes(op, DType::kFloat32, {3, 5, 7, 2}, {0, 2});
    CheckAxes(op, DType::kFloat32, {3, 5, 7, 2}, {1, 3});
    CheckAxes(op, DType::kFloat32, {2, 520, 3, 9}, {1, 3});
    CheckAxes(op, DType::kFloat32, {2, 3, 3, 300}, {1, 3});
    CheckAxes(op, DType::kFloat32, {2, 1, 3, 1, 4}, {0, 1, 4});
    CheckAxes(op, DType::kFloat64, {2, 2, 2, 2, 2, 2, 2, 5}, {0, 2, 4, 6});
    CheckAxes(op, DType::kFloat32, {4, 1, 3}, {1});  // a copy
  }
}

TEST_CASE("integers wrap around; bools") {
  for (DType dtype :
       {DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64}) {
    for (const char* op : {"Sum", "Prod", "Max", "Min"}) {
      CheckAxes(op, dtype, {7, 129}, {1});
      CheckAxes(op, dtype, {3, 1000}, {1});
      CheckAxes(op, dtype, {700, 37}, {0});
      CheckAxes(op, dtype, {3, 5, 40}, {0, 2});
    }
  }
  for (const char* op : {"Any", "All"}) {
    CheckAxes(op, DType::kBool, {40, 3}, {1});
    CheckAxes(op, DType::kBool, {3, 700}, {1});
    CheckAxes(op, DType::kBool, {700, 2}, {0});
  }
  const Tensor none(DType::kBool, {2, 0});
  CHECK(Reduced("Any", none, {2, 0, 1}, 0).At(1) == 0);
  CHECK(Reduced("All", none, {2, 0, 1}, 0).At(1) == 1);
}

TEST_CASE("exponentials are summed without overflow, infinities too") {
  const float inf = INFINITY;
  const auto of = [](std::vector<float> x) {
    const auto n = static_cast<int64_t>(x.size());
    return Reduced("LogSumExp", Tensor::Vector<float>(x), {1, n, 1}, 0).At(0);
  };
  CHECK(of({1000, 1000}) == doctest::Approx(1000 + std::log(2.0)));
  CHECK(of({-1000, -1000}) == doctest::Approx(-1000 + std::log(2.0)));
  CHECK(of({-inf, 3}) == doctest::Approx(3));
  CHECK(of({-inf, -inf}) == -inf);
  CHECK(of({inf, inf, 1}) == inf);
  CHECK(std::isnan(of({1, std::nanf(""), 2, inf})));
}

TEST_CASE("half the sum of squares") {
  for (int64_t n : {5, 1000, 40'000}) {
    const Tensor x = RandomTensor(DType::kFloat32, {n}, -2, 3);
    const Tensor wanted =
        CpuResults("L2Loss", {}, {x}, {{DType::kFloat32, {}}}).front();
    const double got = Reduced("L2Loss", x, {1, n, 1}, 0).At(0);
    CHECK(got == doctest::Approx(wanted.At(0)).epsilon(1e-6));
  }
}

TEST_CASE("products and squares leave float's range on the way") {
  const std::vector<double> tiny = {1e-30, 2, 1e-30, 1e30, 1e30};
  const std::vector<double> huge = {1e30, 2, 1e30, 1e-30, 1e-30};
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const double error = dtype == DType::kBFloat16 ? 0.03 : 1e-6;
    for (const std::vector<double>& factors : {tiny, huge}) {
      const Tensor x = Tensor::Vector<double>(factors).Cast(dtype);
      CHECK(Reduced("Prod", x, {1, 5, 1}, 0).At(0) ==
            doctest::Approx(2).epsilon(error));
    }
    const Tensor large = Tensor::Full(dtype, {2}, 1.5e19);
    CHECK(Reduced("L2Loss", large, {1, 2, 1}, 0).At(0) ==
          doctest::Approx(2.25e38).epsilon(error));
  }
  // Columns of it.
  Tensor columns(DType::kFloat32, {5, 3});
  for (int64_t i = 0; i < columns.elements(); ++i) {
    columns.data<float>()[i] =
        static_cast<float>(huge[static_cast<size_t>(i / 3)]);
  }
  const Tensor products = Reduced("Prod", columns, {1, 5, 3}, 0);
  for (int64_t i = 0; i < 3; ++i) {
    CHECK(products.At(i) == doctest::Approx(2).epsilon(1e-6));
  }
}

TEST_CASE("squares are summed in double, which holds those of floats") {
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    const Reduction reduction = FindReduce("SquaredNorm", dtype);
    for (int64_t n : {5, 40'000}) {
      const Tensor x =
          Tensor::Full(dtype, {n}, dtype == DType::kFloat16 ? 6e4 : 3e20);
      const ReducePlan plan = PlanOf({1, n, 1});
      const Tensor got =
          InEveryOrder([&] {
            const DeviceBuffer in(x), y(sizeof(double));
            const DeviceBuffer workspace(plan.states() * reduction.state_bytes);
            CHECK(reduction
                      .launch(in.get(), y.get(), plan, workspace.get(), nullptr)
                      .ok());
            return std::vector{y.Read(DType::kFloat64, {})};
          }).front();
      CHECK(got.At(0) ==
            doctest::Approx(static_cast<double>(n) * x.At(0) * x.At(0)));
    }
  }
}

TEST_CASE("what has no kernel is null") {
  CHECK((FindReduce("Mean", DType::kInt32).launch == nullptr));
  CHECK((FindReduce("Sum", DType::kBool).launch == nullptr));
  CHECK((FindReduce("Median", DType::kFloat32).launch == nullptr));
}

}  // namespace
}  // namespace sluice::cuda
