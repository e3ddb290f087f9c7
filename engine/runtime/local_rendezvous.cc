#include "engine/runtime/local_rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/pause.h"
#include "engine/runtime/exchange_buffers.h"

namespace sluice {
namespace {

// About 20 us of polling before a thread goes to sleep: waking one costs 10.
constexpr int kSpins = 2000;
// Exchanges kept for coming runs. As long as there are fewer than kAhead, a new
// one is made: the copies of the last runs may be under way.
constexpr size_t kSpare = 8;
constexpr size_t kAhead = 2;

using Clock = std::chrono::steady_clock;

void Copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

// One run. Per edge the sender and the receiver agree by `state`: whoever comes
// second sees what the first has left.
class LocalRendezvous::LocalExchange final : public Exchange {
 public:
  ~LocalExchange() override { WaitForCopies(); }

  Status StartSend(const Edge& edge, const DeviceView& from) override {
    SLUICE_ASSIGN_OR_RETURN(Slot * slot, SlotOf(edge));
    slot->sent = {edge.sender, edge.bytes};
    if (from.accelerator != nullptr) {
      SLUICE_RETURN_IF_ERROR(CopyOut(*slot, edge, from));
    } else if (MayWrite(*slot)) {
      Copy(slot->into, from.data, edge.bytes);
      Arrive(*slot, State::kWritten);
      return {};
    } else {
      SLUICE_RETURN_IF_ERROR(slot->buffer.Reserve(edge.bytes, nullptr));
      Copy(slot->buffer.data(), from.data, edge.bytes);
    }
    Arrive(*slot, State::kBuffered);
    return {};
  }

  Status WaitSent(const Edge& edge, const DeviceView& from) override {
    SLUICE_ASSIGN_OR_RETURN(Slot * slot, SlotOf(edge));
    if (from.accelerator == nullptr || !slot->copied_out.set()) return {};
    return from.accelerator->Wait(slot->copied_out.event(),
                                  Accelerator::kCompute);
  }

  Status StartReceive(const Edge& edge, const DeviceView& into) override {
    SLUICE_ASSIGN_OR_RETURN(Slot * slot, SlotOf(edge));
    slot->into = into.data;
    if (into.accelerator != nullptr) {
      SLUICE_RETURN_IF_ERROR(
          slot->pinned.Reserve(edge.bytes, into.accelerator));
      slot->into = slot->pinned.data();
    }
    slot->wanted = {edge.sender, edge.bytes};
    State empty = State::kEmpty;
    slot->state.compare_exchange_strong(empty, State::kWanted);
    return {};
  }

  Status WaitReceived(const Edge& edge, const DeviceView& into) override {
    SLUICE_ASSIGN_OR_RETURN(Slot * slot, SlotOf(edge));
    if (std::exchange(slot->asked, false)) Forget(*slot);
    Status waited = WaitForSender(*slot);
    if (!Arrived(slot->state.load()) && TurnAway(*slot)) return waited;
    if (slot->sent != slot->wanted) {
      return DataLoss(fmt::format(
          "'{}': {} bytes of incarnation {:x} came, wanted {} of {:x}",
          edge.name, slot->sent.bytes, slot->sent.sender, edge.bytes,
          edge.sender));
    }
    if (into.accelerator != nullptr) return CopyIn(*slot, edge, into);
    if (slot->state.load() != State::kBuffered) return {};  // it is there
    if (slot->copied_out.set()) {
      SLUICE_RETURN_IF_ERROR(slot->copied_out.event()->Wait());
    }
    Copy(into.data, slot->buffer.data(), edge.bytes);
    return {};
  }

  bool Received(const Edge& edge, Waker& waker) override {
    const Result<Slot*> slot = SlotOf(edge);
    return !slot.ok() || Spin(**slot) || PastDeadline() || !Keep(**slot, waker);
  }

  // --- For LocalRendezvous, under its lock -----------------------------------

  const RunKey& key() const { return key_; }
  void Begin(const RunKey& key) {
    key_ = key;
    parts_ = joined_ = left_ = 0;
    edges_ = -1;
    MutexLock lock(mutex_);
    abort_status_ = {};
    aborted_.store(false);
    while (asking_ != nullptr) Take(asking_);
  }
  // False when others of the run speak of another step.
  bool Join(int parts) {
    if (joined_ == 0) parts_ = parts;
    if (parts != parts_ || joined_ == parts_) return false;
    ++joined_;
    return true;
  }
  bool anyone() const { return joined_ > left_; }
  bool Leave() { return ++left_ == parts_; }  // whether it was the last

  // --- For LocalRendezvous, without its lock ---------------------------------

  // By each part that has joined.
  bool Prepare(int edges, Clock::time_point deadline) {
    MutexLock lock(prepare_mutex_);
    if (edges_ < 0) {
      deadline_ = deadline;
      Clear(edges);
    }
    return edges == edges_;
  }

  void Abort(const Status& status) {
    MutexLock lock(mutex_);
    if (!abort_status_.ok()) return;
    abort_status_ = status;
    aborted_.store(true);
    while (asking_ != nullptr) WakeFirst(asking_);
    changed_.NotifyAll();
  }

 private:
  enum class State : uint8_t {
    kEmpty,
    kWanted,    // the receiver has said where it wants it
    kWriting,   // the sender writes there
    kWritten,   // it is there
    kBuffered,  // it is in `buffer`
    kGone,      // the receiver has stopped waiting
  };
  static bool Arrived(State state) {
    return state == State::kWritten || state == State::kBuffered;
  }
  struct Parcel {
    uint64_t sender = 0;
    size_t bytes = 0;
    friend bool operator==(const Parcel&, const Parcel&) = default;
  };
  struct Slot {
    std::atomic<State> state{State::kEmpty};
    // The sender's. Read by the receiver when it has arrived.
    Parcel sent;
    TransferBlock buffer;
    TransferMark produced, copied_out;  // from an accelerator
    // The receiver's. Read by the sender when it is wanted.
    Parcel wanted;
    void* into = nullptr;
    TransferBlock pinned;    // on the way to an accelerator
    TransferMark copied_in;  // from `buffer` or `pinned`
    bool asked = false;      // Received has kept a waker
    // Under mutex_: whom to wake, and the next of those that have one.
    Waker* waker = nullptr;
    Slot* next_asking = nullptr;
  };

  // What arrives can be seen by those that look and wakes those that sleep.
  // Sequentially consistent on both sides: either the receiver sees it before
  // it sleeps, or the sender sees that there are sleepers.
  void Arrive(Slot& slot, State state) {
    slot.state.store(state);
    if (sleepers_.load() > 0) {
      MutexLock lock(mutex_);
      if (Slot** const place = PlaceOf(slot)) WakeFirst(*place);
      changed_.NotifyAll();
    }
  }

  // Keeps the waker, unless it is settled: as if its owner slept. Once it is
  // woken nothing of its owner's is touched, since that takes the mutex.
  bool Keep(Slot& slot, Waker& waker) {
    sleepers_.fetch_add(1);
    MutexLock lock(mutex_);
    const bool settled = Settled(slot);
    if (slot.waker != nullptr || settled) sleepers_.fetch_sub(1);
    if (settled) return false;
    if (slot.waker == nullptr) {
      slot.next_asking = asking_;
      asking_ = &slot;
    }
    slot.waker = &waker;
    slot.asked = true;
    return true;
  }

  void Forget(Slot& slot) {
    MutexLock lock(mutex_);
    if (Slot** const place = PlaceOf(slot)) Take(*place);
  }

  // Where the list of those that ask has this one; null where it has not. There
  // are at most as many as parts.
  Slot** PlaceOf(const Slot& slot) REQUIRES(mutex_) {
    Slot** place = &asking_;
    while (*place != nullptr && *place != &slot) place = &(*place)->next_asking;
    return *place == nullptr ? nullptr : place;
  }

  Waker& Take(Slot*& place) REQUIRES(mutex_) {
    Slot& slot = *place;
    place = slot.next_asking;
    sleepers_.fetch_sub(1);
    return *std::exchange(slot.waker, nullptr);
  }

  void WakeFirst(Slot*& place) REQUIRES(mutex_) { Take(place).Wake(); }

  Result<Slot*> SlotOf(const Edge& edge) {
    if (edge.number >= 0 && edge.number < edges_) return &slots_[edge.number];
    return Internal(fmt::format("'{}': there is no edge {} in this run",
                                edge.name, edge.number));
  }

  // Whether the receiver has a place for just this, to which nobody else
  // writes.
  static bool MayWrite(Slot& slot) {
    State wanted = State::kWanted;
    return slot.state.load() == wanted && slot.wanted == slot.sent &&
           slot.state.compare_exchange_strong(wanted, State::kWriting);
  }

  bool Settled(const Slot& slot) const {
    return Arrived(slot.state.load()) || aborted_.load();
  }

  bool PastDeadline() const {
    return deadline_ != Clock::time_point::max() && Clock::now() >= deadline_;
  }

  // Whether it is settled, within some microseconds.
  bool Spin(const Slot& slot) const {
    for (int spin = 0; spin < kSpins && !Settled(slot); ++spin) Pause();
    return Settled(slot);
  }

  Status WaitForSender(const Slot& slot) {
    Spin(slot);
    if (Arrived(slot.state.load())) return {};
    Status status;
    sleepers_.fetch_add(1);
    MutexLock lock(mutex_);
    while (status.ok() && !Settled(slot)) {
      if (deadline_ == Clock::time_point::max()) {
        changed_.Wait(mutex_);
      } else if (!changed_.WaitUntil(mutex_, deadline_) && !Settled(slot)) {
        status = DeadlineExceeded("the step's deadline passed in a receive");
      }
    }
    sleepers_.fetch_sub(1);
    return status.ok() ? abort_status_ : status;
  }

  // The receiver waits no longer: nobody shall write to its memory. False when
  // it has come after all.
  static bool TurnAway(Slot& slot) {
    State seen = slot.state.load();
    while (!Arrived(seen)) {
      if (seen == State::kWriting) {
        Pause();
        seen = slot.state.load();
      } else if (slot.state.compare_exchange_strong(seen, State::kGone)) {
        return true;
      }
    }
    return false;
  }

  // Into pinned memory, beside what the compute queue does meanwhile.
  static Status CopyOut(Slot& slot, const Edge& edge, const DeviceView& from) {
    Accelerator& accelerator = *from.accelerator;
    SLUICE_RETURN_IF_ERROR(slot.buffer.Reserve(edge.bytes, &accelerator));
    SLUICE_RETURN_IF_ERROR(
        slot.produced.Record(accelerator, edge.sender, Accelerator::kCompute));
    SLUICE_RETURN_IF_ERROR(
        accelerator.Wait(slot.produced.event(), Accelerator::kCopyOut));
    if (edge.bytes > 0) {
      SLUICE_RETURN_IF_ERROR(accelerator.CopyOut(
          Accelerator::kCopyOut, slot.buffer.data(), from.data, edge.bytes));
    }
    return slot.copied_out.Record(accelerator, edge.sender,
                                  Accelerator::kCopyOut);
  }

  static Status CopyIn(Slot& slot, const Edge& edge, const DeviceView& into) {
    Accelerator& accelerator = *into.accelerator;
    const void* from = slot.pinned.data();
    if (slot.copied_out.set()) {  // by an accelerator, into pinned memory
      SLUICE_RETURN_IF_ERROR(
          accelerator.Wait(slot.copied_out.event(), Accelerator::kCompute));
      from = slot.buffer.data();
    } else if (slot.state.load() == State::kBuffered) {
      Copy(slot.pinned.data(), slot.buffer.data(), edge.bytes);
    }
    if (edge.bytes > 0) {
      SLUICE_RETURN_IF_ERROR(accelerator.CopyIn(Accelerator::kCompute,
                                                into.data, from, edge.bytes));
    }
    return slot.copied_in.Record(accelerator, edge.receiver,
                                 Accelerator::kCompute);
  }

  // Those of the last run. Nobody is in a run.
  void WaitForCopies() {
    for (int i = 0; i < capacity_; ++i) {
      slots_[i].produced.Clear();
      slots_[i].copied_out.Clear();
      slots_[i].copied_in.Clear();
    }
  }

  // Empty slots.
  void Clear(int edges) REQUIRES(prepare_mutex_) {
    WaitForCopies();
    if (edges > capacity_) {
      slots_ = std::make_unique<Slot[]>(edges);
      capacity_ = edges;
    }
    for (int i = 0; i < edges; ++i) {
      slots_[i].sent = slots_[i].wanted = {};
      slots_[i].state.store(State::kEmpty);
      slots_[i].asked = false;
    }
    edges_ = edges;
  }

  RunKey key_;
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

LocalRendezvous::LocalRendezvous(uint64_t epoch) : epoch_(epoch) {}
LocalRendezvous::~LocalRendezvous() = default;

RunKey LocalRendezvous::NewRun() {
  MutexLock lock(mutex_);
  return {epoch_, ++last_run_};
}

LocalRendezvous::LocalExchange& LocalRendezvous::FindOrBegin(
    const RunKey& run) {
  for (const auto& exchange : runs_) {
    if (exchange->key() == run) return *exchange;
  }
  if (spare_.size() < kAhead) {
    runs_.push_back(std::make_unique<LocalExchange>());
  } else {
    runs_.push_back(std::move(spare_.front()));
    spare_.erase(spare_.begin());
  }
  runs_.back()->Begin(run);
  return *runs_.back();
}

void LocalRendezvous::End(Exchanges::iterator run) {
  if (spare_.size() < kSpare) spare_.push_back(std::move(*run));
  runs_.erase(run);
}

Result<Exchange*> LocalRendezvous::Join(const RunKey& run, int edges, int parts,
                                        TimePoint deadline) {
  LocalExchange* exchange = nullptr;
  {
    MutexLock lock(mutex_);
    if (run.epoch != epoch_) {
      return FailedPrecondition(fmt::format("run {} is of epoch {}, now is {}",
                                            run.run, run.epoch, epoch_));
    }
    exchange = &FindOrBegin(run);
    if (!exchange->Join(parts)) exchange = nullptr;
  }
  if (exchange != nullptr && exchange->Prepare(edges, deadline)) {
    return exchange;
  }
  if (exchange != nullptr) Leave(run);
  return Internal(fmt::format("run {} was joined for another step", run.run));
}

void LocalRendezvous::Leave(const RunKey& run) {
  MutexLock lock(mutex_);
  for (auto it = runs_.begin(); it != runs_.end(); ++it) {
    if (!((*it)->key() == run)) continue;
    const bool last = (*it)->Leave();
    // Of an epoch that is over nobody else will join.
    const bool over = run.epoch != epoch_ && !(*it)->anyone();
    if (last || over) End(it);
    return;
  }
}

void LocalRendezvous::Abort(const RunKey& run, const Status& status) {
  MutexLock lock(mutex_);
  if (run.epoch == epoch_) FindOrBegin(run).Abort(status);
}

void LocalRendezvous::BeginEpoch(uint64_t epoch) {
  MutexLock lock(mutex_);
  epoch_ = epoch;
  for (size_t i = runs_.size(); i-- > 0;) {
    LocalExchange& exchange = *runs_[i];
    if (exchange.key().epoch == epoch) continue;
    exchange.Abort(Cancelled(fmt::format("epoch {} has begun", epoch)));
    // Nobody will join it any more.
    if (!exchange.anyone()) End(runs_.begin() + static_cast<int64_t>(i));
  }
}

}  // namespace sluice
