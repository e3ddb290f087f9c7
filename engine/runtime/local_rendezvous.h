// The rendezvous of devices of one process.
#ifndef SLUICE_ENGINE_RUNTIME_LOCAL_RENDEZVOUS_H_
#define SLUICE_ENGINE_RUNTIME_LOCAL_RENDEZVOUS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "engine/runtime/rendezvous.h"
#include "engine/thread_annotations.h"

namespace sluice {

// Between two devices in the host's memory a tensor is copied once if it is
// sent after the receiver has started, else twice; who waits spins for some
// microseconds, then sleeps or, asked by Received, is told to come back.
// Between accelerators of which the receiving one reaches the other a tensor is
// copied to memory of the sending one, since its receiver may not have begun,
// and from there by the receiving one. Otherwise what goes to and from
// accelerators goes by pinned memory. The sending thread waits for nothing, the
// receiving one only for the sender's thread to have come that far and, on the
// host, for the device to have done it, whatever the deadline. Buffers are kept
// for later runs; who joins a run that gets them waits for the copies of the
// one that had them.
class LocalRendezvous final : public Rendezvous {
 public:
  explicit LocalRendezvous(uint64_t epoch = 0);
  ~LocalRendezvous() override;

  bool tells() const override { return true; }
  void AddDevices(std::span<const OwnMemory> devices) override;
  void RemoveDevices(std::span<const OwnMemory> devices) override;
  RunKey NewRun() override;
  Result<Exchange*> Join(const RunKey& run, int edges, int parts,
                         TimePoint deadline) override;
  void Leave(const RunKey& run) override;
  void Abort(const RunKey& run, const Status& status) override;
  void BeginEpoch(uint64_t epoch) override;

 private:
  class LocalExchange;
  // Incarnations: the first reaches the second's memory.
  using Reached = std::set<std::pair<uint64_t, uint64_t>>;
  using Exchanges = std::vector<std::unique_ptr<LocalExchange>>;

  LocalExchange& FindOrBegin(const RunKey& run) REQUIRES(mutex_);
  void End(Exchanges::iterator run) REQUIRES(mutex_);

  Mutex mutex_;
  uint64_t epoch_ GUARDED_BY(mutex_);
  uint64_t last_run_ GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const Reached> reached_ GUARDED_BY(mutex_) =
      std::make_shared<Reached>();
  // Runs that a part has joined or that were aborted, and have not ended.
  Exchanges runs_ GUARDED_BY(mutex_);
  Exchanges spare_ GUARDED_BY(mutex_);  // the longest unused first
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_LOCAL_RENDEZVOUS_H_
