#include "dist/rendezvous/linked_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

namespace sluice::dist {

std::string_view NodeOf(std::string_view edge_name) {
  return edge_name.substr(edge_name.rfind(';') + 1);
}

int MarkOf(const Edge& edge) {
  return static_cast<int>(edge.mark & 0x7fffffff);
}

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

Status LinkedRendezvous::Run::Different(Link& peer, const std::string& how) {
  (void)Use(peer.shared_from_this());
  return FailedPrecondition(fmt::format(
      "{} and {} run different steps: {}",
      owner_.name_.empty() ? "this task" : owner_.name_, peer.peer(), how));
}

// First noted, then looked at: one that ends in between aborts the run.
Status LinkedRendezvous::Run::Use(const std::shared_ptr<Link>& link) {
  if (std::find(used_.begin(), used_.end(), link) == used_.end()) {
    used_.push_back(link);
  }
  return link->status();
}

void LinkedRendezvous::Run::Wake(Slot& slot) {
  if (slot.waker != nullptr) std::exchange(slot.waker, nullptr)->Wake();
}

Status LinkedRendezvous::Run::Join(int edges, int parts, TimePoint deadline) {
  MutexLock lock(mutex_);
  if (joined_ == 0) {
    // Kept, so that each part that comes hears of it.
    const auto strange = early_.lower_bound(static_cast<uint64_t>(edges));
    if (strange != early_.end()) {
      if (aborted_.load()) return status_;
      return Different(
          *strange->second.by,
          fmt::format("edge {} is wanted of {} here", strange->first, edges));
    }
    parts_ = parts;
    edges_ = edges;
    deadline_ = deadline;
    waits_.reserve(static_cast<size_t>(parts));
    slots_ = std::make_unique<Slot[]>(static_cast<size_t>(edges));
    for (const auto& [number, want] : early_) {
      slots_[number].wanted_by = want.by;
      slots_[number].wanted_of = want.of;
      slots_[number].wanted_as = want.as;
    }
    ForgetEarly();
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

void LinkedRendezvous::Run::ForgetEarly() {
  early_wants_->fetch_sub(early_.size());
  early_.clear();
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
    const Sending sending = slots_[edge.number].sending;
    if (sending == Sending::kBuffered || sending == Sending::kCopying) {
      return false;
    }
  }
  return true;
}

Status LinkedRendezvous::Run::Needs(const std::shared_ptr<Link>& link) {
  MutexLock lock(mutex_);
  needed_ = was_needed_ = true;
  const size_t known = used_.size();
  SLUICE_RETURN_IF_ERROR(Use(link));
  // Those that Abort has found here it has told, and who told it knows.
  if (!status_.ok() && used_.size() > known && link.get() != origin_) {
    Tell(*link, status_, said_);
  }
  return status_;
}

void LinkedRendezvous::Run::Release() {
  MutexLock lock(mutex_);
  needed_ = false;
}

bool LinkedRendezvous::Run::Uses(const Link& link) const {
  MutexLock lock(mutex_);
  return std::any_of(used_.begin(), used_.end(),
                     [&](const auto& used) { return used.get() == &link; });
}

void LinkedRendezvous::Run::Tell(Link& link, const Status& abort,
                                 const std::string& text) const {
  Frame frame;
  frame.kind = FrameKind::kAbort;
  frame.epoch = static_cast<uint32_t>(key_.epoch);
  frame.run = key_.run;
  frame.count = static_cast<uint64_t>(abort.code());
  frame.bytes = text.size();
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  link.Post(frame, {bytes.begin(), bytes.end()});
}

bool LinkedRendezvous::Run::Abort(const Status& status, const Link* origin) {
  // Of an error that comes from another task it is said which already.
  const std::string text =
      ((origin == nullptr && !owner_.name_.empty() ? owner_.name_ + ": " : "") +
       status.message())
          .substr(0, 2048);
  std::vector<std::shared_ptr<Link>> used;
  {
    MutexLock lock(mutex_);
    if (aborted_.load()) return false;
    said_ = text;
    origin_ = origin;
    status_ = status;
    aborted_.store(true);
    for (int i = 0; i < edges_; ++i) Wake(slots_[i]);
    changed_.NotifyAll();
    for (const auto& [number, want] : early_) (void)Use(want.by);
    used = used_;
    if (local_ != nullptr && left_ < parts_) owner_.local_.Abort(key_, status);
  }
  for (const auto& link : used) {
    link->Withdraw(static_cast<uint32_t>(key_.epoch), key_.run);
    link->Nudge();
    if (link.get() != origin) Tell(*link, status, text);
  }
  return true;
}

void LinkedRendezvous::Run::BeginWait(const Edge& edge, const Link& link,
                                      bool sends) {
  const bool known =
      std::any_of(waits_.begin(), waits_.end(),
                  [&](const Wait& wait) { return wait.edge == edge.number; });
  if (known) return;
  if (waits_.empty()) waiting_.emplace(owner_.waiting_);
  // Its name is for Stall's line alone.
  waits_.push_back({edge.number,
                    owner_.stalls_.note ? edge.name : std::string(), &link,
                    sends});
}

void LinkedRendezvous::Run::EndWait(const Edge& edge) {
  const auto ended = std::erase_if(
      waits_, [&](const Wait& wait) { return wait.edge == edge.number; });
  if (ended > 0 && waits_.empty()) waiting_.reset();
}

// A run that passes from wait to wait says no more than one that stays.
std::optional<std::string> LinkedRendezvous::Run::Stall(
    TimePoint::duration now) {
  MutexLock lock(mutex_);
  for (Wait& wait : waits_) {
    if (!wait.since) wait.since = now;
  }
  if (waits_.empty() || aborted_.load()) return std::nullopt;
  const Wait& oldest = waits_.front();
  const TimePoint::duration waited = now - *oldest.since;
  if (waited < owner_.stalls_.after || now < next_line_) return std::nullopt;
  next_line_ = now + owner_.stalls_.after;
  const std::string& host = oldest.link->host();
  return fmt::format("for {:.0f} s {} has waited {} '{}' {} {}{}",
                     std::chrono::duration<double>(waited).count(),
                     owner_.name_.empty() ? "this task" : owner_.name_,
                     oldest.sends ? "to send" : "for", NodeOf(oldest.name),
                     oldest.sends ? "to" : "of", oldest.link->peer(),
                     host.empty() ? "" : fmt::format(" ({})", host));
}

}  // namespace sluice::dist
