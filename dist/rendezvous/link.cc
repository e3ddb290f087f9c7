#include "dist/rendezvous/link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "dist/net/address.h"
#include "dist/net/exchange.h"
#include "engine/catch_errors.h"

namespace sluice::dist {
namespace {

constexpr std::chrono::milliseconds kPing(250);  // and between two beats
// What the sending thread copies before it leaves the rest to the link's: about
// 1 MiB, and others may come in between.
constexpr int kAtOnce = 16;
// Bytes that wait for a peer that goes on to live, and one more frame. Answers
// may be variables, and so may calls; what cannot wait is small: some frames
// for each of a step's edges, an abort, of as many runs as there may be.
constexpr std::array<size_t, 3> kMostWaiting = {
    size_t{16} << 20, size_t{64} << 20, size_t{64} << 20};

std::string FarHostOf(const Socket& socket) {
  const Result<Address> peer = PeerAddressOf(socket.descriptor());
  const bool far = peer.ok() && peer->is_internet() && !IsLoopback(*peer);
  return far ? HostOf(*peer) : "";
}

}  // namespace

Link::Link(WirePair wires, std::string peer,
           std::chrono::milliseconds peer_timeout, Owner& owner)
    : wires_(std::move(wires)),
      peer_(std::move(peer)),
      host_(FarHostOf(wires_.to.data)),
      peer_timeout_(peer_timeout),
      owner_(owner),
      out_lane_{wires_.to.ring.get(), &wires_.to.data},
      in_lane_{wires_.from.ring.get(), &wires_.from.data},
      taken_at_(std::chrono::steady_clock::now()),
      quiet_since_(taken_at_) {
  wires_.to.data.set_peer(peer_);
  wires_.from.data.set_peer(peer_);
}

Link::~Link() {
  Stop();
}

void Link::Stop() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
    Break(Cancelled(peer_ + ": the link was closed"));
  }
  if (writer_.joinable()) writer_.join();
  if (reader_.joinable()) reader_.join();
  // Others may keep the link, to know how it ended, for long.
  MutexLock lock(mutex_);
  wires_ = {};
}

// Both wait for the lock before they call the owner. So where there is one of
// them alone it ends without, and the owner may wait for it here.
Status Link::Start() {
  Status begun;
  {
    MutexLock lock(mutex_);
    begun = CatchErrors([&] {
      writer_ = std::thread([this] { Write(); });
      reader_ = std::thread([this] { Read(); });
    });
    if (begun.ok()) return {};
    begun = ResourceExhausted(
        fmt::format("no threads for a link to {}: {}", peer_, begun.message()));
    closing_ = true;
    Break(begun);
  }
  Stop();
  return begun;
}

Status Link::status() const {
  MutexLock lock(mutex_);
  return broken_;
}

void Link::End(const Status& why) {
  MutexLock lock(mutex_);
  Break(why);
}

// Wakes both threads by the end of the streams.
void Link::Break(const Status& why) {
  if (!broken_.ok()) return;
  broken_ = why;
  for (const auto& job : jobs_) Forget(*job);
  jobs_.clear();
  for (const Socket* socket : {&wires_.to.data, &wires_.from.data}) {
    shutdown(socket->descriptor(), SHUT_RDWR);
  }
  changed_.NotifyAll();
}

void Link::Finish(Parcel* parcel) {
  if (parcel == nullptr) return;
  parcel->under_way_ = false;
  if (parcel->waker_ != nullptr) std::exchange(parcel->waker_, nullptr)->Wake();
  changed_.NotifyAll();
}

Link::Account Link::Job::account() const {
  switch (frame.kind) {
    case FrameKind::kAnswer:
    case FrameKind::kRan:
      return Account::kAnswers;
    case FrameKind::kCall:
      return Account::kCalls;
    default:
      return Account::kTold;
  }
}

size_t Link::Job::weight() const {
  return sizeof(Job) + (frame.kind == FrameKind::kTensor ? 0 : own.size());
}

void Link::Forget(const Job& job) {
  size_t& waits = waiting(job.account());
  const size_t most = kMostWaiting[static_cast<size_t>(job.account())];
  const bool many = waits > most;
  waits -= job.weight();
  if (many && waits <= most) changed_.NotifyAll();
  Finish(job.parcel);
}

void Link::Add(const Frame& frame, std::unique_ptr<Job> job) {
  if (!broken_.ok()) return;
  job->frame = frame;
  size_t& waits = waiting(job->account());
  if (job->account() == Account::kTold &&
      waits > kMostWaiting[static_cast<size_t>(Account::kTold)]) {
    return Break(ResourceExhausted(fmt::format(
        "{} takes none of {} bytes that wait for it", peer_, waits)));
  }
  waits += job->weight();
  Encode(frame, job->header);
  job->pieces[0] = job->header;
  if (out_lane_.ring != nullptr) {
    job->way.emplace<SharedOutgoing>(out_lane_, job->pieces);
  } else {
    job->way.emplace<StreamOutgoing>(wires_.to.data, job->pieces);
  }
  if (job->parcel != nullptr) job->parcel->under_way_ = true;
  jobs_.push_back(std::move(job));
  quiet_since_ = std::chrono::steady_clock::now();
  if (!blocked_) Pump();
}

void Link::Post(const Frame& frame, std::vector<std::byte> payload) {
  auto job = std::make_unique<Job>();
  job->own = std::move(payload);
  job->pieces[1] = job->own;
  MutexLock lock(mutex_);
  Add(frame, std::move(job));
}

void Link::PostCall(const Frame& frame, std::vector<std::byte> payload) {
  {
    MutexLock lock(mutex_);
    while (broken_.ok() &&
           waiting(Account::kCalls) >
               kMostWaiting[static_cast<size_t>(Account::kCalls)]) {
      changed_.Wait(mutex_);
    }
  }
  Post(frame, std::move(payload));
}

void Link::Post(const Frame& frame, Bytes payload,
                std::shared_ptr<const void> keeper) {
  auto job = std::make_unique<Job>();
  job->pieces[1] = payload;
  job->keeper = std::move(keeper);
  MutexLock lock(mutex_);
  Add(frame, std::move(job));
}

void Link::Send(const Frame& frame, Bytes payload, Parcel& parcel) {
  auto job = std::make_unique<Job>();
  job->pieces[1] = payload;
  job->parcel = &parcel;
  MutexLock lock(mutex_);
  Add(frame, std::move(job));
}

bool Link::Sent(Parcel& parcel, Waker& waker) {
  MutexLock lock(mutex_);
  if (!parcel.under_way_) return true;
  parcel.waker_ = &waker;
  return false;
}

bool Link::Settle(Parcel& parcel, const std::atomic<bool>& stop,
                  Deadline deadline) {
  MutexLock lock(mutex_);
  while (parcel.under_way_ && !stop.load()) {
    if (deadline == Deadline::max()) {
      changed_.Wait(mutex_);
    } else if (!changed_.WaitUntil(mutex_, deadline)) {
      break;
    }
  }
  parcel.waker_ = nullptr;
  if (!parcel.under_way_) return true;
  const auto found =
      std::find_if(jobs_.begin(), jobs_.end(),
                   [&](const auto& job) { return job->parcel == &parcel; });
  Job& job = **found;
  if (found == jobs_.begin()) {
    // At the same offsets, a part of which has left.
    job.own.assign(job.pieces[1].begin(), job.pieces[1].end());
    job.pieces[1] = job.own;
    job.parcel = nullptr;
    parcel.under_way_ = false;
  } else {
    Forget(job);
    jobs_.erase(found);
  }
  return false;
}

// Of the first job a part may have left, and the writer may be at it.
void Link::Withdraw(uint32_t epoch, uint64_t run) {
  MutexLock lock(mutex_);
  if (jobs_.empty()) return;
  const auto stays = [&](const std::unique_ptr<Job>& job) {
    const Frame& frame = job->frame;
    return (frame.kind != FrameKind::kTensor &&
            frame.kind != FrameKind::kWant) ||
           frame.epoch != epoch || frame.run != run;
  };
  const auto gone =
      std::stable_partition(jobs_.begin() + 1, jobs_.end(), stays);
  for (auto job = gone; job != jobs_.end(); ++job) Forget(**job);
  jobs_.erase(gone, jobs_.end());
}

size_t Link::queued() const {
  MutexLock lock(mutex_);
  size_t bytes = 0;
  for (const auto& job : jobs_) bytes += sizeof(Job) + job->own.size();
  return bytes;
}

void Link::Nudge() {
  MutexLock lock(mutex_);
  for (const auto& job : jobs_) {
    Parcel* const parcel = job->parcel;
    if (parcel != nullptr && parcel->waker_ != nullptr) {
      std::exchange(parcel->waker_, nullptr)->Wake();
    }
  }
  changed_.NotifyAll();
}

void Link::Pump() {
  blocked_ = false;
  for (int i = 0; !jobs_.empty() && broken_.ok(); ++i) {
    Job& job = *jobs_.front();
    if (job.direction().done()) {
      Forget(job);
      jobs_.pop_front();
      continue;
    }
    const Result<bool> moved = job.direction().Try();
    if (!moved.ok()) return Break(moved.status());
    if (*moved) taken_at_ = std::chrono::steady_clock::now();
    if (!*moved || i >= kAtOnce) {
      blocked_ = true;
      changed_.NotifyAll();  // the writer
      return;
    }
  }
}

void Link::Write() {
  Deadline beat = After(kPing);
  while (true) {
    bool blocked = false;
    {
      MutexLock lock(mutex_);
      blocked = AwaitBlocked(beat);
      if (!broken_.ok()) return;
    }
    if (std::chrono::steady_clock::now() >= beat) {
      owner_.Beat(*this);
      beat = After(kPing);
    }
    if (blocked) WaitForRoom();
  }
}

// Whether there is no room for the first job; false: the time is up, or the
// link has ended. Pings meanwhile.
bool Link::AwaitBlocked(Deadline until) {
  while (broken_.ok() && !blocked_) {
    const Deadline next = std::min(quiet_since_ + kPing, until);
    if (changed_.WaitUntil(mutex_, next) || blocked_) continue;
    const Deadline now = std::chrono::steady_clock::now();
    if (now >= quiet_since_ + kPing) {
      Frame frame;
      frame.kind = FrameKind::kPing;
      Add(frame, std::make_unique<Job>());
    }
    if (now >= until) break;
  }
  return blocked_;
}

// While blocked_ is set nobody else fills the ring.
bool Link::RoomSoon() {
  const SharedRing* const ring = out_lane_.ring;
  if (ring == nullptr) return false;
  const Result<bool> soon =
      freed_.Look([&]() -> Result<bool> { return !ring->Free().empty(); });
  return soon.ok() && *soon;
}

// For the first job, and goes on with it.
void Link::WaitForRoom() {
  if (RoomSoon()) {
    MutexLock lock(mutex_);
    return Pump();
  }
  pollfd room{};
  Job* job = nullptr;
  {
    MutexLock lock(mutex_);
    if (jobs_.empty() || jobs_.front()->direction().done()) return Pump();
    job = jobs_.front().get();
    room = job->direction().Park();
    if (job->direction().looks_again()) {
      const Result<bool> moved = job->direction().Try();
      if (!moved.ok()) return Break(moved.status());
      if (*moved) return Pump();
    }
  }
  Wait({&room, 1}, After(kPing));
  MutexLock lock(mutex_);
  // Nobody else takes it out meanwhile but Break.
  if (!broken_.ok() || jobs_.empty()) return;
  if (room.revents != 0) {
    const Status woken = job->direction().Woken(room.revents);
    if (!woken.ok()) return Break(woken);
  }
  Pump();
}

// Its pings are not heard meanwhile: that it takes something says that it
// lives.
Status Link::AwaitAnswersTaken() {
  const Deadline begin = std::chrono::steady_clock::now();
  MutexLock lock(mutex_);
  const size_t& waits = waiting(Account::kAnswers);
  while (broken_.ok() &&
         waits > kMostWaiting[static_cast<size_t>(Account::kAnswers)]) {
    const Deadline patience = std::max(begin, taken_at_) + peer_timeout_;
    if (std::chrono::steady_clock::now() >= patience) {
      return DeadlineExceeded(
          fmt::format("{} takes none of {} bytes of answers", peer_, waits));
    }
    (void)changed_.WaitUntil(mutex_, patience);
  }
  return broken_;
}

void Link::Read() {
  Status status;
  while (status.ok()) status = ReadOne();
  bool told = false;
  {
    MutexLock lock(mutex_);
    Break(status);
    status = broken_;
    told = closing_;
  }
  if (!told) owner_.Ended(*this, status);
}

}  // namespace sluice::dist
