// Units that elements are moved in without looking at them: 1, 2, 4, 8 or 16
// bytes.
#ifndef SLUICE_KERNELS_CUDA_DEVICE_UNIT_H_
#define SLUICE_KERNELS_CUDA_DEVICE_UNIT_H_

#include <cstdint>

#include "kernels/cuda/device/element.h"

namespace sluice::cuda {

using Unit16 = Pack<uint64_t, 2>;

// Calls fn(TypeTag<U>()) with the type of a unit of that many bytes.
template <typename Fn>
decltype(auto) DispatchUnit(int64_t bytes, Fn&& fn) {
  switch (bytes) {
    case 1:
      return fn(TypeTag<uint8_t>());
    case 2:
      return fn(TypeTag<uint16_t>());
    case 4:
      return fn(TypeTag<uint32_t>());
    case 8:
      return fn(TypeTag<uint64_t>());
    default:
      return fn(TypeTag<Unit16>());
  }
}

// The largest unit that divides all of what was added: sizes, strides and
// offsets in bytes, and addresses.
class CommonUnit {
 public:
  void Add(int64_t bytes) { bits_ |= static_cast<uint64_t>(bytes); }
  void Add(const void* address) {
    bits_ |= reinterpret_cast<uintptr_t>(address);
  }
  int64_t bytes() const { return static_cast<int64_t>(bits_ & (~bits_ + 1)); }

 private:
  uint64_t bits_ = sizeof(Unit16);
};

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_UNIT_H_
