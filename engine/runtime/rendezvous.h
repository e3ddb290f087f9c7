// Where a Send meets its Recv within one step.
#ifndef SLUICE_ENGINE_RUNTIME_RENDEZVOUS_H_
#define SLUICE_ENGINE_RUNTIME_RENDEZVOUS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/status.h"
#include "engine/thread_annotations.h"

namespace sluice {

// Keys are resolved to slots when Plans are made, so a step looks nothing up.
// Each slot passes one tensor per step, of a size fixed beforehand. Send and
// Recv may be called from any threads, each once per slot and step.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  // Copies the tensor out of `data`, which may be reused on return.
  virtual Status Send(int slot, const void* data) = 0;
  // Waits for the Send, then copies the tensor to `data`. Returns the abort's
  // status when the step is aborted first.
  virtual Status Recv(int slot, void* data) = 0;

  // Begins a step: forgets the last one's tensors and abort. No Send or Recv
  // may be running.
  virtual void Begin(std::chrono::steady_clock::time_point deadline) = 0;
  // Ends all waiting and coming Recvs of this step with `status`; the first
  // call counts.
  virtual void Abort(const Status& status) = 0;
};

// For devices of one process. Waiting spins for some microseconds, then sleeps.
class LocalRendezvous final : public Rendezvous {
 public:
  explicit LocalRendezvous(const std::vector<size_t>& slot_bytes);

  Status Send(int slot, const void* data) override;
  Status Recv(int slot, void* data) override;
  void Begin(std::chrono::steady_clock::time_point deadline) override;
  void Abort(const Status& status) override;

 private:
  struct Slot {
    size_t bytes = 0;
    std::shared_ptr<void> buffer;
    std::atomic<bool> full{false};
  };
  bool Settled(const Slot& slot) const {
    return slot.full.load(std::memory_order_acquire) ||
           aborted_.load(std::memory_order_acquire);
  }

  std::vector<Slot> slots_;
  std::atomic<bool> aborted_{false};
  std::chrono::steady_clock::time_point deadline_;
  std::atomic<int> sleepers_{0};
  Mutex mutex_;
  CondVar changed_;
  Status abort_status_ GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_RENDEZVOUS_H_
