#include "dist/nccl/nccl_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "dist/membership/rank_name.h"
#include "dist/net/descriptor.h"
#include "dist/net/frame.h"
#include "engine/caught.h"
#include "engine/device.h"

namespace sluice::dist {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks: a small part of the least peer timeout, a second.
constexpr auto kLook = std::chrono::milliseconds(20);
// To record costs as much as some runs without: ranks that come to other pairs
// of steps each time shall not do it each time.
constexpr uint32_t kMissedRuns = 3;
// The longest error that others are told of at the start.
constexpr size_t kText = 400;

Status ByRank(const Status& error, int rank, int size) {
  return error.WithContext(RankName(rank, size));
}

}  // namespace

// What ranks tell each other before they join.
struct NcclGroup::Mine {
  int32_t code = 0;  // of what is wrong; 0: nothing
  int32_t local_size = 1;
  int32_t may_leave_host = 0;
  char what[kText] = {};
};

NcclGroup::NcclGroup(std::shared_ptr<Collective> host, const Options& options)
    : host_(std::move(host)),
      options_(options),
      device_(DeviceName{.type = DeviceType::kCuda, .index = options.device}
                  .ToString()) {}

Result<std::unique_ptr<NcclGroup>> NcclGroup::Join(
    std::shared_ptr<Collective> host, const DeviceGroups& by,
    const Options& options) {
  std::unique_ptr<NcclGroup> group(new NcclGroup(std::move(host), options));
  Status status;
  try {
    status = group->JoinGpus(by);
  } catch (...) {
    status = CaughtStatus();
  }
  if (!status.ok()) {
    group->Leave(status);
    return status.WithContext("--transport nccl");
  }
  group->looks_ = std::thread([g = group.get()] { g->Look(); });
  return group;
}

Status NcclGroup::AllReady(const DeviceGroups& by) {
  Mine mine;
  mine.local_size = options_.local_size;
  mine.may_leave_host = options_.allow_plaintext ? 1 : 0;
  if (const Status ready = by.check(); !ready.ok()) {
    mine.code = static_cast<int32_t>(ready.code());
    ready.message().copy(mine.what, kText - 1);
  }
  std::vector<Mine> all(static_cast<size_t>(size()));
  SLUICE_RETURN_IF_ERROR(
      AllGather("NCCL: who is ready", &mine, sizeof(mine), all.data()));
  for (int rank = 0; rank < size(); ++rank) {
    Mine& one = all[static_cast<size_t>(rank)];
    one.what[kText - 1] = '\0';
    if (one.code != 0) {
      return ByRank(Unavailable(one.what), rank, size());
    }
    if (one.local_size < size() && one.may_leave_host == 0) {
      return FailedPrecondition(
          "NCCL sends what goes to other hosts in the clear; "
          "--allow-plaintext says that it may");
    }
  }
  return {};
}

Status NcclGroup::JoinGpus(const DeviceGroups& by) {
  SLUICE_RETURN_IF_ERROR(AllReady(by));
  DevicePlace place = {.device = options_.device,
                       .rank = rank(),
                       .size = size(),
                       .beside = options_.beside};
  if (rank() == 0) {
    SLUICE_ASSIGN_OR_RETURN(place.id, by.make_id());
  }
  int64_t bytes = static_cast<int64_t>(place.id.size());
  SLUICE_RETURN_IF_ERROR(Broadcast("NCCL: the id's size", &bytes, 8, 0));
  if (bytes < 0 || bytes > 4096) {
    return DataLoss(fmt::format("an id of NCCL's of {} bytes", bytes));
  }
  place.id.resize(static_cast<size_t>(bytes));
  SLUICE_RETURN_IF_ERROR(Broadcast("NCCL: the id", place.id.data(), bytes, 0));
  Result<std::unique_ptr<DeviceGroup>> joined = by.join(place);
  if (!joined.ok()) return ByRank(joined.status(), rank(), size());
  group_ = *std::move(joined);
  const Deadline deadline = After(options_.join_timeout);
  while (true) {
    const Result<bool> formed = group_->Formed();
    if (!formed.ok()) return ByRank(formed.status(), rank(), size());
    if (*formed) break;
    SLUICE_RETURN_IF_ERROR(host_->Check());
    if (Clock::now() > deadline) {
      return DeadlineExceeded(
          fmt::format("{}: NCCL has not connected the GPUs within {} ms; "
                      "NCCL_DEBUG=INFO says what it is at",
                      RankName(rank(), size()), options_.join_timeout.count()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Barrier("NCCL: all GPUs are there");
}

NcclGroup::~NcclGroup() {
  // A rank that has nothing more to do may still be what others wait for.
  if (needed_ && Failure().ok()) {
    (void)Barrier("NCCL: the end").ok();
  }
  {
    MutexLock lock(mutex_);
    ends_ = true;
    changed_.NotifyAll();
  }
  if (looks_.joinable()) looks_.join();
}

void NcclGroup::Fail(const Status& why) {
  {
    MutexLock lock(mutex_);
    if (!failed_.ok()) return;
    failed_ = why;
    changed_.NotifyAll();
  }
  if (group_ != nullptr) group_->Abort(why);
}

Status NcclGroup::Failure() {
  MutexLock lock(mutex_);
  return failed_;
}

Status NcclGroup::HostSays() {
  if (options_.watch != nullptr) {
    MutexLock lock(watch_);
    SLUICE_RETURN_IF_ERROR(options_.watch->Check());
  }
  if (!calls_.TryLock()) return {};  // who calls it hears
  Status status;
  if (host_started_ == 0) status = host_->Check();
  calls_.Unlock();
  return status;
}

Status NcclGroup::WhatIsWrong() {
  Status status = HostSays();
  if (!status.ok()) return status;
  status = group_->Check();
  if (status.ok()) return {};
  // What is under way does not end by itself.
  group_->Abort(status);
  {
    MutexLock lock(mutex_);
    naming_ = true;
  }
  const Deadline deadline = After(options_.naming);
  while (Clock::now() < deadline) {
    Status gone = HostSays();
    if (!gone.ok()) return gone;
    std::this_thread::sleep_for(kLook);
  }
  return Tell(status);
}

Status NcclGroup::Tell(const Status& error) {
  Status said;
  if (options_.watch != nullptr) {
    MutexLock lock(watch_);
    options_.watch->Leave(error);
    said = options_.watch->Check();
  } else {
    MutexLock lock(calls_);
    host_->Leave(error);
    said = host_->Check();
  }
  return said.ok() ? ByRank(error, rank(), size()) : said;
}

// The thread that looks.
void NcclGroup::Look() {
  std::optional<Clock::time_point> aborted;
  while (true) {
    bool failed, under_way;
    {
      MutexLock lock(mutex_);
      if (!ends_) changed_.WaitUntil(mutex_, Clock::now() + kLook);
      if (ends_) return;
      failed = !failed_.ok();
      under_way = under_way_;
    }
    if (!failed) {
      const Status wrong = WhatIsWrong();
      if (!wrong.ok()) Fail(wrong);
      continue;
    }
    if (!aborted || !under_way) aborted = Clock::now();
    if (Clock::now() - *aborted < options_.abort_timeout) continue;
    const std::string line = fmt::format(
        "{}: the GPU has not ended what NCCL was told to abort {} ms ago; this "
        "process ends",
        RankName(rank(), size()), options_.abort_timeout.count());
    if (!options_.give_up) std::_Exit(EXIT_FAILURE);
    options_.give_up(line);
    return;
  }
}

Status NcclGroup::Outcome() {
  const Status found = Failure().ok() ? group_->Check() : Status();
  MutexLock lock(mutex_);
  under_way_ = false;
  if (!found.ok()) naming_ = true;
  while (naming_ && failed_.ok() && !ends_) changed_.Wait(mutex_);
  return failed_;
}

Result<DeviceRun> NcclGroup::Agree(const DeviceRunOffer& offer) {
  struct Side {
    uint64_t key, recorded;
    uint32_t may_record, missed;
  };
  const Side mine = {Key(offer.exchanges), offer.recorded,
                     offer.may_record ? 1U : 0U, offer.missed};
  std::vector<Side> all(static_cast<size_t>(size()));
  const Status met = OnHost([&] {
    Status gathered = host_->AllGather("NCCL: the run that comes", &mine,
                                       sizeof(mine), all.data());
    if (!gathered.ok()) return gathered;
    const bool same = std::all_of(all.begin(), all.end(), [&](const Side& s) {
      return s.key == mine.key;
    });
    return same ? Status() : Differ(offer.exchanges);
  });
  SLUICE_RETURN_IF_ERROR(met);
  needed_ = true;
  {
    MutexLock lock(mutex_);
    under_way_ = true;
  }
  const auto all_are = [&](const auto& is) {
    return std::all_of(all.begin(), all.end(), is);
  };
  if (!all_are([](const Side& s) { return s.may_record != 0; })) {
    return DeviceRun::kAdd;
  }
  if (all_are([&](const Side& s) { return s.recorded == all[0].recorded; })) {
    return all[0].recorded == 0 ? DeviceRun::kRecord : DeviceRun::kReplay;
  }
  const bool anew =
      all_are([](const Side& s) { return s.missed >= kMissedRuns; });
  return anew ? DeviceRun::kRecord : DeviceRun::kAdd;
}

// Ranks are at different steps: which of the exchanges is the first that
// differs.
Status NcclGroup::Differ(std::string_view exchanges) {
  const auto mine = static_cast<int64_t>(exchanges.size());
  std::vector<int64_t> sizes(static_cast<size_t>(size()));
  SLUICE_RETURN_IF_ERROR(
      host_->AllGather("NCCL: how many exchanges", &mine, 8, sizes.data()));
  const int64_t each = *std::max_element(sizes.begin(), sizes.end());
  std::string text(exchanges), all;
  text.resize(static_cast<size_t>(each));
  all.resize(text.size() * sizes.size());
  SLUICE_RETURN_IF_ERROR(
      host_->AllGather("NCCL: which exchanges", text.data(), each, all.data()));
  const auto of = [&](size_t rank) {
    return std::string_view(all).substr(rank * text.size(),
                                        static_cast<size_t>(sizes[rank]));
  };
  size_t other = 1;
  while (other + 1 < sizes.size() && of(other) == of(0)) ++other;
  const std::string_view a = of(0), b = of(other);
  size_t line = 0;  // where the first that differs begins
  for (size_t i = 0; i < std::min(a.size(), b.size()) && a[i] == b[i]; ++i) {
    if (a[i] == '\n') line = i + 1;
  }
  const auto at = [&](std::string_view text_of) {
    const std::string_view rest =
        text_of.substr(std::min(line, text_of.size()));
    return rest.empty() ? "the end"
                        : std::string(rest.substr(0, rest.find('\n')));
  };
  return FailedPrecondition(
      fmt::format("ranks are at different steps: {} at {}, rank {} at {}",
                  RankName(0, size()), at(a), other, at(b)));
}

Result<uint64_t> NcclGroup::Recorded(bool made) {
  const uint8_t mine = made ? 1 : 0;
  std::vector<uint8_t> all(static_cast<size_t>(size()));
  SLUICE_RETURN_IF_ERROR(AllGather("NCCL: a recording", &mine, 1, all.data()));
  ++recordings_;
  const bool whole = std::count(all.begin(), all.end(), 1) == size();
  return whole ? recordings_ : 0;
}

Status NcclGroup::Check() {
  SLUICE_RETURN_IF_ERROR(Failure());
  return OnHost([&] { return host_->Check(); });
}

void NcclGroup::Leave(const Status& failure) {
  {
    // Which may be a part of it.
    MutexLock watch(watch_);
    MutexLock lock(calls_);
    host_->Leave(failure);
  }
  Fail(failure);
}

}  // namespace sluice::dist
