#include "engine/runtime/local_exchange.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "engine/pause.h"

namespace sluice {
namespace {

// About 20 us of polling before a thread goes to sleep: waking one costs 10.
constexpr int kSpins = 2000;

void Copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

Status LocalRendezvous::LocalExchange::StartSend(const Edge& edge,
                                                 const DeviceView& from) {
  SLUICE_ASSIGN_OR_RETURN(Slot * slot, SlotOf(edge));
  slot->sent = {edge.sender, edge.bytes};
  if (from.accelerator != nullptr) {
    SLUICE_RETURN_IF_ERROR(Reaches(edge) ? Hold(*slot, edge, from)
                                         : CopyOut(*slot, edge, from));
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

Status LocalRendezvous::LocalExchange::WaitSent(const Edge& edge,
                                                const DeviceView& from) {
  SLUICE_ASSIGN_OR_RETURN(Slot * slot, SlotOf(edge));
  if (from.accelerator == nullptr || !slot->copied_out.set()) return {};
  return from.accelerator->Wait(slot->copied_out.event(),
                                Accelerator::kCompute);
}

Status LocalRendezvous::LocalExchange::StartReceive(const Edge& edge,
                                                    const DeviceView& into) {
  SLUICE_ASSIGN_OR_RETURN(Slot * slot, SlotOf(edge));
  slot->into = into.data;
  if (into.accelerator != nullptr && !Reaches(edge)) {
    SLUICE_RETURN_IF_ERROR(slot->pinned.Reserve(edge.bytes, into.accelerator));
    slot->into = slot->pinned.data();
  }
  slot->wanted = {edge.sender, edge.bytes, edge.some};
  State empty = State::kEmpty;
  slot->state.compare_exchange_strong(empty, State::kWanted);
  return {};
}

Status LocalRendezvous::LocalExchange::WaitReceived(const Edge& edge,
                                                    const DeviceView& into) {
  SLUICE_ASSIGN_OR_RETURN(Slot * slot, SlotOf(edge));
  if (std::exchange(slot->asked, false)) Forget(*slot);
  Status waited = WaitForSender(*slot);
  if (!Arrived(slot->state.load()) && TurnAway(*slot)) return waited;
  if (!slot->wanted.Takes(slot->sent)) {
    return DataLoss(fmt::format(
        "'{}': {} bytes of incarnation {:x} came, wanted {}{} of {:x}",
        edge.name, slot->sent.bytes, slot->sent.sender,
        edge.some ? "at most " : "", edge.bytes, edge.sender));
  }
  if (into.accelerator != nullptr) return CopyIn(*slot, edge, into);
  if (slot->state.load() != State::kBuffered) return {};  // it is there
  if (slot->copied_out.set()) {
    SLUICE_RETURN_IF_ERROR(slot->copied_out.event()->Wait());
  }
  Copy(into.data, slot->buffer.data(), slot->sent.bytes);
  return {};
}

size_t LocalRendezvous::LocalExchange::ReceivedBytes(const Edge& edge) {
  const Result<Slot*> slot = SlotOf(edge);
  return slot.ok() ? (*slot)->sent.bytes : 0;
}

bool LocalRendezvous::LocalExchange::Received(const Edge& edge, Waker& waker) {
  const Result<Slot*> slot = SlotOf(edge);
  return !slot.ok() || Spin(**slot) || PastDeadline() || !Keep(**slot, waker);
}

void LocalRendezvous::LocalExchange::Begin(
    const RunKey& key, std::shared_ptr<const Reached> reached) {
  key_ = key;
  reached_ = std::move(reached);
  parts_ = joined_ = left_ = 0;
  edges_ = -1;
  MutexLock lock(mutex_);
  abort_status_ = {};
  aborted_.store(false);
  while (asking_ != nullptr) Take(asking_);
}

bool LocalRendezvous::LocalExchange::Join(int parts) {
  if (joined_ == 0) parts_ = parts;
  if (parts != parts_ || joined_ == parts_) return false;
  ++joined_;
  return true;
}

bool LocalRendezvous::LocalExchange::Prepare(int edges,
                                             Clock::time_point deadline) {
  MutexLock lock(prepare_mutex_);
  if (edges_ < 0) {
    deadline_ = deadline;
    Clear(edges);
  }
  return edges == edges_;
}

void LocalRendezvous::LocalExchange::Abort(const Status& status) {
  MutexLock lock(mutex_);
  if (!abort_status_.ok()) return;
  abort_status_ = status;
  aborted_.store(true);
  while (asking_ != nullptr) WakeFirst(asking_);
  changed_.NotifyAll();
}

void LocalRendezvous::LocalExchange::Arrive(Slot& slot, State state) {
  slot.state.store(state);
  if (sleepers_.load() > 0) {
    MutexLock lock(mutex_);
    if (Slot** const place = PlaceOf(slot)) WakeFirst(*place);
    changed_.NotifyAll();
  }
}

bool LocalRendezvous::LocalExchange::Keep(Slot& slot, Waker& waker) {
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

void LocalRendezvous::LocalExchange::Forget(Slot& slot) {
  MutexLock lock(mutex_);
  if (Slot** const place = PlaceOf(slot)) Take(*place);
}

auto LocalRendezvous::LocalExchange::PlaceOf(const Slot& slot) -> Slot** {
  Slot** place = &asking_;
  while (*place != nullptr && *place != &slot) place = &(*place)->next_asking;
  return *place == nullptr ? nullptr : place;
}

Waker& LocalRendezvous::LocalExchange::Take(Slot*& place) {
  Slot& slot = *place;
  place = slot.next_asking;
  sleepers_.fetch_sub(1);
  return *std::exchange(slot.waker, nullptr);
}

auto LocalRendezvous::LocalExchange::SlotOf(const Edge& edge) -> Result<Slot*> {
  if (edge.number >= 0 && edge.number < edges_) return &slots_[edge.number];
  return Internal(fmt::format("'{}': there is no edge {} in this run",
                              edge.name, edge.number));
}

bool LocalRendezvous::LocalExchange::MayWrite(Slot& slot) {
  State wanted = State::kWanted;
  return slot.state.load() == wanted && slot.wanted.Takes(slot.sent) &&
         slot.state.compare_exchange_strong(wanted, State::kWriting);
}

bool LocalRendezvous::LocalExchange::Spin(const Slot& slot) const {
  for (int spin = 0; spin < kSpins && !Settled(slot); ++spin) Pause();
  return Settled(slot);
}

Status LocalRendezvous::LocalExchange::WaitForSender(const Slot& slot) {
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

bool LocalRendezvous::LocalExchange::TurnAway(Slot& slot) {
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

Status LocalRendezvous::LocalExchange::CopyOut(Slot& slot, const Edge& edge,
                                               const DeviceView& from) {
  Accelerator& accelerator = *from.accelerator;
  SLUICE_RETURN_IF_ERROR(slot.buffer.Reserve(edge.bytes, &accelerator));
  return CopyOutBeside(accelerator, edge.sender, from.data, edge.bytes,
                       slot.buffer.data(), slot.produced, slot.copied_out);
}

Status LocalRendezvous::LocalExchange::Hold(Slot& slot, const Edge& edge,
                                            const DeviceView& from) {
  Accelerator& accelerator = *from.accelerator;
  SLUICE_RETURN_IF_ERROR(
      slot.held.Reserve(edge.bytes, accelerator, edge.sender));
  slot.holder = &accelerator;
  if (edge.bytes > 0) {
    SLUICE_RETURN_IF_ERROR(
        accelerator.CopyWithin(slot.held.data(), from.data, edge.bytes));
  }
  return slot.copied_out.Record(accelerator, edge.sender,
                                Accelerator::kCompute);
}

Status LocalRendezvous::LocalExchange::CopyIn(Slot& slot, const Edge& edge,
                                              const DeviceView& into) {
  Accelerator& accelerator = *into.accelerator;
  if (slot.copied_out.set()) {  // by an accelerator
    SLUICE_RETURN_IF_ERROR(
        accelerator.Wait(slot.copied_out.event(), Accelerator::kCompute));
  }
  if (edge.bytes > 0) SLUICE_RETURN_IF_ERROR(AddCopyIn(slot, edge, into));
  return slot.copied_in.Record(accelerator, edge.receiver,
                               Accelerator::kCompute);
}

Status LocalRendezvous::LocalExchange::AddCopyIn(Slot& slot, const Edge& edge,
                                                 const DeviceView& into) {
  Accelerator& accelerator = *into.accelerator;
  if (slot.holder != nullptr) {
    return accelerator.CopyFrom(*slot.holder, Accelerator::kCompute, into.data,
                                slot.held.data(), edge.bytes);
  }
  const void* from = slot.pinned.data();
  if (slot.copied_out.set()) {
    from = slot.buffer.data();  // pinned, too
  } else if (slot.state.load() == State::kBuffered) {
    Copy(slot.pinned.data(), slot.buffer.data(), edge.bytes);
  }
  return accelerator.CopyIn(Accelerator::kCompute, into.data, from, edge.bytes);
}

void LocalRendezvous::LocalExchange::WaitForCopies() {
  for (int i = 0; i < capacity_; ++i) {
    slots_[i].produced.Clear();
    slots_[i].copied_out.Clear();
    slots_[i].copied_in.Clear();
  }
}

void LocalRendezvous::LocalExchange::Clear(int edges) {
  WaitForCopies();
  if (edges > capacity_) {
    slots_ = std::make_unique<Slot[]>(edges);
    capacity_ = edges;
  }
  for (int i = 0; i < edges; ++i) {
    slots_[i].sent = slots_[i].wanted = {};
    slots_[i].holder = nullptr;
    slots_[i].state.store(State::kEmpty);
    slots_[i].asked = false;
  }
  edges_ = edges;
}

}  // namespace sluice
