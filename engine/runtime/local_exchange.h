// One run of a LocalRendezvous.
#ifndef SLUICE_ENGINE_RUNTIME_LOCAL_EXCHANGE_H_
#define SLUICE_ENGINE_RUNTIME_LOCAL_EXCHANGE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/runtime/exchange_buffers.h"
#include "engine/runtime/local_rendezvous.h"
#include "engine/thread_annotations.h"

namespace sluice {

// Per edge the sender and the receiver agree by `state`: whoever comes second
// sees what the first has left.
class LocalRendezvous::LocalExchange final : public Exchange {
 public:
  using Clock = std::chrono::steady_clock;

  ~LocalExchange() override { WaitForCopies(); }

  Status StartSend(const Edge& edge, const DeviceView& from) override;
  Status WaitSent(const Edge& edge, const DeviceView& from) override;
  Status StartReceive(const Edge& edge, const DeviceView& into) override;
  Status WaitReceived(const Edge& edge, const DeviceView& into) override;
  size_t ReceivedBytes(const Edge& edge) override;
  bool Received(const Edge& edge, Waker& waker) override;

  // --- For LocalRendezvous, under its lock -----------------------------------

  const RunKey& key() const { return key_; }
  void Begin(const RunKey& key, std::shared_ptr<const Reached> reached);
  // False when others of the run speak of another step.
  bool Join(int parts);
  bool anyone() const { return joined_ > left_; }
  bool Leave() { return ++left_ == parts_; }  // whether it was the last

  // --- For LocalRendezvous, without its lock ---------------------------------

  // To be called by each part that has joined.
  bool Prepare(int edges, Clock::time_point deadline);
  void Abort(const Status& status);

 private:
  enum class State : uint8_t {
    kEmpty,
    kWanted,    // the receiver has said where it wants it
    kWriting,   // the sender writes there
    kWritten,   // it is there
    kBuffered,  // it is in `buffer`, or in `held`
    kGone,      // the receiver has stopped waiting
  };
  static bool Arrived(State state) {
    return state == State::kWritten || state == State::kBuffered;
  }
  struct Parcel {
    uint64_t sender = 0;
    size_t bytes = 0;
    bool some = false;  // on the receiver's parcel: at most `bytes`
    // On the receiver's parcel: whether it accepts the one `sent`.
    bool Takes(const Parcel& sent) const {
      return sent.sender == sender &&
             (some ? sent.bytes <= bytes : sent.bytes == bytes);
    }
  };
  struct Slot {
    std::atomic<State> state{State::kEmpty};
    // Written by the sender; read by the receiver when the tensor has arrived.
    Parcel sent;
    TransferBlock buffer;
    // On the sending accelerator, where that is one which the receiver reaches.
    DeviceBlock held;
    Accelerator* holder = nullptr;
    TransferMark produced, copied_out;  // from an accelerator
    // Written by the receiver; read by the sender when the state is kWanted.
    Parcel wanted;
    void* into = nullptr;
    TransferBlock pinned;    // on the way to an accelerator
    TransferMark copied_in;  // from one of these
    bool asked = false;      // Received has kept a waker
    // Under mutex_: whom to wake, and the next of those that have one.
    Waker* waker = nullptr;
    Slot* next_asking = nullptr;
  };

  // Publishes that a tensor has arrived and wakes receivers that sleep.
  // Sequentially consistent on both sides: either the receiver sees it before
  // it sleeps, or the sender sees that there are sleepers.
  void Arrive(Slot& slot, State state);

  // Keeps the waker, unless it is settled: as if its owner slept. Once it is
  // woken nothing of its owner's is touched, since that takes the mutex.
  bool Keep(Slot& slot, Waker& waker);
  void Forget(Slot& slot);

  // The place of `slot` in the list of slots with a waker; null if it has none.
  // The list has at most as many elements as there are parts.
  Slot** PlaceOf(const Slot& slot) REQUIRES(mutex_);
  Waker& Take(Slot*& place) REQUIRES(mutex_);
  void WakeFirst(Slot*& place) REQUIRES(mutex_) { Take(place).Wake(); }

  Result<Slot*> SlotOf(const Edge& edge);

  // Whether the sender may write to the receiver's memory: the receiver wants
  // just this tensor, and nobody else writes there.
  static bool MayWrite(Slot& slot);

  bool Settled(const Slot& slot) const {
    return Arrived(slot.state.load()) || aborted_.load();
  }

  bool PastDeadline() const {
    return deadline_ != Clock::time_point::max() && Clock::now() >= deadline_;
  }

  // Spins for some microseconds until the slot is settled; returns whether it
  // is.
  bool Spin(const Slot& slot) const;

  Status WaitForSender(const Slot& slot);

  // Ends the receiver's wait, so that nobody writes to its memory any more.
  // Returns false if the tensor has arrived after all.
  static bool TurnAway(Slot& slot);

  bool Reaches(const Edge& edge) const {
    return reached_->count({edge.receiver, edge.sender}) > 0;
  }

  // Copies into memory of the sending accelerator, by its compute queue.
  static Status Hold(Slot& slot, const Edge& edge, const DeviceView& from);
  // Copies into pinned memory, while the compute queue goes on.
  static Status CopyOut(Slot& slot, const Edge& edge, const DeviceView& from);
  static Status CopyIn(Slot& slot, const Edge& edge, const DeviceView& into);
  // Adds the copy to the receiver's compute queue.
  static Status AddCopyIn(Slot& slot, const Edge& edge, const DeviceView& into);

  // Waits for the copies of the last run. No part may be in a run.
  void WaitForCopies();

  // Empties the slots, of which it makes at least `edges`.
  void Clear(int edges) REQUIRES(prepare_mutex_);

  RunKey key_;
  std::shared_ptr<const Reached> reached_;
  int parts_ = 0, joined_ = 0, left_ = 0;  // under the rendezvous's lock
  // Set by the first part that is prepared, then fixed.
  Mutex prepare_mutex_;
  std::unique_ptr<Slot[]> slots_;
  int capacity_ = 0;
  int edges_ = -1;  // before any part is prepared
  Clock::time_point deadline_ = Clock::time_point::max();

  std::atomic<bool> aborted_{false};
  std::atomic<int> sleepers_{0};  // and those that ask
  Mutex mutex_;
  CondVar changed_;
  Slot* asking_ GUARDED_BY(mutex_) = nullptr;
  Status abort_status_ GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_LOCAL_EXCHANGE_H_
