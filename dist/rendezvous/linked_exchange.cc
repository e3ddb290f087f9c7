// A run's edges: what its parts here send and receive, and what links bring.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dist/rendezvous/linked_run.h"

namespace sluice::dist {
namespace {

constexpr uint64_t kMostEdges = 1 << 20;  // as of StepPart
// Of all runs that others speak of and nobody here has joined.
constexpr size_t kMostEarlyWants = size_t{1} << 20;

}  // namespace

// Holds a slot's place for a link that writes to it.
class LinkedRendezvous::Run::SlotLanding final : public Landing {
 public:
  SlotLanding(Run& run, Slot& slot) : run_(run), slot_(slot) {}
  MutableBytes Hold() override {
    MutexLock lock(run_.mutex_);
    if (!slot_.expects) return {};
    slot_.landing = true;
    return slot_.into;
  }
  void Let() override {
    MutexLock lock(run_.mutex_);
    slot_.landing = false;
    run_.changed_.NotifyAll();
  }

 private:
  Run& run_;
  Slot& slot_;
};

bool LinkedRendezvous::Run::PastDeadline() const {
  return deadline_ != TimePoint::max() &&
         std::chrono::steady_clock::now() >= deadline_;
}

bool LinkedRendezvous::Run::Settled(const Slot& slot) const {
  return slot.arrived || aborted_.load();
}

// What its start has found: a slot's `from` is the starting part's.
bool LinkedRendezvous::Run::IsLocal(const Edge& edge) {
  MutexLock lock(mutex_);
  const Result<Slot*> slot = SlotOf(edge);
  return slot.ok() && (*slot)->from == nullptr && local_ != nullptr;
}

Status LinkedRendezvous::Run::Give(Slot& slot, const Edge& edge) {
  // What was given before is withdrawn by then.
  if (aborted_.load()) return {};
  if (slot.wanted_by->peer() != slot.to->peer() ||
      slot.wanted_of != edge.sender) {
    return DataLoss(fmt::format(
        "'{}': it is for {}, of incarnation {:x}; wanted of {:x}{}", edge.name,
        slot.to->peer(), edge.sender, slot.wanted_of,
        slot.wanted_by->peer() == slot.to->peer() ? "" : " by another task"));
  }
  if (slot.wanted_as != MarkOf(edge)) {
    return Different(*slot.wanted_by,
                     fmt::format("edge {}, '{}' here, is another one there",
                                 edge.number, NodeOf(edge.name)));
  }
  // Two that connect to each other at once have two links, and may each know
  // the other by another one.
  slot.to = slot.wanted_by;
  SLUICE_RETURN_IF_ERROR(Use(slot.to));
  Frame frame = FrameFor(FrameKind::kTensor, edge);
  frame.bytes = edge.bytes;
  const Sending before = std::exchange(slot.sending, Sending::kGiven);
  if (slot.staged != nullptr) {
    slot.to->Post(frame, slot.view, slot.staged);
  } else if (before == Sending::kBuffered) {
    slot.to->Post(frame, std::move(slot.buffer));
  } else {
    slot.to->Send(frame, slot.view, slot.parcel);
  }
  return {};
}

Status LinkedRendezvous::Run::StartSend(const Edge& edge,
                                        const DeviceView& from) {
  std::shared_ptr<Link> link = owner_.LinkTo(edge.receiver);
  if (link == nullptr) {
    if (local_ != nullptr) return local_->StartSend(edge, from);
    return Internal(fmt::format("'{}': no way to incarnation {:x}", edge.name,
                                edge.receiver));
  }
  SLUICE_ASSIGN_OR_RETURN(const DeviceTransfers::BlockPtr staged,
                          Stage(edge, from));
  const void* const data = staged ? staged->memory.data() : from.data;
  {
    MutexLock lock(mutex_);
    SLUICE_ASSIGN_OR_RETURN(Slot * slot, SlotOf(edge));
    SLUICE_RETURN_IF_ERROR(Use(link));
    slot->to = std::move(link);
    slot->view = {static_cast<const std::byte*>(data), edge.bytes};
    slot->staged = staged;
    slot->sending = staged ? Sending::kCopying : Sending::kOffered;
    sends_.push_back(edge);
    if (staged == nullptr) {
      return slot->wanted_by == nullptr ? Status() : Give(*slot, edge);
    }
  }
  return CopyOut(edge, from, staged);
}

Result<DeviceTransfers::BlockPtr> LinkedRendezvous::Run::Stage(
    const Edge& edge, const DeviceView& view) {
  SLUICE_ASSIGN_OR_RETURN(DeviceTransfers* const transfers,
                          owner_.TransfersOf(edge, view));
  if (transfers == nullptr) return DeviceTransfers::BlockPtr();
  return transfers->Take(*view.accelerator, edge.bytes);
}

// One that cannot even be begun has nothing to be sent.
Status LinkedRendezvous::Run::CopyOut(const Edge& edge, const DeviceView& from,
                                      const DeviceTransfers::BlockPtr& staged) {
  SLUICE_ASSIGN_OR_RETURN(DeviceTransfers* const transfers,
                          owner_.TransfersOf(edge, from));
  Status begun = transfers->CopyOut(
      edge, from, staged, [run = shared_from_this(), edge](const Status& done) {
        run->Copied(edge, done);
      });
  if (begun.ok()) return {};
  MutexLock lock(mutex_);
  slots_[edge.number].sending = Sending::kNot;
  return begun;
}

// By the thread that waits for the device.
void LinkedRendezvous::Run::Copied(const Edge& edge, const Status& status) {
  Status given = status;
  {
    MutexLock lock(mutex_);
    Slot& slot = slots_[edge.number];
    slot.sending = Sending::kBuffered;
    if (given.ok() && slot.wanted_by != nullptr && !aborted_.load()) {
      given = Give(slot, edge);
    }
  }
  if (!given.ok()) Abort(given, nullptr);
  owner_.EraseIfOver(shared_from_this());
}

Status LinkedRendezvous::Run::WaitSent(const Edge& edge,
                                       const DeviceView& from) {
  Slot* slot = nullptr;
  {
    MutexLock lock(mutex_);
    SLUICE_ASSIGN_OR_RETURN(Slot * found, SlotOf(edge));
    slot = found;
    if (slot->staged != nullptr) {
      SLUICE_RETURN_IF_ERROR(from.accelerator->Wait(
          slot->staged->copied.event(), Accelerator::kCompute));
      return status_;
    }
    if (slot->to != nullptr && slot->sending == Sending::kOffered) {
      slot->buffer.assign(slot->view.begin(), slot->view.end());
      slot->sending = Sending::kBuffered;
    }
    if (slot->sending == Sending::kBuffered) return status_;
    if (slot->to != nullptr) BeginWait(edge, *slot->to, /*sends=*/true);
  }
  if (slot->to == nullptr) return local_->WaitSent(edge, from);
  const bool sent = slot->to->Settle(slot->parcel, aborted_, deadline_);
  MutexLock lock(mutex_);
  EndWait(edge);
  if (sent || !status_.ok()) return status_;
  return DeadlineExceeded("the step's deadline passed in a send");
}

bool LinkedRendezvous::Run::Sent(const Edge& edge, Waker& waker) {
  MutexLock lock(mutex_);
  const Result<Slot*> slot = SlotOf(edge);
  if (!slot.ok() || (*slot)->to == nullptr) return true;
  if ((*slot)->sending != Sending::kGiven || aborted_.load()) return true;
  if (PastDeadline() || (*slot)->to->Sent((*slot)->parcel, waker)) return true;
  BeginWait(edge, *(*slot)->to, /*sends=*/true);
  return false;
}

Status LinkedRendezvous::Run::StartReceive(const Edge& edge,
                                           const DeviceView& into) {
  const std::shared_ptr<Link> link = owner_.LinkTo(edge.sender);
  if (link == nullptr) {
    if (local_ != nullptr) return local_->StartReceive(edge, into);
    return Internal(fmt::format("'{}': no way to incarnation {:x}", edge.name,
                                edge.sender));
  }
  SLUICE_ASSIGN_OR_RETURN(DeviceTransfers::BlockPtr staged, Stage(edge, into));
  void* const data = staged ? staged->memory.data() : into.data;
  MutexLock lock(mutex_);
  SLUICE_ASSIGN_OR_RETURN(Slot * slot, SlotOf(edge));
  SLUICE_RETURN_IF_ERROR(Use(link));
  if (slot->wanted_by != nullptr) {
    return Different(*slot->wanted_by,
                     fmt::format("edge {}, '{}' here, comes from neither",
                                 edge.number, NodeOf(edge.name)));
  }
  slot->into = {static_cast<std::byte*>(data), edge.bytes};
  slot->staged = std::move(staged);
  slot->from = link.get();
  slot->sender = edge.sender;
  slot->some = edge.some;
  slot->expects = true;
  Frame want = FrameFor(FrameKind::kWant, edge);
  want.rank = MarkOf(edge);
  link->Post(want);
  return {};
}

Status LinkedRendezvous::Run::WaitReceived(const Edge& edge,
                                           const DeviceView& into) {
  if (IsLocal(edge)) return local_->WaitReceived(edge, into);
  SLUICE_RETURN_IF_ERROR(AwaitArrival(edge));
  return into.accelerator == nullptr ? Status() : CopyIn(edge, into);
}

// What the work of the compute queue from now on finds there.
Status LinkedRendezvous::Run::CopyIn(const Edge& edge, const DeviceView& into) {
  SLUICE_ASSIGN_OR_RETURN(DeviceTransfers* const transfers,
                          owner_.TransfersOf(edge, into));
  DeviceTransfers::BlockPtr staged;
  {
    MutexLock lock(mutex_);
    SLUICE_ASSIGN_OR_RETURN(const Slot* slot, SlotOf(edge));
    staged = slot->staged;
  }
  return transfers->CopyIn(edge, into, staged,
                           [run = shared_from_this()](const Status& done) {
                             if (!done.ok()) run->Abort(done, nullptr);
                           });
}

// Nobody writes to the slot's place any more.
Status LinkedRendezvous::Run::AwaitArrival(const Edge& edge) {
  MutexLock lock(mutex_);
  SLUICE_ASSIGN_OR_RETURN(Slot * slot, SlotOf(edge));
  Status status;
  if (!Settled(*slot)) BeginWait(edge, *slot->from, /*sends=*/false);
  while (status.ok() && !Settled(*slot)) {
    if (deadline_ == TimePoint::max()) {
      changed_.Wait(mutex_);
    } else if (!changed_.WaitUntil(mutex_, deadline_) && !Settled(*slot)) {
      status = DeadlineExceeded("the step's deadline passed in a receive");
    }
  }
  EndWait(edge);
  slot->waker = nullptr;
  slot->expects = false;
  while (slot->landing) changed_.Wait(mutex_);
  if (slot->arrived) return slot->error;
  return status.ok() ? status_ : status;
}

size_t LinkedRendezvous::Run::ReceivedBytes(const Edge& edge) {
  if (IsLocal(edge)) return local_->ReceivedBytes(edge);
  MutexLock lock(mutex_);
  const Result<Slot*> slot = SlotOf(edge);
  return slot.ok() ? (*slot)->into.size() : 0;
}

bool LinkedRendezvous::Run::Received(const Edge& edge, Waker& waker) {
  if (IsLocal(edge)) return local_->Received(edge, waker);
  MutexLock lock(mutex_);
  const Result<Slot*> slot = SlotOf(edge);
  if (!slot.ok()) return true;
  if (Settled(**slot) || PastDeadline()) return true;
  BeginWait(edge, *(*slot)->from, /*sends=*/false);
  (*slot)->waker = &waker;
  return false;
}

Status LinkedRendezvous::Run::WantedEarly(Link& link, const Frame& frame) {
  const auto [want, added] = early_.try_emplace(frame.count);
  want->second = {link.shared_from_this(), frame.key, frame.rank};
  if (!added || early_wants_->fetch_add(1) < kMostEarlyWants) return {};
  ForgetEarly();
  return ResourceExhausted(
      fmt::format("{} wants {} edges and more of runs that have not begun",
                  link.peer(), kMostEarlyWants));
}

Status LinkedRendezvous::Run::Wanted(Link& link, const Frame& frame) {
  MutexLock lock(mutex_);
  if (frame.count >= kMostEdges) {
    return DataLoss(fmt::format("{} wants edge {}, which no step has",
                                link.peer(), frame.count));
  }
  if (joined_ == 0) return WantedEarly(link, frame);
  Slot* const slot = SlotOf(frame.count);
  if (slot == nullptr) {
    return Different(
        link, fmt::format("edge {} is wanted of {} here", frame.count, edges_));
  }
  if (slot->from != nullptr) {
    return Different(link,
                     fmt::format("edge {} comes from neither", frame.count));
  }
  if (slot->sending == Sending::kGiven) return {};
  slot->wanted_by = link.shared_from_this();
  slot->wanted_of = frame.key;
  slot->wanted_as = frame.rank;
  if (slot->sending == Sending::kNot || slot->sending == Sending::kCopying) {
    return {};
  }
  for (const Edge& edge : sends_) {
    if (static_cast<uint64_t>(edge.number) == frame.count) {
      return Give(*slot, edge);
    }
  }
  return {};
}

Status LinkedRendezvous::Run::Arrive(Link& link, const Frame& frame) {
  Slot* slot = nullptr;
  {
    MutexLock lock(mutex_);
    slot = SlotOf(frame.count);
    if (slot != nullptr && (!slot->expects || slot->from != &link)) {
      slot = nullptr;
    }
    const bool fits = slot != nullptr && frame.key == slot->sender &&
                      (slot->some ? frame.bytes <= slot->into.size()
                                  : frame.bytes == slot->into.size());
    if (fits) slot->into = slot->into.first(frame.bytes);
    if (slot != nullptr && !fits) {
      slot->error = DataLoss(fmt::format(
          "edge {}: {} has sent {} bytes of incarnation {:x}, "
          "wanted {}{} of {:x}",
          frame.count, link.peer(), frame.bytes, frame.key,
          slot->some ? "at most " : "", slot->into.size(), slot->sender));
      slot->arrived = true;
      slot->expects = false;
      Wake(*slot);
      changed_.NotifyAll();
      slot = nullptr;
    }
  }
  // Nobody waits for it any more.
  if (slot == nullptr) return link.Drop(frame.bytes);
  SlotLanding landing(*this, *slot);
  SLUICE_RETURN_IF_ERROR(link.Receive(frame.bytes, landing));
  MutexLock lock(mutex_);
  if (!slot->expects) return {};
  slot->arrived = true;
  slot->expects = false;
  Wake(*slot);
  changed_.NotifyAll();
  return {};
}

}  // namespace sluice::dist
