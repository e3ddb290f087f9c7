// The emulation's device memory.
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_DEVICE_MEMORY_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_DEVICE_MEMORY_H_

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>

#include "engine/status.h"
#include "tests/kernels/cuda/emulation/emulator.h"

namespace sluice::cuda::emulation {

// Addresses that only work on a stream may use, and of which devices it may:
// for all others, and so for host code that takes a device pointer for one of
// its own, they fault. Each device has a range.
class DeviceMemory {
 public:
  static constexpr unsigned kAll = ~0u;

  size_t used() const { return used_; }

  // Null where there would be more than `limit` in use.
  void* Allocate(int device, size_t bytes, size_t limit) {
    const size_t size = std::max(bytes + kAlign - 1, kAlign) / kAlign * kAlign;
    if (used_ + size > limit) return nullptr;
    Range& range = ranges_[device];
    size_t at = 0;
    for (const auto& [begin, length] : range.taken) {  // first fit
      if (begin - at >= size) break;
      at = begin + length;
    }
    if (at + size > kCapacity) return nullptr;
    range.taken[at] = size;
    used_ += size;
    const Access access(*this);
    if (at + size > range.end) {
      Grant(0);
      range.end = at + size;
    }
    Grant(kAll);
    std::memset(base(device) + at, kPoison, size);
    return base(device) + at;
  }
  bool Free(void* memory) {
    const int device = DeviceOf(memory);
    if (device < 0) return false;
    auto& taken = ranges_[device].taken;
    const auto it = taken.find(static_cast<char*>(memory) - base(device));
    if (it == taken.end()) return false;
    used_ -= it->second;
    taken.erase(it);
    return true;
  }
  // Whose memory it is; -1: none's.
  int DeviceOf(const void* p) {
    const auto at =
        reinterpret_cast<intptr_t>(p) - reinterpret_cast<intptr_t>(base(0));
    if (at < 0 || at >= static_cast<intptr_t>(kDevices * kCapacity)) return -1;
    return static_cast<int>(static_cast<size_t>(at) / kCapacity);
  }

  // While one lives there may be memory that can be used: that of the devices
  // whose bits are granted.
  class Access {
   public:
    explicit Access(DeviceMemory& memory)
        : memory_(memory), before_(memory.granted_) {
      ++memory_.users_;
    }
    ~Access() { memory_.Grant(--memory_.users_ == 0 ? 0 : before_); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    DeviceMemory& memory_;
    const unsigned before_;
  };
  void Grant(unsigned devices) {
    for (int d = 0; d < kDevices; ++d) {
      const unsigned bit = 1u << d;
      if ((devices & bit) == (granted_ & bit) || ranges_[d].end == 0) continue;
      const size_t bytes = (ranges_[d].end + kPage - 1) / kPage * kPage;
      const int rights =
          (devices & bit) != 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
      SLUICE_CHECK(mprotect(base(d), bytes, rights) == 0);
    }
    granted_ = devices;
  }

 private:
  static constexpr int kDevices = kMostGpus;
  static constexpr size_t kCapacity = Machine().memory;
  static constexpr size_t kAlign = 256;
  static constexpr size_t kPage = 4096;

  struct Range {
    size_t end = 0;                  // of all that was ever taken
    std::map<size_t, size_t> taken;  // begin to length
  };

  char* base(int device) {
    if (base_ == nullptr) {
      void* at = mmap(nullptr, kDevices * kCapacity, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      SLUICE_CHECK(at != MAP_FAILED);
      base_ = static_cast<char*>(at);
    }
    return base_ + static_cast<size_t>(device) * kCapacity;
  }

  char* base_ = nullptr;
  size_t used_ = 0;
  std::array<Range, kDevices> ranges_;
  int users_ = 0;
  unsigned granted_ = 0;
};

}  // namespace sluice::cuda::emulation

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_DEVICE_MEMORY_H_
