#include "dist/cluster/task.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/catch_errors.h"

namespace sluice::dist {
namespace {

constexpr size_t kMostErrorText = 2048;  // of an error
// Memory for a payload is asked for as it comes.
constexpr size_t kAtOnce = size_t{16} << 20;

std::vector<std::byte> BytesOf(std::string_view text) {
  const auto bytes = std::as_bytes(
      std::span(text.data(), std::min(text.size(), kMostErrorText)));
  return {bytes.begin(), bytes.end()};
}

Frame FrameOfKind(FrameKind kind, uint64_t run, uint64_t bytes) {
  Frame frame;
  frame.kind = kind;
  frame.run = run;
  frame.bytes = bytes;
  return frame;
}

bool IsCode(uint64_t code) {
  return code <= static_cast<uint64_t>(Code::kInternal);
}

Status StatusOf(uint64_t code, const std::vector<std::byte>& text) {
  if (code == 0) return {};
  return {static_cast<Code>(code),
          {reinterpret_cast<const char*>(text.data()), text.size()}};
}

}  // namespace

Task::Task(TaskOptions options, std::shared_ptr<const Tls> tls,
           Service* service)
    : options_(std::move(options)),
      tls_(std::move(tls)),
      service_(service),
      rendezvous_(std::make_shared<LinkedRendezvous>(
          0,
          [this](const RunKey& run, const Status& status) {
            if (service_ != nullptr) service_->Aborted(run, status);
          },
          options_.name, StallNotes{options_.stall_note, options_.stalled})) {}

Task::~Task() {
  Stop();
}

void Task::Stop() {
  std::vector<LinkPtr> links;
  {
    MutexLock lock(mutex_);
    stop_ = true;
    links = links_;
  }
  half_came_.NotifyAll();
  if (admits_.joinable()) admits_.join();
  // All of them first, and all who wait for answers are told here: a link that
  // is stopped tells nobody, and its thread may wait for another's answer.
  const Status ended = Cancelled(options_.name + " has ended");
  for (const LinkPtr& link : links) link->End(ended);
  {
    MutexLock lock(mutex_);
    for (auto& [number, call] : calls_) {
      if (!call.answer) call.answer.emplace(ended);
    }
  }
  answered_.NotifyAll();
  // Their owners' last calls, then none.
  for (const LinkPtr& link : links) link->Stop();
}

Task::LinkPtr Task::PointerTo(const Link& link) const {
  MutexLock lock(mutex_);
  for (const LinkPtr& known : links_) {
    if (known.get() == &link) return known;
  }
  return nullptr;
}

Status Task::Payload(Link& link, const Frame& frame,
                     std::vector<std::byte>* bytes, Status* refused) {
  *refused =
      CheckMessage(frame.bytes, frame.bytes > kAtOnce ? ReadMachineMemory()
                                                      : MachineMemory());
  if (refused->code() == Code::kInvalidArgument) {
    return DataLoss(
        fmt::format("{} has sent {}", link.peer(), refused->message()));
  }
  if (!refused->ok()) return link.Drop(frame.bytes);
  while (bytes->size() < frame.bytes) {
    const size_t begin = bytes->size();
    bytes->resize(std::min<size_t>(frame.bytes, begin + kAtOnce));
    SLUICE_RETURN_IF_ERROR(link.Receive(MutableBytes(*bytes).subspan(begin)));
  }
  return {};
}

Status Task::Take(Link& link, const Frame& frame) {
  return CatchErrors([&] {  // its peer says how long a message is
    switch (frame.kind) {
      case FrameKind::kTensor:
      case FrameKind::kWant:
      case FrameKind::kAbort:
        return rendezvous_->Take(link, frame);
      case FrameKind::kCall:
        return TakeCall(link, frame);
      case FrameKind::kAnswer:
        return TakeAnswer(link, frame);
      case FrameKind::kRun:
        return TakeOrder(link, frame);
      case FrameKind::kRan:
        return TakeRan(link, frame);
      default:
        return DataLoss(fmt::format("{} has sent a frame of {}", link.peer(),
                                    NameOf(frame.kind)));
    }
  });
}

Status Task::TakeCall(Link& link, const Frame& frame) {
  std::vector<std::byte> bytes;
  Status refused;
  SLUICE_RETURN_IF_ERROR(Payload(link, frame, &bytes, &refused));
  const auto answer = [&]() -> Result<Message> {
    SLUICE_RETURN_IF_ERROR(refused);
    SLUICE_ASSIGN_OR_RETURN(const Message message,
                            Message::Unpack(std::move(bytes)));
    if (message.head == kHere) {
      {
        // Before any of its links ends, which the others may tell of first.
        MutexLock lock(mutex_);
        if (stop_) return Unavailable("it is about to end");
      }
      if (service_ != nullptr) service_->Came(link);
      return Message{"{}", {}};
    }
    if (service_ == nullptr) return Unimplemented("it answers no calls");
    return service_->Called(PointerTo(link), message);
  }();
  Status status = answer.status();
  std::vector<std::byte> payload;
  if (status.ok()) {
    payload = answer->Pack();
    status = CheckMessage(payload.size(), MachineMemory());
  }
  if (!status.ok()) payload = BytesOf(status.message());
  Frame said = FrameOfKind(FrameKind::kAnswer, frame.run, payload.size());
  said.count = static_cast<uint64_t>(status.code());
  link.Post(said, std::move(payload));
  return {};
}

Status Task::TakeAnswer(Link& link, const Frame& frame) {
  std::vector<std::byte> bytes;
  Status refused;
  SLUICE_RETURN_IF_ERROR(Payload(link, frame, &bytes, &refused));
  if (!IsCode(frame.count)) return DataLoss(link.peer() + " answers nonsense");
  const auto said = [&]() -> Result<Message> {
    SLUICE_RETURN_IF_ERROR(refused);
    if (frame.count == 0) return Message::Unpack(std::move(bytes));
    return StatusOf(frame.count, bytes).WithContext(link.peer());
  };
  Result<Message> answer = said();
  MutexLock lock(mutex_);
  const auto call = calls_.find(frame.run);
  if (call == calls_.end() || call->second.link != &link) {
    return DataLoss(link.peer() + " answers what it was not asked");
  }
  call->second.answer.emplace(std::move(answer));
  answered_.NotifyAll();
  return {};
}

Result<Message> Task::Call(const LinkPtr& to, const Message& message) {
  return WaitCall(to, StartCall(to, message));
}

uint64_t Task::StartCall(const LinkPtr& to, const Message& message) {
  std::vector<std::byte> payload = message.Pack();
  const Status fits = CheckMessage(payload.size(), MachineMemory());
  uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    number = ++last_call_;
    Waiting& waiting = calls_[number];
    waiting.link = to.get();
    if (!fits.ok()) waiting.answer.emplace(fits);
  }
  if (!fits.ok()) return number;
  const Frame frame = FrameOfKind(FrameKind::kCall, number, payload.size());
  to->PostCall(frame, std::move(payload));
  return number;
}

Result<Message> Task::WaitCall(const LinkPtr& to, uint64_t number) {
  MutexLock lock(mutex_);
  const auto call = calls_.find(number);
  // Noted before it was looked at: the link's end is seen here or tells.
  if (const Status status = to->status();
      !status.ok() && !call->second.answer) {
    call->second.answer.emplace(status);
  }
  while (!call->second.answer) answered_.Wait(mutex_);
  Result<Message> answer = *std::move(call->second.answer);
  calls_.erase(call);
  return answer;
}

void Task::Order(const LinkPtr& to, const RunKey& run, uint64_t step,
                 const OrderBody& order, RunEnd& end) {
  const Status needed = rendezvous_->Needs(run, to);
  if (!needed.ok()) return end.Ended(needed);
  {
    MutexLock lock(mutex_);
    runs_[{to.get(), run.run}] = &end;
  }
  Frame frame = FrameOfKind(FrameKind::kRun, run.run, OrderBody::kBytes);
  frame.epoch = static_cast<uint32_t>(run.epoch);
  frame.key = step;
  to->Post(frame, order.Pack());
  const Status status = to->status();
  if (status.ok()) return;
  RunEnd* untold = nullptr;
  {
    MutexLock lock(mutex_);
    const auto found = runs_.find({to.get(), run.run});
    if (found != runs_.end()) {
      untold = found->second;
      runs_.erase(found);
    }
  }
  if (untold != nullptr) untold->Ended(status);
}

Status Task::TakeOrder(Link& link, const Frame& frame) {
  if (frame.bytes != OrderBody::kBytes || service_ == nullptr) {
    return DataLoss(link.peer() + " orders what makes no sense");
  }
  std::array<std::byte, OrderBody::kBytes> bytes;
  SLUICE_RETURN_IF_ERROR(link.Receive(bytes));
  SLUICE_ASSIGN_OR_RETURN(const OrderBody order, OrderBody::Unpack(bytes));
  service_->Ordered(PointerTo(link), {frame.epoch, frame.run}, frame.key,
                    order);
  return {};
}

void Task::SayRan(Link& to, const RunKey& run, const Status& status) {
  std::vector<std::byte> text = BytesOf(status.message());
  if (status.ok()) text.clear();
  Frame frame = FrameOfKind(FrameKind::kRan, run.run, text.size());
  frame.epoch = static_cast<uint32_t>(run.epoch);
  frame.count = static_cast<uint64_t>(status.code());
  to.Post(frame, std::move(text));
}

Status Task::TakeRan(Link& link, const Frame& frame) {
  if (frame.bytes > kMostErrorText || !IsCode(frame.count)) {
    return DataLoss(link.peer() + " has ended a run with nonsense");
  }
  std::vector<std::byte> text;
  Status refused;  // none is: it is short
  SLUICE_RETURN_IF_ERROR(Payload(link, frame, &text, &refused));
  RunEnd* end = nullptr;
  {
    MutexLock lock(mutex_);
    const auto found = runs_.find({&link, frame.run});
    if (found == runs_.end()) {
      return DataLoss(link.peer() + " has ended a run that is not its");
    }
    end = found->second;
    runs_.erase(found);
  }
  const Status status = StatusOf(frame.count, text);
  end->Ended(status.ok() ? status : status.WithContext(link.peer()));
  return {};
}

void Task::Ended(Link& link, const Status& why) {
  {
    // Before anybody hears of it, and asks.
    MutexLock lock(mutex_);
    const bool there_again = Living(link.peer()) != nullptr;
    const bool noted = service_ == nullptr && !there_again && !stop_;
    if (noted) lost_.emplace(link.peer(), why);
  }
  rendezvous_->Ended(link, why);
  std::vector<RunEnd*> ends;
  {
    MutexLock lock(mutex_);
    for (auto& [number, call] : calls_) {
      if (call.link == &link && !call.answer) call.answer.emplace(why);
    }
    answered_.NotifyAll();
    for (auto run = runs_.begin(); run != runs_.end();) {
      if (run->first.first != &link) {
        ++run;
        continue;
      }
      ends.push_back(run->second);
      run = runs_.erase(run);
    }
  }
  for (RunEnd* end : ends) end->Ended(why);
  const LinkPtr ended = PointerTo(link);
  if (service_ != nullptr) service_->Gone(ended);
  MutexLock lock(mutex_);
  ended_.push_back(ended);
}

void Task::Beat(Link&) {
  rendezvous_->Look(std::chrono::steady_clock::now());
}

Status Task::Lost() const {
  MutexLock lock(mutex_);
  if (!lost_.empty()) return lost_.begin()->second;
  Status lost;
  for (const LinkPtr& link : links_) {
    if (lost.ok()) lost = Broken(link->peer());
  }
  return lost;
}

Status Task::Lost(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto lost = lost_.find(name);
  return lost == lost_.end() ? Broken(name) : lost->second;
}

Status Task::AskLost() {
  std::vector<std::pair<LinkPtr, uint64_t>> asked;
  {
    MutexLock lock(mutex_);
    for (const LinkPtr& link : links_) asked.emplace_back(link, 0);
  }
  for (auto& [link, call] : asked) call = StartCall(link, {kHere, {}});
  Status first;
  for (const auto& [link, call] : asked) {
    const Status said = WaitCall(link, call).status();
    // Of one that has ended there may be another by now.
    if (first.ok() && link->status().ok()) first = said;
  }
  const Status lost = Lost();
  return lost.ok() ? first : lost;
}

// A link that does not send any more is known to those who have tried before
// its reader comes to tell.
Status Task::Broken(const std::string& name) const {
  Status broken;
  for (const LinkPtr& link : links_) {
    if (link->peer() != name) continue;
    const Status status = link->status();
    if (status.ok() || stop_) return {};
    broken = status;
  }
  return broken;
}

void Task::ForgetLost(const std::string& name) {
  MutexLock lock(mutex_);
  lost_.erase(name);
}

// What a link has is given back when there is a new one, so that a task that
// lives long does not run out of files.
void Task::BuryEnded() {
  std::vector<LinkPtr> ended;
  {
    MutexLock lock(mutex_);
    if (stop_) return;  // Stop, which joins them, has them by now
    ended.swap(ended_);
    std::erase_if(links_, [&](const LinkPtr& link) {
      return std::find(ended.begin(), ended.end(), link) != ended.end();
    });
  }
  for (const LinkPtr& link : ended) link->Stop();
}

}  // namespace sluice::dist
