#include "engine/staging.h"

#include <cstring>

#include "engine/tensor.h"
#include "engine/threads.h"

namespace sluice {
namespace {

char* At(const std::shared_ptr<void>& block, size_t offset) {
  return static_cast<char*>(block.get()) + offset;
}

// One thread does not reach the memory's bandwidth.
void CopyOnHost(void* to, const void* from, size_t bytes) {
  constexpr int64_t kGrain = 1 << 20;
  ParallelFor(static_cast<int64_t>(bytes), kGrain,
              [&](int64_t begin, int64_t end) {
                std::memcpy(static_cast<char*>(to) + begin,
                            static_cast<const char*>(from) + begin,
                            static_cast<size_t>(end - begin));
              });
}

}  // namespace

Staging::Block::Block(const std::vector<size_t>& sizes, size_t begin)
    : bytes(sizes), end(begin) {
  for (const size_t size : sizes) {
    offsets.push_back(end);
    end += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
}

Staging::Staging(const Plan& plan, Accelerator& accelerator)
    : accelerator_(accelerator),
      feeds_(plan.feed_bytes, /*begin=*/kAlignment),  // the key comes first
      fetches_(plan.fetch_bytes, /*begin=*/0) {
  static_assert(sizeof(StepKey) <= kAlignment);
}

Result<std::unique_ptr<Staging>> Staging::Make(const Plan& plan,
                                               Accelerator& accelerator) {
  std::unique_ptr<Staging> staging(new Staging(plan, accelerator));
  const size_t bytes = staging->feeds_.end;
  for (Side& side : staging->sides_) {
    SLUICE_ASSIGN_OR_RETURN(side.host, accelerator.AllocatePinned(bytes));
    SLUICE_ASSIGN_OR_RETURN(side.copied, accelerator.Allocate(bytes));
    SLUICE_ASSIGN_OR_RETURN(side.filled, accelerator.MakeEvent());
    SLUICE_ASSIGN_OR_RETURN(side.taken, accelerator.MakeEvent());
  }
  SLUICE_ASSIGN_OR_RETURN(staging->inputs_, accelerator.Allocate(bytes));
  if (staging->fetches_any()) {
    SLUICE_ASSIGN_OR_RETURN(staging->outputs_,
                            accelerator.AllocatePinned(staging->fetches_.end));
  }
  return staging;
}

void* Staging::feed(uint32_t index) const {
  return feeds_.bytes[index] > 0 ? At(inputs_, feeds_.offsets[index]) : nullptr;
}

void* Staging::fetch(uint32_t index) const {
  return fetches_.bytes[index] > 0 ? At(outputs_, fetches_.offsets[index])
                                   : nullptr;
}

const StepKey* Staging::key() const {
  return reinterpret_cast<const StepKey*>(At(inputs_, 0));
}

Status Staging::CopyIn(std::span<void* const> feeds, const StepKey& key) {
  using Queue = Accelerator::Queue;
  Side& side = sides_[side_];
  side_ = 1 - side_;
  SLUICE_RETURN_IF_ERROR(accelerator_.WaitOnHost(side.filled));
  std::memcpy(side.host.get(), &key, sizeof(key));
  for (size_t i = 0; i < feeds_.bytes.size(); ++i) {
    if (feeds_.bytes[i] == 0) continue;
    CopyOnHost(At(side.host, feeds_.offsets[i]), feeds[i], feeds_.bytes[i]);
  }
  SLUICE_RETURN_IF_ERROR(accelerator_.Wait(side.taken, Queue::kCopyIn));
  SLUICE_RETURN_IF_ERROR(accelerator_.CopyIn(Queue::kCopyIn, side.copied.get(),
                                             side.host.get(), feeds_.end));
  SLUICE_RETURN_IF_ERROR(accelerator_.Record(side.filled, Queue::kCopyIn));
  SLUICE_RETURN_IF_ERROR(accelerator_.Wait(side.filled, Queue::kCompute));
  SLUICE_RETURN_IF_ERROR(
      accelerator_.CopyWithin(inputs_.get(), side.copied.get(), feeds_.end));
  return accelerator_.Record(side.taken, Queue::kCompute);
}

Status Staging::CopyOut(std::span<void* const> fetches) {
  SLUICE_RETURN_IF_ERROR(accelerator_.Synchronize());
  for (size_t i = 0; i < fetches_.bytes.size(); ++i) {
    if (fetches_.bytes[i] == 0) continue;
    CopyOnHost(fetches[i], At(outputs_, fetches_.offsets[i]),
               fetches_.bytes[i]);
  }
  return {};
}

}  // namespace sluice
