#include "engine/runtime/rendezvous.h"

#include <cstring>

#include "engine/pause.h"
#include "engine/tensor.h"

namespace sluice {
namespace {

// About 20 us of polling before a thread goes to sleep: waking one costs 10.
constexpr int kSpins = 2000;

using Clock = std::chrono::steady_clock;

}  // namespace

LocalRendezvous::LocalRendezvous(const std::vector<size_t>& slot_bytes)
    : slots_(slot_bytes.size()) {
  for (size_t i = 0; i < slot_bytes.size(); ++i) {
    slots_[i].bytes = slot_bytes[i];
    slots_[i].buffer = AllocateBuffer(slot_bytes[i]);
  }
}

void LocalRendezvous::Begin(Clock::time_point deadline) {
  for (Slot& slot : slots_) slot.full.store(false, std::memory_order_relaxed);
  deadline_ = deadline;
  MutexLock lock(mutex_);
  abort_status_ = {};
  aborted_.store(false, std::memory_order_release);
}

Status LocalRendezvous::Send(int index, const void* data) {
  Slot& slot = slots_[index];
  if (slot.bytes > 0) std::memcpy(slot.buffer.get(), data, slot.bytes);
  // Sequentially consistent on both sides: either the receiver sees `full`
  // before it sleeps, or we see it among the sleepers.
  slot.full.store(true);
  if (sleepers_.load() > 0) {
    MutexLock lock(mutex_);
    changed_.NotifyAll();
  }
  return {};
}

Status LocalRendezvous::Recv(int index, void* data) {
  Slot& slot = slots_[index];
  for (int spin = 0; spin < kSpins && !Settled(slot); ++spin) {
    Pause();
  }
  if (!Settled(slot)) {
    sleepers_.fetch_add(1);
    MutexLock lock(mutex_);
    while (!slot.full.load() && !aborted_.load()) {
      if (deadline_ == Clock::time_point::max()) {
        changed_.Wait(mutex_);
      } else if (!changed_.WaitUntil(mutex_, deadline_) && !Settled(slot)) {
        sleepers_.fetch_sub(1);
        return DeadlineExceeded("the step's deadline passed in a Recv");
      }
    }
    sleepers_.fetch_sub(1);
  }
  if (!slot.full.load(std::memory_order_acquire)) {
    MutexLock lock(mutex_);
    return abort_status_;
  }
  if (slot.bytes > 0) std::memcpy(data, slot.buffer.get(), slot.bytes);
  return {};
}

void LocalRendezvous::Abort(const Status& status) {
  MutexLock lock(mutex_);
  if (!abort_status_.ok()) return;
  abort_status_ = status;
  aborted_.store(true);
  changed_.NotifyAll();
}

}  // namespace sluice
