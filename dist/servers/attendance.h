// Which workers of its job a parameter server has seen come and go. Where no
// launcher ends servers they end by it: when the training has, or when a worker
// stays away.
#ifndef SLUICE_DIST_SERVERS_ATTENDANCE_H_
#define SLUICE_DIST_SERVERS_ATTENDANCE_H_

#include <chrono>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// Rank 0's word to each server that the training has ended in order
// (WorkerOptions::answer).
inline constexpr std::string_view kTrainingEnded = R"({"training": "ended"})";

// Thread-safe.
class Attendance {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Ranks 0 to `workers` - 1 have until `come` to be here for the first time,
  // and one that is gone so long to be back.
  Attendance(int workers, Time come, std::chrono::milliseconds back);

  // Any rank; what is none is nobody's worker and passed over.
  void Came(int rank);
  void Gone(int rank, const Status& why, Time now);
  void TrainingEnded();

  // Whether the training has ended. kUnavailable, which names the ranks, where
  // it will not: one has not come, or stays away.
  Result<bool> Ended(Time now) const;
  // Those that were never here.
  std::vector<int> Missing() const;

 private:
  struct Worker {
    bool came = false;
    Status gone = {};  // why; ok: it is here, or has not come
    Time since = {};   // that it is
  };
  std::vector<int> MissingNow() const REQUIRES(mutex_);

  const Time come_;
  const std::chrono::milliseconds back_;
  mutable Mutex mutex_;
  bool ended_ GUARDED_BY(mutex_) = false;
  std::vector<Worker> workers_ GUARDED_BY(mutex_);
};

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_SERVERS_ATTENDANCE_H_
