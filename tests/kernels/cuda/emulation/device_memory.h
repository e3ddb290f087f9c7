// The emulation's device memory.
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_DEVICE_MEMORY_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_DEVICE_MEMORY_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>

#include "engine/status.h"
#include "tests/kernels/cuda/emulation/emulator.h"

namespace sluice::cuda::emulation {

// Addresses that only work on a stream may use: for all others, and so for host
// code that takes a device pointer for one of its own, they fault.
class DeviceMemory {
 public:
  size_t used() const { return used_; }

  // Null where there would be more than `limit` in use.
  void* Allocate(size_t bytes, size_t limit) {
    const size_t size = std::max(bytes + kAlign - 1, kAlign) / kAlign * kAlign;
    if (used_ + size > limit) return nullptr;
    size_t at = 0;
    for (const auto& [begin, length] : taken_) {  // first fit
      if (begin - at >= size) break;
      at = begin + length;
    }
    if (at + size > kCapacity) return nullptr;
    taken_[at] = size;
    used_ += size;
    end_ = std::max(end_, at + size);
    const Access access(*this);
    std::memset(base() + at, kPoison, size);
    return base() + at;
  }
  bool Free(void* memory) {
    const auto it = taken_.find(static_cast<char*>(memory) - base());
    if (it == taken_.end()) return false;
    used_ -= it->second;
    taken_.erase(it);
    return true;
  }

  // While it lives the memory can be used.
  class Access {
   public:
    explicit Access(DeviceMemory& memory) : memory_(memory) {
      if (memory_.users_++ == 0) memory_.Protect(PROT_READ | PROT_WRITE);
    }
    ~Access() {
      if (--memory_.users_ == 0) memory_.Protect(PROT_NONE);
    }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    DeviceMemory& memory_;
  };

 private:
  static constexpr size_t kCapacity = Machine().memory;
  static constexpr size_t kAlign = 256;
  static constexpr size_t kPage = 4096;

  char* base() {
    if (base_ == nullptr) {
      void* at = mmap(nullptr, kCapacity, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      SLUICE_CHECK(at != MAP_FAILED);
      base_ = static_cast<char*>(at);
    }
    return base_;
  }
  void Protect(int rights) {
    if (end_ == 0) return;
    const size_t bytes = (end_ + kPage - 1) / kPage * kPage;
    SLUICE_CHECK(mprotect(base(), bytes, rights) == 0);
  }

  char* base_ = nullptr;
  size_t used_ = 0;
  size_t end_ = 0;                  // of all that was ever taken
  std::map<size_t, size_t> taken_;  // begin to length
  int users_ = 0;
};

}  // namespace sluice::cuda::emulation

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_DEVICE_MEMORY_H_
