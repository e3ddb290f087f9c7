#include "dist/servers/attendance.h"

#include <fmt/format.h>

#include <cstddef>

#include "dist/membership/rank_name.h"

namespace sluice::dist {

Attendance::Attendance(int workers, Time come, std::chrono::milliseconds back)
    : come_(come), back_(back), workers_(static_cast<size_t>(workers)) {}

void Attendance::Came(int rank) {
  const MutexLock lock(mutex_);
  if (rank < 0 || static_cast<size_t>(rank) >= workers_.size()) return;
  workers_[static_cast<size_t>(rank)] = {.came = true};
}

void Attendance::Gone(int rank, const Status& why, Time now) {
  const MutexLock lock(mutex_);
  if (rank < 0 || static_cast<size_t>(rank) >= workers_.size()) return;
  Worker& worker = workers_[static_cast<size_t>(rank)];
  if (!worker.came || !worker.gone.ok()) return;
  worker.gone = why;
  worker.since = now;
}

void Attendance::TrainingEnded() {
  const MutexLock lock(mutex_);
  ended_ = true;
}

std::vector<int> Attendance::MissingNow() const {
  std::vector<int> missing;
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    if (!workers_[rank].came) missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

std::vector<int> Attendance::Missing() const {
  const MutexLock lock(mutex_);
  return MissingNow();
}

Result<bool> Attendance::Ended(Time now) const {
  const MutexLock lock(mutex_);
  if (ended_) return true;
  // Who went first: others may have gone because of it.
  const Worker* first = nullptr;
  for (const Worker& worker : workers_) {
    if (worker.gone.ok() || now - worker.since < back_) continue;
    if (first == nullptr || worker.since < first->since) first = &worker;
  }
  if (first != nullptr) {
    return Unavailable(
        fmt::format("{} is gone, and the training had not ended: {}",
                    RankName(static_cast<int>(first - workers_.data()),
                             static_cast<int>(workers_.size())),
                    first->gone.message()));
  }
  if (const std::vector<int> missing = MissingNow();
      !missing.empty() && now >= come_) {
    return Unavailable(fmt::format("{} of {} did not come", RankNames(missing),
                                   workers_.size()));
  }
  return false;
}

}  // namespace sluice::dist
