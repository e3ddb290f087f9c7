// Where tensors live: the host's memory or an accelerator's.
#ifndef SLUICE_ENGINE_DEVICE_MEMORY_H_
#define SLUICE_ENGINE_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "engine/accelerator.h"
#include "engine/kernel.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Memory for tensors: the host's, or an accelerator's.
class DeviceMemory {
 public:
  // `accelerator` is borrowed; null: the host's memory. Its rule about threads
  // holds for calls here.
  explicit DeviceMemory(Accelerator* accelerator) : accelerator_(accelerator) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  Accelerator* accelerator() const { return accelerator_; }

  // Resource exhaustion says how much was wanted.
  Result<std::shared_ptr<void>> Allocate(size_t bytes) const;
  Result<Tensor> Allocate(const TensorType& type) const;
  // Upload: a tensor in this memory with the value of one on the host.
  // Download: the reverse. If this is the host's memory, Upload shares the
  // bytes, Download copies.
  Result<Tensor> Upload(const Tensor& host) const;
  Result<Tensor> Download(const Tensor& here) const;
  // Store overwrites a tensor in this memory with one of the same type on the
  // host; Load does the reverse.
  Status Store(const Tensor& host, Tensor& here) const;
  Status Load(const Tensor& here, Tensor& host) const;

 private:
  // Does `copy(pinned, offset, bytes)` with pieces of a tensor of `bytes`, in
  // turn, all through one piece of pinned memory.
  Status InPieces(size_t bytes,
                  const std::function<Status(char* pinned, size_t offset,
                                             size_t bytes)>& copy) const;

  Accelerator* accelerator_;
  // Made when first needed and kept: making it takes longer than most copies.
  mutable std::shared_ptr<void> pinned_;
};

// One block of memory for the intermediate values of a device's Plans, as large
// as the largest of them. Not thread-safe.
class Arena {
 public:
  explicit Arena(const DeviceMemory& memory) : memory_(memory) {}
  // Grows to at least `bytes`; earlier pointers are then invalid and
  // generation() changes. Resource exhaustion says how much was wanted.
  Status Reserve(size_t bytes);
  char* data() const { return static_cast<char*>(buffer_.get()); }
  size_t bytes() const { return bytes_; }
  uint64_t generation() const { return generation_; }

 private:
  const DeviceMemory& memory_;
  std::shared_ptr<void> buffer_;
  size_t bytes_ = 0;
  uint64_t generation_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_DEVICE_MEMORY_H_
