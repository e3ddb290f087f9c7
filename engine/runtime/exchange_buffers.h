// Buffers and events of tensors on their way from device to device.
#ifndef SLUICE_ENGINE_RUNTIME_EXCHANGE_BUFFERS_H_
#define SLUICE_ENGINE_RUNTIME_EXCHANGE_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/accelerator.h"
#include "engine/device_memory.h"
#include "engine/status.h"

namespace sluice {

// Host memory that grows; an accelerator's is pinned.
class TransferBlock {
 public:
  Status Reserve(size_t bytes, Accelerator* accelerator) {
    const bool pinned = accelerator != nullptr;
    if (bytes <= bytes_ && (pinned_ || !pinned)) return {};
    memory_.reset();
    bytes_ = 0;
    if (pinned) {
      SLUICE_ASSIGN_OR_RETURN(memory_, accelerator->AllocatePinned(bytes));
    } else {
      SLUICE_ASSIGN_OR_RETURN(memory_, DeviceMemory(nullptr).Allocate(bytes));
    }
    bytes_ = bytes;
    pinned_ = pinned;
    return {};
  }
  void* data() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<void> memory_;
  size_t bytes_ = 0;
  bool pinned_ = false;
};

// An accelerator's memory that grows, of the device of an incarnation.
class DeviceBlock {
 public:
  Status Reserve(size_t bytes, Accelerator& accelerator, uint64_t incarnation) {
    if (bytes <= bytes_ && incarnation_ == incarnation) return {};
    memory_.reset();
    bytes_ = 0;
    SLUICE_ASSIGN_OR_RETURN(memory_, accelerator.Allocate(bytes));
    bytes_ = bytes;
    incarnation_ = incarnation;
    return {};
  }
  void* data() const { return memory_.get(); }

 private:
  std::shared_ptr<void> memory_;
  size_t bytes_ = 0;
  uint64_t incarnation_ = 0;
};

// A place in the queue of an accelerator, which its incarnation tells from
// others.
class TransferMark {
 public:
  Status Record(Accelerator& accelerator, uint64_t incarnation,
                Accelerator::Queue queue) {
    if (event_ == nullptr || incarnation_ != incarnation) {
      SLUICE_ASSIGN_OR_RETURN(event_, accelerator.MakeEvent());
      incarnation_ = incarnation;
    }
    set_ = true;
    return accelerator.Record(event_, queue);
  }
  bool set() const { return set_; }
  const Accelerator::Event& event() const { return event_; }
  // Waits for it, and forgets it.
  void Clear() {
    if (set_) (void)event_->Wait().ok();  // a lost device does nothing more
    set_ = false;
  }

 private:
  Accelerator::Event event_;
  uint64_t incarnation_ = 0;
  bool set_ = false;
};

// Copies a tensor that is there when the compute queue has done what it was
// given so far, which `produced` marks, into pinned memory, beside what that
// queue does then; `copied` marks the end.
Status CopyOutBeside(Accelerator& accelerator, uint64_t incarnation,
                     const void* from, size_t bytes, void* pinned,
                     TransferMark& produced, TransferMark& copied);

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_EXCHANGE_BUFFERS_H_
