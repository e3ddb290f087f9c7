// What fused programs need beside the elementwise loops: choosing, and storing
// results past the caches.
#include "kernels/cpu/simd/loop.h"
#include "kernels/cpu/simd/stream.h"
#include "kernels/cpu/simd/tables.h"

namespace sluice::SLUICE_ISA {
namespace {

template <typename T>
void Select(const bool* condition, const T* a, const T* b, T* y, int64_t n) {
  SLUICE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = condition[i] ? a[i] : b[i];
}

void StreamPart(const float* x, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {  // a cache line
    for (int j = 0; j < 16; j += kStreamLanes) {
      StorePastCache(y + i + j, LoadStream(x + i + j));
    }
  }
  for (; i < n; ++i) y[i] = x[i];
}

void Fence() {
  FenceStores();
}

void Stream(const float* x, float* y, int64_t n) {
  StreamPart(x, y, n);
  FenceStores();
}

}  // namespace

void AddFused(simd::SimdKernels& table) noexcept {
  table.select_f32 = Select<float>;
  table.select_f64 = Select<double>;
  table.stream = Stream;
  table.stream_part = StreamPart;
  table.fence = Fence;
}

}  // namespace sluice::SLUICE_ISA
