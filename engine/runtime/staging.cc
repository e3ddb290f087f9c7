#include "engine/runtime/staging.h"

#include <cstring>

#include "engine/ceil_div.h"
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

Staging::Layout::Layout(const std::vector<size_t>& sizes, size_t begin)
    : bytes(sizes), end(begin) {
  for (const size_t size : sizes) {
    offsets.push_back(end);
    end += RoundUp(size, kAlignment);
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
  const size_t in = staging->feeds_.end, out = staging->fetches_.end;
  SLUICE_ASSIGN_OR_RETURN(staging->inputs_, accelerator.Allocate(in));
  SLUICE_ASSIGN_OR_RETURN(staging->outputs_, accelerator.Allocate(out));
  SLUICE_RETURN_IF_ERROR(MakeSlots(in, accelerator, &staging->in_));
  SLUICE_RETURN_IF_ERROR(MakeSlots(out, accelerator, &staging->out_));
  for (Accelerator::Event& ended : staging->ended_) {
    SLUICE_ASSIGN_OR_RETURN(ended, accelerator.MakeEvent());
  }
  return staging;
}

Status Staging::MakeSlots(size_t bytes, Accelerator& accelerator,
                          Slots* slots) {
  for (Slot& slot : *slots) {
    SLUICE_ASSIGN_OR_RETURN(slot.pinned, accelerator.AllocatePinned(bytes));
    if (bytes <= kSmall) continue;
    SLUICE_ASSIGN_OR_RETURN(slot.copied, accelerator.Allocate(bytes));
    SLUICE_ASSIGN_OR_RETURN(slot.handed_over, accelerator.MakeEvent());
  }
  return {};
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

Status Staging::CopyIn(int slot, std::span<void* const> feeds,
                       const StepKey& key) {
  using Queue = Accelerator::Queue;
  const Slot& in = in_[slot];
  std::memcpy(in.pinned.get(), &key, sizeof(key));
  for (size_t i = 0; i < feeds_.bytes.size(); ++i) {
    if (feeds_.bytes[i] == 0) continue;
    CopyOnHost(At(in.pinned, feeds_.offsets[i]), feeds[i], feeds_.bytes[i]);
  }
  if (in.copied == nullptr) {
    return accelerator_.CopyIn(Queue::kCompute, inputs_.get(), in.pinned.get(),
                               feeds_.end);
  }
  SLUICE_RETURN_IF_ERROR(accelerator_.CopyIn(Queue::kCopyIn, in.copied.get(),
                                             in.pinned.get(), feeds_.end));
  SLUICE_RETURN_IF_ERROR(accelerator_.Record(in.handed_over, Queue::kCopyIn));
  SLUICE_RETURN_IF_ERROR(accelerator_.Wait(in.handed_over, Queue::kCompute));
  return accelerator_.CopyWithin(inputs_.get(), in.copied.get(), feeds_.end);
}

Status Staging::CopyOut(int slot) {
  using Queue = Accelerator::Queue;
  const Slot& out = out_[slot];
  Queue queue = Queue::kCompute;
  const void* from = outputs_.get();
  if (out.copied != nullptr) {
    SLUICE_RETURN_IF_ERROR(accelerator_.CopyWithin(
        out.copied.get(), outputs_.get(), fetches_.end));
    SLUICE_RETURN_IF_ERROR(
        accelerator_.Record(out.handed_over, Queue::kCompute));
    SLUICE_RETURN_IF_ERROR(accelerator_.Wait(out.handed_over, Queue::kCopyOut));
    queue = Queue::kCopyOut;
    from = out.copied.get();
  }
  if (fetches_.end > 0) {
    SLUICE_RETURN_IF_ERROR(
        accelerator_.CopyOut(queue, out.pinned.get(), from, fetches_.end));
  }
  return accelerator_.Record(ended_[slot], queue);
}

void Staging::Collect(int slot, std::span<void* const> fetches) const {
  for (size_t i = 0; i < fetches_.bytes.size(); ++i) {
    if (fetches_.bytes[i] == 0) continue;
    CopyOnHost(fetches[i], At(out_[slot].pinned, fetches_.offsets[i]),
               fetches_.bytes[i]);
  }
}

}  // namespace sluice
