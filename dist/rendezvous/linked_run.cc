#include "dist/rendezvous/linked_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sluice::dist {
namespace {

constexpr uint64_t kMostEdges = 1 << 20;  // as of StepPart

Status HostOnly(const Edge& edge) {
  return Unimplemented(fmt::format(
      "'{}': between tasks tensors go from and to the host's memory only",
      edge.name));
}

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

LinkedRendezvous::Run::Slot* LinkedRendezvous::Run::SlotOf(uint64_t number) {
  return number < static_cast<uint64_t>(edges_) ? &slots_[number] : nullptr;
}

Result<LinkedRendezvous::Run::Slot*> LinkedRendezvous::Run::SlotOf(
    const Edge& edge) {
  if (Slot* const slot = SlotOf(static_cast<uint64_t>(edge.number))) {
    return slot;
  }
  return Internal(fmt::format("'{}': there is no edge {} in this run",
                              edge.name, edge.number));
}

Frame LinkedRendezvous::Run::FrameFor(FrameKind kind, const Edge& edge) const {
  Frame frame;
  frame.kind = kind;
  frame.epoch = static_cast<uint32_t>(key_.epoch);
  frame.run = key_.run;
  frame.key = edge.sender;
  frame.count = static_cast<uint64_t>(edge.number);
  return frame;
}

// First noted, then looked at: one that ends in between aborts the run.
Status LinkedRendezvous::Run::Use(const std::shared_ptr<Link>& link) {
  if (std::find(used_.begin(), used_.end(), link) == used_.end()) {
    used_.push_back(link);
  }
  return link->status();
}

bool LinkedRendezvous::Run::PastDeadline() const {
  return deadline_ != TimePoint::max() &&
         std::chrono::steady_clock::now() >= deadline_;
}

bool LinkedRendezvous::Run::Settled(const Slot& slot) const {
  return slot.arrived || aborted_.load();
}

void LinkedRendezvous::Run::Wake(Slot& slot) {
  if (slot.waker != nullptr) std::exchange(slot.waker, nullptr)->Wake();
}

Status LinkedRendezvous::Run::Join(int edges, int parts, TimePoint deadline) {
  MutexLock lock(mutex_);
  if (joined_ == 0) {
    parts_ = parts;
    edges_ = edges;
    deadline_ = deadline;
    slots_ = std::make_unique<Slot[]>(static_cast<size_t>(edges));
    for (const auto& [number, want] : early_) {
      if (Slot* const slot = SlotOf(number)) {
        slot->wanted_by = want.by;
        slot->wanted_of = want.of;
      }
    }
    early_.clear();
  }
  if (parts != parts_ || edges != edges_ || joined_ == parts_) {
    return Internal(
        fmt::format("run {} was joined for another step", key_.run));
  }
  if (parts > 1) {
    SLUICE_ASSIGN_OR_RETURN(local_,
                            owner_.local_.Join(key_, edges, parts, deadline));
    if (!status_.ok()) owner_.local_.Abort(key_, status_);
  }
  ++joined_;
  return {};
}

void LinkedRendezvous::Run::Leave() {
  MutexLock lock(mutex_);
  ++left_;
  if (parts_ > 1) owner_.local_.Leave(key_);
}

bool LinkedRendezvous::Run::begun() const {
  MutexLock lock(mutex_);
  return joined_ > 0 || needed_;
}

// One that nobody has begun here is early.
bool LinkedRendezvous::Run::over() const {
  MutexLock lock(mutex_);
  if (needed_ || left_ < parts_ || (joined_ == 0 && !was_needed_)) return false;
  if (aborted_.load()) return true;
  for (const Edge& edge : sends_) {
    if (slots_[edge.number].sending == Sending::kBuffered) return false;
  }
  return true;
}

Status LinkedRendezvous::Run::Needs(const std::shared_ptr<Link>& link) {
  MutexLock lock(mutex_);
  needed_ = was_needed_ = true;
  SLUICE_RETURN_IF_ERROR(Use(link));
  return status_;
}

void LinkedRendezvous::Run::Release() {
  MutexLock lock(mutex_);
  needed_ = false;
}

// What its start has found: a slot's `from` is the starting part's.
bool LinkedRendezvous::Run::IsLocal(const Edge& edge) {
  MutexLock lock(mutex_);
  const Result<Slot*> slot = SlotOf(edge);
  return slot.ok() && (*slot)->from == nullptr && local_ != nullptr;
}

bool LinkedRendezvous::Run::Uses(const Link& link) const {
  MutexLock lock(mutex_);
  return std::any_of(used_.begin(), used_.end(),
                     [&](const auto& used) { return used.get() == &link; });
}

Status LinkedRendezvous::Run::Give(Slot& slot, const Edge& edge) {
  if (slot.wanted_by != slot.to.get() || slot.wanted_of != edge.sender) {
    return DataLoss(
        fmt::format("'{}': it is for {}, of incarnation {:x}; wanted of {:x}{}",
                    edge.name, slot.to->peer(), edge.sender, slot.wanted_of,
                    slot.wanted_by == slot.to.get() ? "" : " by another task"));
  }
  Frame frame = FrameFor(FrameKind::kTensor, edge);
  frame.bytes = edge.bytes;
  const Sending before = std::exchange(slot.sending, Sending::kGiven);
  if (before == Sending::kBuffered) {
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
  if (from.accelerator != nullptr) return HostOnly(edge);
  MutexLock lock(mutex_);
  SLUICE_ASSIGN_OR_RETURN(Slot * slot, SlotOf(edge));
  SLUICE_RETURN_IF_ERROR(Use(link));
  slot->to = std::move(link);
  slot->view = {static_cast<const std::byte*>(from.data), edge.bytes};
  slot->sending = Sending::kOffered;
  sends_.push_back(edge);
  return slot->wanted_by == nullptr ? Status() : Give(*slot, edge);
}

Status LinkedRendezvous::Run::WaitSent(const Edge& edge,
                                       const DeviceView& from) {
  Slot* slot = nullptr;
  {
    MutexLock lock(mutex_);
    SLUICE_ASSIGN_OR_RETURN(Slot * found, SlotOf(edge));
    slot = found;
    if (slot->to != nullptr && slot->sending == Sending::kOffered) {
      slot->buffer.assign(slot->view.begin(), slot->view.end());
      slot->sending = Sending::kBuffered;
    }
    if (slot->sending == Sending::kBuffered) return status_;
  }
  if (slot->to == nullptr) return local_->WaitSent(edge, from);
  slot->to->Settle(slot->parcel, aborted_, deadline_);
  MutexLock lock(mutex_);
  return status_;
}

bool LinkedRendezvous::Run::Sent(const Edge& edge, Waker& waker) {
  MutexLock lock(mutex_);
  const Result<Slot*> slot = SlotOf(edge);
  if (!slot.ok() || (*slot)->to == nullptr) return true;
  if ((*slot)->sending != Sending::kGiven || aborted_.load()) return true;
  return PastDeadline() || (*slot)->to->Sent((*slot)->parcel, waker);
}

Status LinkedRendezvous::Run::StartReceive(const Edge& edge,
                                           const DeviceView& into) {
  const std::shared_ptr<Link> link = owner_.LinkTo(edge.sender);
  if (link == nullptr) {
    if (local_ != nullptr) return local_->StartReceive(edge, into);
    return Internal(fmt::format("'{}': no way to incarnation {:x}", edge.name,
                                edge.sender));
  }
  if (into.accelerator != nullptr) return HostOnly(edge);
  MutexLock lock(mutex_);
  SLUICE_ASSIGN_OR_RETURN(Slot * slot, SlotOf(edge));
  SLUICE_RETURN_IF_ERROR(Use(link));
  slot->into = {static_cast<std::byte*>(into.data), edge.bytes};
  slot->from = link.get();
  slot->sender = edge.sender;
  slot->expects = true;
  link->Post(FrameFor(FrameKind::kWant, edge));
  return {};
}

Status LinkedRendezvous::Run::WaitReceived(const Edge& edge,
                                           const DeviceView& into) {
  if (IsLocal(edge)) return local_->WaitReceived(edge, into);
  MutexLock lock(mutex_);
  SLUICE_ASSIGN_OR_RETURN(Slot * slot, SlotOf(edge));
  Status status;
  while (status.ok() && !Settled(*slot)) {
    if (deadline_ == TimePoint::max()) {
      changed_.Wait(mutex_);
    } else if (!changed_.WaitUntil(mutex_, deadline_) && !Settled(*slot)) {
      status = DeadlineExceeded("the step's deadline passed in a receive");
    }
  }
  slot->waker = nullptr;
  slot->expects = false;
  while (slot->landing) changed_.Wait(mutex_);
  if (slot->arrived) return slot->error;
  return status.ok() ? status_ : status;
}

bool LinkedRendezvous::Run::Received(const Edge& edge, Waker& waker) {
  if (IsLocal(edge)) return local_->Received(edge, waker);
  MutexLock lock(mutex_);
  const Result<Slot*> slot = SlotOf(edge);
  if (!slot.ok()) return true;
  if (Settled(**slot) || PastDeadline()) return true;
  (*slot)->waker = &waker;
  return false;
}

Status LinkedRendezvous::Run::Wanted(Link& link, const Frame& frame) {
  MutexLock lock(mutex_);
  if (frame.count >= kMostEdges) {
    return DataLoss(fmt::format("{} wants edge {}, which no step has",
                                link.peer(), frame.count));
  }
  if (joined_ == 0) {
    early_[frame.count] = {&link, frame.key};
    return {};
  }
  Slot* const slot = SlotOf(frame.count);
  if (slot == nullptr || slot->sending == Sending::kGiven) return {};
  slot->wanted_by = &link;
  slot->wanted_of = frame.key;
  if (slot->sending == Sending::kNot) return {};
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
    if (slot != nullptr &&
        (frame.key != slot->sender || frame.bytes != slot->into.size())) {
      slot->error = DataLoss(
          fmt::format("edge {}: {} has sent {} bytes of incarnation {:x}, "
                      "wanted {} of {:x}",
                      frame.count, link.peer(), frame.bytes, frame.key,
                      slot->into.size(), slot->sender));
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

bool LinkedRendezvous::Run::Abort(const Status& status, const Link* origin) {
  std::vector<std::shared_ptr<Link>> used;
  {
    MutexLock lock(mutex_);
    if (aborted_.load()) return false;
    status_ = status;
    aborted_.store(true);
    for (int i = 0; i < edges_; ++i) Wake(slots_[i]);
    changed_.NotifyAll();
    used = used_;
    if (local_ != nullptr && left_ < parts_) owner_.local_.Abort(key_, status);
  }
  Frame frame;
  frame.kind = FrameKind::kAbort;
  frame.epoch = static_cast<uint32_t>(key_.epoch);
  frame.run = key_.run;
  frame.count = static_cast<uint64_t>(status.code());
  const std::string text = status.message().substr(0, 2048);
  frame.bytes = text.size();
  for (const auto& link : used) {
    link->Nudge();
    if (link.get() == origin) continue;
    const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    link->Post(frame, {bytes.begin(), bytes.end()});
  }
  return true;
}

}  // namespace sluice::dist
