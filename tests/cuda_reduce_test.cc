// The CUDA reductions, emulated, against the CPU's.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/reduce.h"
#include "tests/cuda/device_run.h"

namespace sluice::cuda {
namespace {

using testing::CpuResults;
using testing::DeviceBuffer;
using testing::Difference;
using testing::InEveryOrder;
using testing::RandomTensor;

Tensor Reduced(const std::string& op, const Tensor& x, const ReduceShape& shape,
               size_t skip) {
  const Shape y_shape{shape.outer, shape.inner};
  return InEveryOrder([&] {
           const DeviceBuffer in(x, skip);
           const DeviceBuffer out(y_shape.elements() * SizeOf(x.dtype()));
           const DeviceBuffer workspace(ReduceWorkspace(shape, x.dtype()));
           CHECK(FindReduce(op, x.dtype())(in.get(), out.get(), shape,
                                           workspace.get(), nullptr)
                     .ok());
           return std::vector{out.Read(x.dtype(), y_shape)};
         })
      .front();
}

// Both sides sum in trees of float or better, so that the error is a few units
// of the sum of magnitudes; half results are rounded once more.
void CheckReduce(const std::string& op, DType dtype, const ReduceShape& shape,
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

constexpr const char* kOps[] = {"Sum", "Mean", "Prod", "Max", "Min"};

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
  CHECK(ReduceWorkspace({1, 1 << 14, 1}, DType::kFloat32) == 0);
  CHECK(ReduceWorkspace({2, (1 << 14) + 1, 1}, DType::kFloat16) == 4 * 4);
  CHECK(ReduceWorkspace({1, 513, 3}, DType::kFloat64) == 2 * 3 * 8);
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

TEST_CASE("only reductions of floating types have kernels") {
  CHECK((FindReduce("Sum", DType::kInt32) == nullptr));
  CHECK((FindReduce("Median", DType::kFloat32) == nullptr));
}

}  // namespace
}  // namespace sluice::cuda
