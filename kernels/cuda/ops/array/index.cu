// Gather and OneHot: a thread writes a unit of the result. ScatterAdd is in
// scatter.cu.
#include "kernels/cuda/device/bad_index_device.h"
#include "kernels/cuda/ops/array/index.h"

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/unit.h"

namespace sluice::cuda {
namespace {

// shape.inner is in units.
template <typename U, typename I>
__global__ void GatherKernel(GatherShape s, int64_t units, const U* params,
                             const I* indices, U* y, BadIndex* bad) {
  for (int64_t i = GlobalThread(); i < units; i += GlobalThreads()) {
    const int64_t row = Quotient(i, s.inner);
    const int64_t block = Quotient(row, s.count);
    const int64_t batch = Quotient(block, s.middle);
    const int64_t position = batch * s.count + row - block * s.count;
    const int64_t from = indices[position];
    U unit = {};
    if (from >= 0 && from < s.size) {
      unit = params[(block * s.size + from) * s.inner + i - row * s.inner];
    } else if (i == row * s.inner) {  // once a row
      ReportBadIndex(bad, position, from);
    }
    y[i] = unit;
  }
}

template <typename U, typename I>
__global__ void OneHotKernel(int64_t n, int64_t depth, U on, U off,
                             const I* indices, U* y, BadIndex* bad) {
  for (int64_t i = GlobalThread(); i < n * depth; i += GlobalThreads()) {
    const int64_t row = Quotient(i, depth);
    const int64_t index = indices[row];
    const int64_t column = i - row * depth;
    if (column == 0 && (index < 0 || index >= depth)) {
      ReportBadIndex(bad, row, index);
    }
    y[i] = index == column ? on : off;
  }
}

}  // namespace

Status Gather(const GatherShape& shape, DType dtype, const void* params,
              DType index_dtype, const void* indices, void* y, BadIndex* bad,
              cudaStream_t stream) {
  const auto bytes = static_cast<int64_t>(SizeOf(dtype));
  CommonUnit common;
  common.Add(shape.inner * bytes);
  common.Add(params);
  common.Add(y);
  return DispatchUnit(common.bytes(), [&]<typename U>(TypeTag<U>) {
    return DispatchIndex(index_dtype, [&]<typename I>(TypeTag<I>) {
      GatherShape wide = shape;
      wide.inner = shape.inner * bytes / static_cast<int64_t>(sizeof(U));
      const int64_t units = wide.batch * wide.middle * wide.count * wide.inner;
      return Launch("Gather", GridFor(units), stream, GatherKernel<U, I>, wide,
                    units, static_cast<const U*>(params),
                    static_cast<const I*>(indices), static_cast<U*>(y), bad);
    });
  });
}

Status OneHot(const OneHotShape& shape, DType index_dtype, const void* indices,
              DType dtype, void* y, BadIndex* bad, cudaStream_t stream) {
  return DispatchIndex(index_dtype, [&]<typename I>(TypeTag<I>) {
    const auto launch = [&]<typename U>(TypeTag<U>) {
      return Launch("OneHot", GridFor(shape.n * shape.depth), stream,
                    OneHotKernel<U, I>, shape.n, shape.depth,
                    static_cast<U>(shape.on), static_cast<U>(shape.off),
                    static_cast<const I*>(indices), static_cast<U*>(y), bad);
    };
    switch (SizeOf(dtype)) {
      case 1:
        return launch(TypeTag<uint8_t>());
      case 2:
        return launch(TypeTag<uint16_t>());
      case 4:
        return launch(TypeTag<uint32_t>());
      default:
        return launch(TypeTag<uint64_t>());
    }
  });
}

}  // namespace sluice::cuda
