// The CUDA kernels that repeat elements and count, emulated.
#include "kernels/cuda/ops/array/shape_fill.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/kernels/cuda/emulation/device_run.h"

namespace sluice::cuda {
namespace {

TEST_CASE("BroadcastTo repeats rows, columns and scalars, of any dtype") {
  struct Case {
    Shape x, y;
  };
  const Case cases[] = {{{64}, {5, 64}},        {{63}, {5, 63}},
                        {{7, 1}, {7, 32}},      {{}, {4099}},
                        {{3, 1, 8}, {3, 5, 8}}, {{2, 1, 3}, {4, 2, 5, 3}}};
  for (const Case& c : cases) {
    for (DType dtype :
         {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kInt64}) {
      const Tensor x = RandomTensor(dtype, c.x, 0, 90);
      const Tensor shape = Tensor::Vector<int64_t>(c.y.dims());
      const Tensor wanted =
          CpuResults("BroadcastTo", {}, {x, shape}, {{dtype, c.y}}).front();
      for (size_t skip : {size_t{0}, SizeOf(dtype)}) {
        const Tensor got =
            InEveryOrder([&] {
              const DeviceBuffer in(x, skip), out(wanted.bytes(), skip);
              CHECK(FindBroadcastTo(dtype)(in.get(), out.get(),
                                           BroadcastOf(c.y, {&c.x, 1}), nullptr)
                        .ok());
              return std::vector{out.Read(dtype, c.y)};
            }).front();
        CHECK(got.BitEqual(wanted));
      }
    }
  }
}

TEST_CASE("FillBytes begins the pattern at the first byte") {
  for (int64_t n : {0, 1, 3, 2049}) {
    for (size_t skip : {0, 4}) {
      const DeviceBuffer y(n * 4, skip);
      CHECK(FillBytes(y.get(), 0x3f800000'3f800000u, n * 4, nullptr).ok());
      CHECK(y.Read(DType::kFloat32, {n})
                .BitEqual(Tensor::Full(DType::kFloat32, {n}, 1)));
    }
  }
}

TEST_CASE("Range counts as the CPU does") {
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64}) {
    for (int64_t n : {1, 700}) {
      const Tensor start = Tensor::Full(dtype, {}, -3);
      const Tensor delta = Tensor::Full(DType::kFloat64, {}, 2.625).Cast(dtype);
      const Tensor wanted =
          CpuResults("Range", {}, {start, start, delta}, {{dtype, {n}}})
              .front();
      const Tensor got =
          InEveryOrder([&] {
            const DeviceBuffer from(start), step(delta), y(wanted.bytes());
            CHECK(FindRange(dtype)(from.get(), step.get(), y.get(), n, nullptr)
                      .ok());
            return std::vector{y.Read(dtype, {n})};
          }).front();
      CHECK(got.BitEqual(wanted));
    }
  }
}

}  // namespace
}  // namespace sluice::cuda
