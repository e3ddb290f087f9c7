#include "dist/membership/membership.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "dist/membership/rank_name.h"

namespace sluice::dist {
namespace {

using std::chrono::milliseconds;

// What a decision takes beyond a lease: a suspicion's grace, and the way.
constexpr milliseconds kToDecide(2000);
constexpr milliseconds kLeastTimeout = std::chrono::seconds(1);

}  // namespace

milliseconds LeaseOf(milliseconds peer_timeout) {
  return std::clamp(peer_timeout, kLeastTimeout, kLongestWait) * 5 / 6;
}

milliseconds BeatOf(milliseconds lease) {
  return std::clamp(lease / 12, milliseconds(10), milliseconds(250));
}

Membership::Membership(Socket coordinator, int rank, int size, uint32_t epoch,
                       LeaseTimes times, Pipe wakes)
    : rank_(rank),
      size_(size),
      epoch_(epoch),
      times_(times),
      channel_(std::move(coordinator), size),
      wakes_(std::move(wakes)),
      apart_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  // Before anything that needs all ranks: then the coordinator has heard it.
  Beat(milliseconds(0));
  (void)channel_.Send().ok();
  thread_ = std::thread([this] { Run(); });
}

Membership::~Membership() {
  wakes_.write = Descriptor();  // the other end hears it
  thread_.join();
}

// As the coordinator, it counts no time in which it did not run itself.
void Membership::Run() {
  const milliseconds beat = BeatOf(times_.lease);
  const std::string lead = RankName(0, size_);
  milliseconds silent = times_.lease - times_.first;
  bool said_goodbye = false;
  Deadline last = std::chrono::steady_clock::now();
  while (channel_.open()) {
    TakeWords();
    std::array<pollfd, 2> polled = {pollfd{wakes_.read.get(), POLLIN, 0},
                                    channel_.Wanted()};
    Wait(polled, last + beat);
    std::array<char, 64> ignored;
    const bool ending =
        polled[0].revents != 0 &&
        read(wakes_.read.get(), ignored.data(), ignored.size()) == 0;
    TakeWords();
    std::vector<ControlMessage> words;
    const Status status = channel_.Move(&words);
    for (const ControlMessage& word : words) {
      silent = milliseconds(0);
      if (word.kind == FrameKind::kVerdict) Decide(word.reason);
      if (word.kind == FrameKind::kGoodbye) said_goodbye = true;
    }
    if (!status.ok()) {
      if (ending) return;
      Decide(Unavailable(said_goodbye
                             ? lead + " has left the job"
                             : lead + ", which coordinates the job, has ended"),
             !said_goodbye);
      return;
    }
    if (ending) break;
    const Deadline now = std::chrono::steady_clock::now();
    if (now < last + beat) continue;
    const milliseconds time = std::min(
        std::chrono::duration_cast<milliseconds>(now - last), 2 * beat);
    silent += time;
    last = now;
    Beat(time);
    if (silent < times_.lease) continue;
    Decide(DeadlineExceeded(
        fmt::format("{}, which coordinates the job, has shown no sign of life "
                    "for {} ms",
                    lead, times_.lease.count())));
    return;
  }
  ControlMessage goodbye;
  goodbye.kind = FrameKind::kGoodbye;
  goodbye.rank = rank_;
  goodbye.epoch = epoch_;
  channel_.Say(goodbye);
  const Deadline limit = After(kToTell);
  std::vector<ControlMessage> ignored;
  while (channel_.open() && channel_.Move(&ignored).ok() &&
         !channel_.flushed()) {
    pollfd writable = channel_.Wanted();
    if (Wait({&writable, 1}, limit) <= 0) return;
  }
}

void Membership::TakeWords() {
  const MutexLock lock(mutex_);
  for (const ControlMessage& word : words_) channel_.Say(word);
  words_.clear();
}

void Membership::Beat(milliseconds time) {
  ControlMessage beat;
  beat.rank = rank_;
  beat.epoch = epoch_;
  const MutexLock lock(mutex_);
  beat.run = run_;
  if (!collective_.empty()) inside_ += time;
  if (inside_ >= times_.stall) beat.waits_in = collective_;
  channel_.Beat(std::move(beat));
}

void Membership::Enters(uint64_t run, std::string_view collective) {
  const MutexLock lock(mutex_);
  run_ = run;
  collective_ = collective;
  inside_ = milliseconds(0);
}

void Membership::Returns() {
  const MutexLock lock(mutex_);
  collective_.clear();
  inside_ = milliseconds(0);
}

void Membership::Decide(Status status, bool cuts) {
  {
    const MutexLock lock(mutex_);
    if (decision_) return;
    decision_ = std::move(status);
    cuts_ = cuts;
    for (const Descriptor& each : cut_) {
      if (cuts) shutdown(each.get(), SHUT_RDWR);
    }
    const uint64_t one = 1;
    if (cuts) (void)!write(apart_.get(), &one, sizeof one);
  }
  decides_.NotifyAll();
}

Status Membership::decision() {
  const MutexLock lock(mutex_);
  return decision_.value_or(Status());
}

void Membership::CutThen(std::vector<Descriptor> cut) {
  const MutexLock lock(mutex_);
  cut_ = std::move(cut);
  for (const Descriptor& each : cut_) {
    if (cuts_) shutdown(each.get(), SHUT_RDWR);
  }
}

void Membership::Post(ControlMessage message) {
  message.rank = rank_;
  message.epoch = epoch_;
  {
    const MutexLock lock(mutex_);
    words_.push_back(std::move(message));
  }
  (void)!write(wakes_.write.get(), "x", 1);
}

Status Membership::Await(Deadline deadline, const Status& otherwise) {
  const MutexLock lock(mutex_);
  while (!decision_) {
    if (std::chrono::steady_clock::now() >= deadline) return otherwise;
    decides_.WaitUntil(mutex_, deadline);
  }
  return *decision_;
}

Status Membership::Suspect(int whom, const Status& why) {
  ControlMessage suspicion;
  suspicion.kind = FrameKind::kSuspect;
  suspicion.whom = whom;
  suspicion.reason = why;
  Post(std::move(suspicion));
  return Await(After(times_.lease + kToDecide), why);
}

Status Membership::Fail(const Status& why) {
  ControlMessage failure;
  failure.kind = FrameKind::kError;
  failure.reason = why;
  Post(std::move(failure));
  return Await(After(kToDecide), why);
}

}  // namespace sluice::dist
