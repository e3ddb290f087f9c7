// Records which workers of its job a parameter server has seen come and go.
// Where no launcher ends servers they end themselves by this record: when the
// training has ended, or when a worker stays away.
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
  // and one that is gone has `back` to return.
  Attendance(int workers, Time come, std::chrono::milliseconds back);

  // A worker has come, or is gone. Ranks that no worker has are ignored.
  void Came(int rank);
  void Gone(int rank, const Status& why, Time now);
  void TrainingEnded();

  // Whether the training has ended. kUnavailable, which names the ranks, where
  // it will not, since a worker has not come or stays away.
  Result<bool> Ended(Time now) const;
  // The ranks of the workers that have never come.
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
