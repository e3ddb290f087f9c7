// The CUDA kernels of TopK and InTopK, emulated, against the CPU's.
#include "kernels/cuda/index_top.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/cuda/device_run.h"

namespace sluice::cuda {
namespace {

using testing::CpuResults;
using testing::DeviceBuffer;
using testing::InEveryOrder;
using testing::RandomTensor;

void CheckTopK(const Tensor& x, int64_t k) {
  const int64_t rows = x.shape()[0], n = x.shape()[1];
  Attributes attrs;
  attrs.Set("k", k);
  const std::vector<Tensor> wanted = CpuResults(
      "TopK", attrs, {x}, {{x.dtype(), {rows, k}}, {DType::kInt64, {rows, k}}});
  const std::vector<Tensor> got = InEveryOrder([&] {
    const DeviceBuffer in(x), values(wanted[0].bytes()),
        indices(wanted[1].bytes());
    CHECK(FindTopK(x.dtype())(in.get(), values.get(), indices.as<int64_t>(),
                              {rows, n, k}, nullptr)
              .ok());
    return std::vector{values.Read(x.dtype(), {rows, k}),
                       indices.Read(DType::kInt64, {rows, k})};
  });
  CHECK(got[0].BitEqual(wanted[0]));
  CHECK(got[1].BitEqual(wanted[1]));
}

TEST_CASE("the largest in order, equals by their place, NaN first") {
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
        DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64}) {
    // Many equals.
    const Tensor x =
        RandomTensor(DType::kFloat32, {4, 203}, -6, 6).Cast(DType::kInt8);
    CheckTopK(x.Cast(dtype), 1);
    CheckTopK(x.Cast(dtype), 5);
  }
  CheckTopK(RandomTensor(DType::kFloat32, {3, 10}, -1, 1), 10);
  CheckTopK(RandomTensor(DType::kFloat32, {2, 1500}, -1, 1), 3);
  Tensor x = RandomTensor(DType::kFloat32, {2, 40}, -1, 1);
  for (int64_t i : {7, 30, 45}) x.data<float>()[i] = std::nanf("");
  x.data<float>()[60] = INFINITY;
  CheckTopK(x, 4);
}

Tensor InTop(const Tensor& x, const Tensor& targets, int64_t k) {
  const Shape rows{x.shape()[0]};
  return InEveryOrder([&] {
           const DeviceBuffer in(x), at(targets), out(rows.elements());
           CHECK(FindInTopK(x.dtype(), targets.dtype())(
                     in.get(), at.get(), out.as<bool>(),
                     {x.shape()[0], x.shape()[1], k}, nullptr)
                     .ok());
           return std::vector{out.Read(DType::kBool, rows)};
         })
      .front();
}

TEST_CASE("whether a target is among the k largest") {
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (DType index : {DType::kInt32, DType::kInt64}) {
      const Tensor x = RandomTensor(dtype, {50, 130}, -1, 1);
      const Tensor targets = RandomTensor(index, {50}, 0, 129);
      Attributes attrs;
      attrs.Set("k", int64_t{40});
      const Tensor wanted =
          CpuResults("InTopK", attrs, {x, targets}, {{DType::kBool, {50}}})
              .front();
      CHECK(InTop(x, targets, 40).BitEqual(wanted));
    }
  }
}

TEST_CASE("neither NaN nor what is no class is among the largest") {
  const Tensor x = Tensor::Array<float>(
      {4, 2}, {std::nanf(""), 1, std::nanf(""), 1, 2, 3,  //
               2, 3});
  const Tensor targets =
      Tensor::Vector<int64_t>(std::vector<int64_t>{0, 1, 2, -1});
  const Tensor top = InTop(x, targets, 2);
  CHECK(top.At(0) == 0);
  CHECK(top.At(1) == 1);
  CHECK(top.At(2) == 0);
  CHECK(top.At(3) == 0);
  CHECK(InTop(x, targets, 1).At(1) == 0);  // NaN exceeds it
}

}  // namespace
}  // namespace sluice::cuda
