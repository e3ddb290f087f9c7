#include "engine/runtime/local_rendezvous.h"

#include <fmt/format.h>

#include <utility>

#include "engine/runtime/local_exchange.h"

namespace sluice {
namespace {

// Exchanges kept for coming runs. As long as there are fewer than kAhead, a new
// one is made: the copies of the last runs may be under way.
constexpr size_t kSpare = 8;
constexpr size_t kAhead = 2;

}  // namespace

LocalRendezvous::LocalRendezvous(uint64_t epoch) : epoch_(epoch) {}
LocalRendezvous::~LocalRendezvous() = default;

void LocalRendezvous::AddDevices(std::span<const OwnMemory> devices) {
  Reached pairs;
  for (const OwnMemory& to : devices) {
    const Accelerator::Turn turn(*to.accelerator);
    for (const OwnMemory& from : devices) {
      if (to.device != from.device &&
          to.accelerator->Reaches(*from.accelerator)) {
        pairs.emplace(to.device, from.device);
      }
    }
  }
  if (pairs.empty()) return;
  MutexLock lock(mutex_);
  pairs.insert(reached_->begin(), reached_->end());
  reached_ = std::make_shared<Reached>(std::move(pairs));
}

void LocalRendezvous::RemoveDevices(std::span<const OwnMemory> devices) {
  if (devices.empty()) return;
  Exchanges spare;  // may have copies and memory of these devices
  MutexLock lock(mutex_);
  spare.swap(spare_);
  Reached left = *reached_;
  for (const OwnMemory& gone : devices) {
    std::erase_if(left, [&](const auto& pair) {
      return pair.first == gone.device || pair.second == gone.device;
    });
  }
  if (left.size() == reached_->size()) return;
  reached_ = std::make_shared<Reached>(std::move(left));
}

RunKey LocalRendezvous::NewRun() {
  MutexLock lock(mutex_);
  return {epoch_, ++last_run_};
}

LocalRendezvous::LocalExchange& LocalRendezvous::FindOrBegin(
    const RunKey& run) {
  for (const auto& exchange : runs_) {
    if (exchange->key() == run) return *exchange;
  }
  if (spare_.size() < kAhead) {
    runs_.push_back(std::make_unique<LocalExchange>());
  } else {
    runs_.push_back(std::move(spare_.front()));
    spare_.erase(spare_.begin());
  }
  runs_.back()->Begin(run, reached_);
  return *runs_.back();
}

void LocalRendezvous::End(Exchanges::iterator run) {
  if (spare_.size() < kSpare) spare_.push_back(std::move(*run));
  runs_.erase(run);
}

Result<Exchange*> LocalRendezvous::Join(const RunKey& run, int edges, int parts,
                                        TimePoint deadline) {
  LocalExchange* exchange = nullptr;
  {
    MutexLock lock(mutex_);
    if (run.epoch != epoch_) {
      return FailedPrecondition(fmt::format("run {} is of epoch {}, now is {}",
                                            run.run, run.epoch, epoch_));
    }
    exchange = &FindOrBegin(run);
    if (!exchange->Join(parts)) exchange = nullptr;
  }
  if (exchange != nullptr && exchange->Prepare(edges, deadline)) {
    return exchange;
  }
  if (exchange != nullptr) Leave(run);
  return Internal(fmt::format("run {} was joined for another step", run.run));
}

void LocalRendezvous::Leave(const RunKey& run) {
  MutexLock lock(mutex_);
  for (auto it = runs_.begin(); it != runs_.end(); ++it) {
    if (!((*it)->key() == run)) continue;
    const bool last = (*it)->Leave();
    // Of an epoch that is over nobody else will join.
    const bool over = run.epoch != epoch_ && !(*it)->anyone();
    if (last || over) End(it);
    return;
  }
}

void LocalRendezvous::Abort(const RunKey& run, const Status& status) {
  MutexLock lock(mutex_);
  if (run.epoch == epoch_) FindOrBegin(run).Abort(status);
}

void LocalRendezvous::BeginEpoch(uint64_t epoch) {
  MutexLock lock(mutex_);
  epoch_ = epoch;
  for (size_t i = runs_.size(); i-- > 0;) {
    LocalExchange& exchange = *runs_[i];
    if (exchange.key().epoch == epoch) continue;
    exchange.Abort(Cancelled(fmt::format("epoch {} has begun", epoch)));
    // Nobody will join it any more.
    if (!exchange.anyone()) End(runs_.begin() + static_cast<int64_t>(i));
  }
}

}  // namespace sluice
