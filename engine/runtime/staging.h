// How a step's feeds get to an accelerator and its fetches back: through pinned
// memory, at addresses that stay the same from step to step.
#ifndef SLUICE_ENGINE_RUNTIME_STAGING_H_
#define SLUICE_ENGINE_RUNTIME_STAGING_H_

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/accelerator.h"
#include "engine/kernel.h"
#include "engine/runtime/plan.h"
#include "engine/status.h"

namespace sluice {

// Feeds and StepKey are one block, fetches another, each where kernels find it
// on the device. Between there and pinned memory a queue of its own copies,
// while kernels of the step before or after compute; for that there are two
// slots, which steps use in turn, each with pinned memory and, on the device,
// a copy of the block. A block of at most kSmall is copied by the compute
// queue itself: that takes no longer than handing it over. A slot may be used
// again when its last step was collected, or has failed and is over.
class Staging {
 public:
  static constexpr int kSlots = 2;
  static constexpr size_t kSmall = size_t{64} << 10;  // bytes

  // `accelerator` must outlive it and be the thread's.
  static Result<std::unique_ptr<Staging>> Make(const Plan& plan,
                                               Accelerator& accelerator);

  // Addresses in device memory of feeds, fetches and the StepKey, for kernels.
  // Null for a feed or fetch that the Plan does not have.
  void* feed(uint32_t index) const;
  void* fetch(uint32_t index) const;
  const StepKey* key() const;

  // Adds the copies of a step's feeds and key to the queues, to come before its
  // kernels. The feeds may be reused on return.
  Status CopyIn(int slot, std::span<void* const> feeds, const StepKey& key);
  // Adds the copies of its fetches, to come after its kernels.
  Status CopyOut(int slot);
  // The event that is passed when the slot's step is over.
  const Accelerator::Event& ended(int slot) const { return ended_[slot]; }
  // Copies the step's fetches to the caller's buffers. Call it after ended().
  void Collect(int slot, std::span<void* const> fetches) const;

 private:
  // Tensors one after another.
  struct Layout {
    std::vector<size_t> bytes, offsets;
    size_t end = 0;
    Layout(const std::vector<size_t>& sizes, size_t begin);
  };
  struct Slot {
    std::shared_ptr<void> pinned;
    // Unless the block is small, its copy on the device, and when that has
    // what one queue gives another.
    std::shared_ptr<void> copied;
    Accelerator::Event handed_over;
  };
  using Slots = std::array<Slot, kSlots>;

  Staging(const Plan& plan, Accelerator& accelerator);
  static Status MakeSlots(size_t bytes, Accelerator& accelerator, Slots* slots);

  Accelerator& accelerator_;
  Layout feeds_, fetches_;
  Slots in_, out_;
  std::array<Accelerator::Event, kSlots> ended_;
  std::shared_ptr<void> inputs_, outputs_;  // the blocks
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_STAGING_H_
