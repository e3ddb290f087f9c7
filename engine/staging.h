// How a step's feeds get to an accelerator and its fetches back: through pinned
// memory, at addresses that stay the same from step to step.
#ifndef SLUICE_ENGINE_STAGING_H_
#define SLUICE_ENGINE_STAGING_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/accelerator.h"
#include "engine/kernel.h"
#include "engine/plan.h"
#include "engine/status.h"

namespace sluice {

// The feeds of a step and its StepKey are one block, copied at once by the
// copy-in queue while the step before may still compute; from there the
// compute queue moves it to where kernels read it. Host and copied blocks are
// double, so that the host can fill one while the other is under way.
class Staging {
 public:
  // `accelerator` must outlive it and be the thread's.
  static Result<std::unique_ptr<Staging>> Make(const Plan& plan,
                                               Accelerator& accelerator);

  // Where kernels find the feed, in device memory; where the kernel of Fetch
  // leaves its result, in pinned memory. Null for those the plan has not.
  void* feed(uint32_t index) const;
  void* fetch(uint32_t index) const;
  const StepKey* key() const;
  bool fetches_any() const { return fetches_.end > 0; }

  // Adds the copies of a step's feeds and key to the queues. The feeds may be
  // reused on return.
  Status CopyIn(std::span<void* const> feeds, const StepKey& key);
  // Waits for the compute queue, then copies to the caller's buffers.
  Status CopyOut(std::span<void* const> fetches);

 private:
  // Tensors one after another.
  struct Block {
    std::vector<size_t> bytes, offsets;
    size_t end = 0;
    Block(const std::vector<size_t>& sizes, size_t begin);
  };
  struct Side {
    std::shared_ptr<void> host;    // pinned
    std::shared_ptr<void> copied;  // on the device
    Accelerator::Event filled;     // `copied` holds what `host` held
    Accelerator::Event taken;      // `copied` may be overwritten
  };

  Staging(const Plan& plan, Accelerator& accelerator);

  Accelerator& accelerator_;
  Block feeds_, fetches_;
  Side sides_[2];
  int side_ = 0;
  std::shared_ptr<void> inputs_;   // device: key and feeds
  std::shared_ptr<void> outputs_;  // pinned
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_STAGING_H_
