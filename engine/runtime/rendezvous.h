// Where the parts of a step meet: what one sends, another receives, in this
// process or in two.
#ifndef SLUICE_ENGINE_RUNTIME_RENDEZVOUS_H_
#define SLUICE_ENGINE_RUNTIME_RENDEZVOUS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/accelerator.h"
#include "engine/runtime/waker.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Names one run of one step, once and for all.
struct RunKey {
  uint64_t epoch = 0;  // of the cluster's membership
  // Of the epoch, never given again. (The global step is: runs without targets
  // do not advance it, and a restore sets it back.)
  uint64_t run = 0;
  friend bool operator==(const RunKey&, const RunKey&) = default;
};

// A tensor that one part of a step sends to another. With the run's key, the
// number and the sender's incarnation are the key of what is sent.
struct Edge {
  int number = 0;                     // among those of the step
  uint64_t sender = 0, receiver = 0;  // the devices' incarnations
  size_t bytes = 0;
  std::string name;  // the same at both ends
  // The receiver's: `bytes` is what may come at most.
  bool some = false;
  // Of the name, for ends that each have cut the step for itself: what the two
  // compare (HashName of engine/semantics/random.h, the lower half).
  uint32_t mark = 0;
};

// A tensor where it is. On an accelerator it is there when the work is done
// that was added to the compute queue so far; calls with such a view are made
// by the thread that uses the accelerator.
struct DeviceView {
  void* data = nullptr;
  Accelerator* accelerator = nullptr;  // null: the host's memory
};

// A device of this process with memory of its own.
struct OwnMemory {
  uint64_t device = 0;  // its incarnation
  Accelerator* accelerator = nullptr;
};

// One run's sends and receives. Each edge is sent once and received once, by
// any threads; each start that succeeds is followed by its wait, also when the
// run is aborted in between: that ends a wait for what has not come. Whatever a
// wait returns, the view's bytes are the caller's again.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Reads the bytes from now until WaitSent returns. Does not wait for the
  // receiver, which need not have begun.
  virtual Status StartSend(const Edge& edge, const DeviceView& from) = 0;
  virtual Status WaitSent(const Edge& edge, const DeviceView& from) = 0;
  // Writes the bytes, any number of times, from now until WaitReceived returns;
  // then they are what was sent. On an accelerator: for work that is added to
  // the compute queue from then on.
  virtual Status StartReceive(const Edge& edge, const DeviceView& into) = 0;
  // What arrived of another size or sender than the edge's is an error; of an
  // edge of which some may come, what is more.
  virtual Status WaitReceived(const Edge& edge, const DeviceView& into) = 0;
  // What WaitReceived, which was ok, has received. Behind that the view's bytes
  // may have been written to.
  virtual size_t ReceivedBytes(const Edge& edge) { return edge.bytes; }

  // Whether WaitSent and WaitReceived would return without waiting for another
  // part: it has come so far, the run was aborted, the deadline has passed. If
  // not, `waker` is kept, at most one for each, and woken from any thread when
  // one of these is so; for the deadline it need not be. Not when all parts
  // have left the run. May look for some microseconds before it says no.
  virtual bool Sent(const Edge&, Waker&) { return true; }
  virtual bool Received(const Edge&, Waker&) { return true; }
};

// Given to whoever prepares steps. Thread-safe.
class Rendezvous {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  virtual ~Rendezvous() = default;

  // Whether its exchanges say in Sent and Received when a wait would wait.
  // Otherwise each part that may wait needs a thread of its own.
  virtual bool tells() const { return false; }

  // The devices of one session, from before its first run until its last is
  // over: which of them reach each other's memory, so that a sender knows
  // before the receiver has come.
  virtual void AddDevices(std::span<const OwnMemory>) {}
  virtual void RemoveDevices(std::span<const OwnMemory>) {}

  // A key that no other run has, of the present epoch.
  virtual RunKey NewRun() = 0;

  // Each part of a step joins a run before its first send or receive and leaves
  // it after its last wait. What it was sent before that is there. `edges` are
  // those of the whole step, `parts` those of this process. Waits end with an
  // error at `deadline`.
  // A run of another epoch is an error, a run that was aborted is not: its
  // waits are. The exchange stays valid until the part leaves. Work that a
  // device has begun is waited for, whatever the deadline and the abort.
  virtual Result<Exchange*> Join(const RunKey& run, int edges, int parts,
                                 TimePoint deadline) = 0;
  virtual void Leave(const RunKey& run) = 0;

  // Ends all present and coming waits of this run, and of no other, with
  // `status`; the first call counts. May come before any part has joined, but
  // not when all have left.
  virtual void Abort(const RunKey& run, const Status& status) = 0;
  // Aborts all runs of other epochs; only of this one are there new ones.
  virtual void BeginEpoch(uint64_t epoch) = 0;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_RENDEZVOUS_H_
