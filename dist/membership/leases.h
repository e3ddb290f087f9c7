// Decides which ranks are still in a job: in one place, from what all ranks
// show and say, and once.
#ifndef SLUICE_DIST_MEMBERSHIP_LEASES_H_
#define SLUICE_DIST_MEMBERSHIP_LEASES_H_

#include <chrono>
#include <optional>
#include <vector>

#include "engine/status.h"

namespace sluice::dist {

// No clock, no connections and no thread: what happens is told, and how much
// time passes.
//
// A rank that is silent for longer than its lease, or whose connection ends
// without a goodbye, is lost; that ends the job. A rank that finds another
// silent or gone only suspects it: that one may be stopped, which its lease
// shows, or have ended because of a third, which shows within a moment. Where
// neither does, the way between the two is cut.
class Leases {
 public:
  // `first` is the lease of who has not been heard yet.
  Leases(int size, std::chrono::milliseconds lease,
         std::chrono::milliseconds first);

  void Heard(int rank);
  // A rank's connection has ended, after the coordinator had stood still for
  // `stood`. From about a lease on that is the reason: ranks have given up the
  // coordinator, and ended.
  void Ended(int rank,
             std::chrono::milliseconds stood = std::chrono::milliseconds(0));
  // A rank has said goodbye: that is no error, unless another needs it.
  void Left(int rank);
  // A rank gives up, for a reason of its own.
  void Failed(int rank, Status why);
  // A rank cannot go on because of rank `whom`.
  void Suspects(int rank, int whom, Status why);
  void Pass(std::chrono::milliseconds time);

  // The error of all ranks, once there is one; it does not change.
  const std::optional<Status>& verdict() const { return verdict_; }

 private:
  struct Member {
    std::chrono::milliseconds silent{0};  // below 0: has more than a lease
    bool left = false;
    int suspects = -1;
    Status why;                          // of the suspicion
    std::chrono::milliseconds since{0};  // that it was said
  };

  void Decide(Status status);
  void DecideSuspicion(int rank);

  const std::chrono::milliseconds lease_;
  std::vector<Member> members_;
  std::optional<Status> verdict_;
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_MEMBERSHIP_LEASES_H_
