#include "io/remote/s3/held_lease.h"

#include <fmt/format.h>

#include <utility>

#include "io/files/file.h"

namespace sluice::remote {

HeldLease::HeldLease(Lease lease, Clock& clock, std::chrono::seconds length)
    : clock_(clock),
      interval_(std::chrono::milliseconds(length) / 4),
      path_(lease.path()),
      object_(ParseObject(path_).ValueOrThrow()),
      lease_(std::move(lease)),
      confirmed_(lease_.confirmed()),
      thread_([this] { Work(); }) {}

HeldLease::~HeldLease() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
  if (!lost()) lease_.Release();
}

void HeldLease::Work() {
  // Not by clock_: its time may pass only where somebody sleeps.
  using Steady = std::chrono::steady_clock;
  Steady::time_point next = Steady::now() + interval_;
  for (;;) {
    {
      MutexLock lock(mutex_);
      while (!stop_ && !hurry_ && Steady::now() < next) {
        changed_.WaitUntil(mutex_, next);
      }
      if (stop_) return;
      hurry_ = false;
    }
    next = Steady::now() + interval_;
    const Status renewed = lease_.Renew();
    MutexLock lock(mutex_);
    trouble_ = renewed;
    if (renewed.ok()) confirmed_ = lease_.confirmed();
    if (renewed.code() == Code::kFailedPrecondition) lost_ = renewed;
    changed_.NotifyAll();
    if (!lost_.ok()) return;
  }
}

Status HeldLease::Check(std::chrono::milliseconds patience) {
  using Steady = std::chrono::steady_clock;
  // Waiting for a server that does not answer must not ask it all the time.
  constexpr std::chrono::seconds kBetween(1);
  const auto end = Steady::now() + patience;
  MutexLock lock(mutex_);
  for (;;) {
    const std::string folder = ParentDirectory(path_);
    if (!lost_.ok()) {
      return Unavailable(fmt::format(
          "the lock of '{}' was lost, so that what is written there could "
          "overwrite another's: {}",
          folder, lost_.message()));
    }
    if (lease_.IsCertain(confirmed_, Lease::NowOf(clock_))) return {};
    if (Steady::now() >= end) {
      return Unavailable(fmt::format(
          "the lock of '{}' cannot be renewed, so that others may write there "
          "by now: {}",
          folder, trouble_.message()));
    }
    hurry_ = true;
    changed_.NotifyAll();
    changed_.WaitUntil(mutex_, std::min(end, Steady::now() + kBetween));
  }
}

bool HeldLease::lost() {
  MutexLock lock(mutex_);
  return !lost_.ok();
}

bool HeldLease::Covers(const ObjectPath& object) const {
  const std::string folder = object_.key.substr(0, object_.key.rfind('/') + 1);
  return object.bucket == object_.bucket && object.key.starts_with(folder);
}

void HeldLeases::Add(std::shared_ptr<HeldLease> lease) {
  MutexLock lock(mutex_);
  // It follows those that were lost.
  std::erase_if(leases_, [&](const auto& other) {
    return other->lost() && other->object().bucket == lease->object().bucket &&
           other->object().key == lease->object().key;
  });
  leases_.push_back(std::move(lease));
}

void HeldLeases::Remove(const std::shared_ptr<HeldLease>& lease) {
  if (lease->lost()) return;
  MutexLock lock(mutex_);
  std::erase(leases_, lease);
}

Status HeldLeases::Check(const ObjectPath& object,
                         std::chrono::milliseconds patience) {
  std::vector<std::shared_ptr<HeldLease>> covering;
  {
    MutexLock lock(mutex_);
    for (const auto& lease : leases_) {
      if (lease->Covers(object)) covering.push_back(lease);
    }
  }
  for (const auto& lease : covering) {
    SLUICE_RETURN_IF_ERROR(lease->Check(patience));
  }
  return {};
}

}  // namespace sluice::remote
