// Where the parts of a step meet: tensors that one part sends, another
// receives, in this process or in two.
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
  // The run's number within the epoch, never reused. (The global step is: runs
  // that update nothing do not advance it, and a restore sets it back.)
  uint64_t run = 0;
  friend bool operator==(const RunKey&, const RunKey&) = default;
};

// A tensor that one part of a step sends to another. A message's key is the
// run's key, the edge's number and the sender's incarnation.
struct Edge {
  int number = 0;                     // among those of the step
  uint64_t sender = 0, receiver = 0;  // the devices' incarnations
  size_t bytes = 0;
  std::string name;  // the same at both ends
  // Of a receiver's edge: `bytes` is the most that may arrive.
  bool some = false;
  // The lower half of the name's HashName (engine/semantics/random.h), which
  // the two ends compare where each has cut the step for itself.
  uint32_t mark = 0;
};

// A tensor's bytes on a device. On an accelerator they are valid once the work
// added to its compute queue so far is done; calls with such a view are made by
// the thread that uses the accelerator.
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
// any threads. Each start that succeeds must be followed by its wait, also when
// the run is aborted in between, which ends a wait for what has not arrived.
// Whatever a wait returns, the view's bytes are the caller's again.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Reads the bytes from now until WaitSent returns. Does not wait for the
  // receiver, which need not have begun.
  virtual Status StartSend(const Edge& edge, const DeviceView& from) = 0;
  virtual Status WaitSent(const Edge& edge, const DeviceView& from) = 0;
  // Writes the bytes, any number of times, from now until WaitReceived returns;
  // they are then what was sent. On an accelerator they are so for work that is
  // added to the compute queue after WaitReceived.
  virtual Status StartReceive(const Edge& edge, const DeviceView& into) = 0;
  // Returns an error if what arrived has another sender or size than the edge;
  // with Edge::some a smaller size is none.
  virtual Status WaitReceived(const Edge& edge, const DeviceView& into) = 0;
  // The number of bytes received, after a WaitReceived that was ok. The view's
  // bytes behind them may have been written to.
  virtual size_t ReceivedBytes(const Edge& edge) { return edge.bytes; }

  // Whether WaitSent and WaitReceived would return without waiting for another
  // part: because that part has come so far, the run was aborted or the
  // deadline has passed. If not, `waker` is kept, at most one for each, and
  // woken from any thread when one of these is so; for the deadline it need not
  // be, and once all parts have left the run it is not. May poll for some
  // microseconds before returning false.
  virtual bool Sent(const Edge&, Waker&) { return true; }
  virtual bool Received(const Edge&, Waker&) { return true; }
};

// Given to whoever prepares steps. Thread-safe.
class Rendezvous {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  virtual ~Rendezvous() = default;

  // Whether the exchanges' Sent and Received tell when a wait would block.
  // Otherwise each part that may wait needs a thread of its own.
  virtual bool tells() const { return false; }

  // Registers the devices of one session, from before its first run until its
  // last is over, so that a sender knows which of them reach each other's
  // memory before the receiver has come.
  virtual void AddDevices(std::span<const OwnMemory>) {}
  virtual void RemoveDevices(std::span<const OwnMemory>) {}

  // A key of the present epoch that no other run has.
  virtual RunKey NewRun() = 0;

  // Each part of a step joins a run before its first send or receive and leaves
  // it after its last wait. Tensors sent to the part before it joined are kept
  // for it. `edges` is the number in the whole step, `parts` that in this
  // process. Waits end with an error at `deadline`.
  // Joining a run of another epoch is an error. Joining an aborted run is not,
  // but its waits return the error. The exchange stays valid until the part
  // leaves. Work that a device has begun is waited for in spite of the deadline
  // or an abort.
  virtual Result<Exchange*> Join(const RunKey& run, int edges, int parts,
                                 TimePoint deadline) = 0;
  virtual void Leave(const RunKey& run) = 0;

  // Ends all present and future waits of this run, and of no other, with
  // `status`; the first call counts. May be called before any part has joined,
  // but not when all have left.
  virtual void Abort(const RunKey& run, const Status& status) = 0;
  // Begins an epoch: aborts the runs of all others; new runs are of this one.
  virtual void BeginEpoch(uint64_t epoch) = 0;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_RENDEZVOUS_H_
