#include "dist/rendezvous/linked_rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>

#include "dist/rendezvous/linked_run.h"

namespace sluice::dist {
namespace {

// Runs that others speak of before a part here has joined: as many as can be
// under way, and some that were aborted and are over. Looked through when there
// are twice as many, of which most have begun by then.
constexpr size_t kMostEarly = 1024;
constexpr size_t kMostText = 2048;  // of an abort
// Devices, also those that are gone as long as there are few: runs that need
// one hear how it went.
constexpr size_t kManyWays = 4096;
constexpr size_t kMostWays = size_t{1} << 16;
// Between two looks at least, however many links beat, and what counts of the
// time at most: two beats of one link.
constexpr std::chrono::milliseconds kLook(200), kMostLook(500);

}  // namespace

LinkedRendezvous::LinkedRendezvous(uint64_t epoch, Told told, std::string name,
                                   StallNotes stalls)
    : local_(epoch),
      told_(std::move(told)),
      name_(std::move(name)),
      stalls_(std::move(stalls)),
      epoch_(epoch),
      looked_(std::chrono::steady_clock::now()) {
  std::random_device random;
  MutexLock lock(mutex_);
  last_run_ = uint64_t{random()} << 32 | random();
}
LinkedRendezvous::~LinkedRendezvous() = default;

void LinkedRendezvous::AddDevices(std::span<const OwnMemory> devices) {
  local_.AddDevices(devices);
  MutexLock lock(accelerators_mutex_);
  for (const OwnMemory& device : devices) {
    ++accelerators_[device.accelerator].devices;
  }
}

void LinkedRendezvous::RemoveDevices(std::span<const OwnMemory> devices) {
  local_.RemoveDevices(devices);
  // Their last copies are waited for, of which runs are told.
  std::vector<std::unique_ptr<DeviceTransfers>> ended;
  MutexLock lock(accelerators_mutex_);
  for (const OwnMemory& device : devices) {
    const auto found = accelerators_.find(device.accelerator);
    if (found == accelerators_.end() || --found->second.devices > 0) continue;
    ended.push_back(std::move(found->second.transfers));
    accelerators_.erase(found);
  }
}

Result<DeviceTransfers*> LinkedRendezvous::TransfersOf(const Edge& edge,
                                                       const DeviceView& view) {
  if (view.accelerator == nullptr) return nullptr;
  MutexLock lock(accelerators_mutex_);
  const auto found = accelerators_.find(view.accelerator);
  if (found == accelerators_.end()) {
    return Internal(fmt::format(
        "'{}': its device is none of those that the rendezvous was given",
        edge.name));
  }
  OwnAccelerator& own = found->second;
  if (own.transfers == nullptr) {
    own.transfers = std::make_unique<DeviceTransfers>();
  }
  return own.transfers.get();
}

RunKey LinkedRendezvous::NewRun() {
  MutexLock lock(mutex_);
  return {epoch_, ++last_run_};
}

Status LinkedRendezvous::Reach(const std::vector<uint64_t>& devices,
                               const std::shared_ptr<Link>& link) {
  MutexLock lock(links_mutex_);
  if (links_.size() > kManyWays) {
    std::erase_if(links_,
                  [](const auto& way) { return !way.second->status().ok(); });
  }
  if (links_.size() + devices.size() > kMostWays) {
    return ResourceExhausted(
        fmt::format("ways to {} devices and {} more, of at most {}",
                    links_.size(), devices.size(), kMostWays));
  }
  for (const uint64_t device : devices) links_[device] = link;
  return {};
}

void LinkedRendezvous::Forget(const std::vector<uint64_t>& devices) {
  MutexLock lock(links_mutex_);
  for (const uint64_t device : devices) links_.erase(device);
}

std::shared_ptr<Link> LinkedRendezvous::LinkTo(uint64_t device) const {
  MutexLock lock(links_mutex_);
  const auto found = links_.find(device);
  return found == links_.end() ? nullptr : found->second;
}

LinkedRendezvous::RunPtr LinkedRendezvous::Find(const RunKey& key) const {
  MutexLock lock(mutex_);
  const auto found = runs_.find({key.epoch, key.run});
  return found == runs_.end() ? nullptr : found->second;
}

LinkedRendezvous::RunPtr LinkedRendezvous::FindOrBegin(const RunKey& key) {
  RunPtr& run = runs_[{key.epoch, key.run}];
  if (run == nullptr) run = std::make_shared<Run>(*this, key);
  return run;
}

Result<sluice::Exchange*> LinkedRendezvous::Join(const RunKey& key, int edges,
                                                 int parts,
                                                 TimePoint deadline) {
  RunPtr run;
  {
    MutexLock lock(mutex_);
    if (key.epoch != epoch_) {
      return FailedPrecondition(fmt::format("run {} is of epoch {}, now is {}",
                                            key.run, key.epoch, epoch_));
    }
    run = FindOrBegin(key);
  }
  SLUICE_RETURN_IF_ERROR(run->Join(edges, parts, deadline));
  return run.get();
}

void LinkedRendezvous::Leave(const RunKey& key) {
  const RunPtr run = Find(key);
  if (run == nullptr) return;
  run->Leave();
  EraseIfOver(run);
}

void LinkedRendezvous::EraseIfOver(const RunPtr& run) {
  if (!run->over()) return;
  MutexLock lock(mutex_);
  runs_.erase({run->key().epoch, run->key().run});
}

void LinkedRendezvous::Abort(const RunKey& key, const Status& status) {
  AbortFrom(key, status, nullptr);
}

void LinkedRendezvous::AbortFrom(const RunKey& key, const Status& status,
                                 const Link* origin) {
  RunPtr run;
  {
    MutexLock lock(mutex_);
    if (key.epoch != epoch_) return;
    const bool known = runs_.contains({key.epoch, key.run});
    run = FindOrBegin(key);
    if (!known && origin != nullptr) early_.emplace_back(key.epoch, key.run);
  }
  if (run->Abort(status, origin) && origin != nullptr && told_) {
    told_(key, status);
  }
  EraseIfOver(run);
}

void LinkedRendezvous::BeginEpoch(uint64_t epoch) {
  std::vector<RunPtr> old;
  {
    MutexLock lock(mutex_);
    epoch_ = epoch;
    for (const auto& [id, run] : runs_) {
      if (id.first != epoch) old.push_back(run);
    }
  }
  for (const RunPtr& run : old) {
    run->Abort(Cancelled(fmt::format("epoch {} has begun", epoch)), nullptr);
    EraseIfOver(run);
  }
  local_.BeginEpoch(epoch);
}

Status LinkedRendezvous::Needs(const RunKey& key,
                               const std::shared_ptr<Link>& link) {
  RunPtr run;
  {
    MutexLock lock(mutex_);
    run = FindOrBegin(key);
  }
  return run->Needs(link);
}

void LinkedRendezvous::Release(const RunKey& key) {
  const RunPtr run = Find(key);
  if (run == nullptr) return;
  run->Release();
  EraseIfOver(run);
}

Status LinkedRendezvous::Take(Link& link, const Frame& frame) {
  const RunKey key = {frame.epoch, frame.run};
  if (frame.kind == FrameKind::kTensor) {
    const RunPtr run = Find(key);
    return run == nullptr ? link.Drop(frame.bytes) : run->Arrive(link, frame);
  }
  if (frame.kind == FrameKind::kAbort) {
    if (frame.bytes > kMostText || frame.count == 0 ||
        frame.count > static_cast<uint64_t>(Code::kInternal)) {
      return DataLoss(link.peer() + " has sent an abort that makes no sense");
    }
    std::string text(frame.bytes, '\0');
    SLUICE_RETURN_IF_ERROR(link.Receive(
        std::as_writable_bytes(std::span(text.data(), text.size()))));
    AbortFrom(key, {static_cast<Code>(frame.count), text}, &link);
  } else if (frame.kind == FrameKind::kWant && frame.bytes == 0) {
    RunPtr run;
    {
      MutexLock lock(mutex_);
      if (frame.epoch != epoch_) return {};
      const bool known = runs_.contains({key.epoch, key.run});
      run = FindOrBegin(key);
      if (!known) early_.emplace_back(key.epoch, key.run);
    }
    const Status given = run->Wanted(link, frame);
    if (!given.ok()) AbortFrom(key, given, nullptr);
    EraseIfOver(run);
  } else {
    return DataLoss(fmt::format("{} has sent a frame of {} with {} bytes",
                                link.peer(), NameOf(frame.kind), frame.bytes));
  }
  GiveUpOldest();
  return {};
}

void LinkedRendezvous::GiveUpOldest() {
  std::vector<RunPtr> given_up;
  {
    MutexLock lock(mutex_);
    if (early_.size() <= 2 * kMostEarly) return;
    std::deque<Id> kept;
    for (auto id = early_.rbegin(); id != early_.rend(); ++id) {
      const auto found = runs_.find(*id);
      if (found == runs_.end()) continue;
      // By who may be about to begin it. Nobody else finds it meanwhile.
      const bool held = found->second.use_count() > 1;
      if (found->second->begun()) continue;
      if (held || kept.size() < kMostEarly) {
        kept.push_front(*id);
      } else {
        given_up.push_back(std::move(found->second));
        runs_.erase(found);
      }
    }
    early_ = std::move(kept);
  }
  // Who wants something of them waits for it.
  for (const RunPtr& run : given_up) {
    run->Abort(
        ResourceExhausted(fmt::format("run {} was given up: it has not begun "
                                      "here, and {} later ones have not either",
                                      run->key().run, kMostEarly)),
        nullptr);
  }
}

void LinkedRendezvous::Ended(Link& link, const Status& why) {
  std::vector<RunPtr> runs;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, run] : runs_) runs.push_back(run);
  }
  for (const RunPtr& run : runs) {
    if (!run->Uses(link)) continue;
    if (run->Abort(why, &link) && told_) told_(run->key(), why);
    EraseIfOver(run);
  }
}

void LinkedRendezvous::Look(TimePoint now) {
  if (!stalls_.note) return;
  std::vector<RunPtr> runs;
  TimePoint::duration ran{0};
  {
    MutexLock lock(mutex_);
    if (now < looked_ + kLook) return;
    ran_ += std::min<TimePoint::duration>(now - looked_, kMostLook);
    looked_ = now;
    ran = ran_;
    for (const auto& [id, run] : runs_) runs.push_back(run);
  }
  for (const RunPtr& run : runs) {
    if (const auto line = run->Stall(ran)) stalls_.note(*line);
  }
}

size_t LinkedRendezvous::runs() const {
  MutexLock lock(mutex_);
  return runs_.size();
}

size_t LinkedRendezvous::ways() const {
  MutexLock lock(links_mutex_);
  return links_.size();
}

}  // namespace sluice::dist
