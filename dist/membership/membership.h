// A process's membership in its job, kept by a thread: it beats, whatever the
// other threads do, and hears what has been decided. In rank 0's process it is
// also the coordinator, which decides (leases.h).
#ifndef SLUICE_DIST_MEMBERSHIP_MEMBERSHIP_H_
#define SLUICE_DIST_MEMBERSHIP_MEMBERSHIP_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dist/membership/control.h"
#include "dist/membership/leases.h"
#include "dist/membership/stalls.h"
#include "dist/net/descriptor.h"
#include "dist/net/socket.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"

namespace sluice::dist {

// The lease: how long a silent process is believed to live, so that one that is
// lost is named within the timeout. Beats are some way apart, and come late
// from busy machines.
std::chrono::milliseconds LeaseOf(std::chrono::milliseconds peer_timeout);
// The time between two beats: several in a lease, and often enough to be seen
// in time.
std::chrono::milliseconds BeatOf(std::chrono::milliseconds lease);

// How long a silent process is believed to live: `lease` for a member, `first`
// for one that may still be joining. And after how long in a collective a rank
// is noted to wait (`stall`).
struct LeaseTimes {
  std::chrono::milliseconds lease, first, stall;
};

// The coordinator, from its making to its end, when it says goodbye to all that
// are left. The connections of the ranks are by rank; the first is rank 0's
// own.
class Coordinator {
 public:
  // The pipe, which does not block, is for its own use. `note`, which may be
  // empty, is told by its thread who keeps the others waiting, `hosts` as
  // stalls.h has them.
  Coordinator(std::vector<Socket> ranks, std::vector<std::string> hosts,
              uint32_t epoch, LeaseTimes times, Pipe ends,
              std::function<void(std::string_view)> note);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

 private:
  void Run();
  void Hear(int rank);
  std::chrono::milliseconds Stood();
  void Announce();
  void SayGoodbye();

  const uint32_t epoch_;
  const std::chrono::milliseconds lease_;
  // Used by the thread alone.
  std::vector<ControlChannel> ranks_;
  Leases leases_;
  Stalls stalls_;
  const std::function<void(std::string_view)> note_;
  bool announced_ = false;
  // When it last looked at the clock; how long it stood still, and until when
  // that is remembered.
  Deadline looked_;
  std::chrono::milliseconds stood_{0};
  Deadline stood_until_;
  Pipe ends_;  // closed at one end when it is to end
  std::thread thread_;
};

class Membership {
 public:
  // `coordinator` leads to the coordinator. The pipe, which does not block, is
  // for its own use.
  Membership(Socket coordinator, int rank, int size, uint32_t epoch,
             LeaseTimes times, Pipe wakes);
  // Says goodbye.
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // When an end has been decided, these are shut down, so that who waits for
  // them does no more, in place of those of the last call: copies of the
  // descriptors, which stay valid.
  void CutThen(std::vector<Descriptor> cut) EXCLUDES(mutex_);
  // Says that this rank is in a collective, its `run`th, until Returns.
  void Enters(uint64_t run, std::string_view collective) EXCLUDES(mutex_);
  void Returns() EXCLUDES(mutex_);
  // Says that this rank cannot go on because of `whom`. Returns what is
  // decided, at the latest after a lease and the moment that suspicions take.
  Status Suspect(int whom, const Status& why);
  // Gives up for a reason of this rank's own, when the coordinator has heard
  // it, or is given up. Returns the decision: that reason, or one that came
  // before.
  Status Fail(const Status& why);
  // The error that has been decided; ok where none has.
  Status decision() EXCLUDES(mutex_);
  // A descriptor with something to read once an end is decided that cuts.
  int apart() const { return apart_.get(); }

 private:
  void Run();
  void TakeWords() EXCLUDES(mutex_);
  // Beats; `time` has passed since the last beat.
  void Beat(std::chrono::milliseconds time) EXCLUDES(mutex_);
  // `cuts`: whether the data's sockets are shut down; a rank that leaves in
  // order breaks nothing that is still under way.
  void Decide(Status status, bool cuts = true) EXCLUDES(mutex_);
  void Post(ControlMessage message) EXCLUDES(mutex_);
  Status Await(Deadline deadline, const Status& otherwise) EXCLUDES(mutex_);

  const int rank_, size_;
  const uint32_t epoch_;
  const LeaseTimes times_;
  ControlChannel channel_;  // the thread's, once it runs
  Pipe wakes_;
  const Descriptor apart_;  // an eventfd
  Mutex mutex_;
  CondVar decides_;
  std::vector<ControlMessage> words_ GUARDED_BY(mutex_);  // to be said
  std::optional<Status> decision_ GUARDED_BY(mutex_);
  bool cuts_ GUARDED_BY(mutex_) = false;
  std::vector<Descriptor> cut_ GUARDED_BY(mutex_);
  // The last collective, and for how long this rank has been in it.
  uint64_t run_ GUARDED_BY(mutex_) = 0;
  std::string collective_ GUARDED_BY(mutex_);  // empty: in none
  std::chrono::milliseconds inside_ GUARDED_BY(mutex_){0};
  std::thread thread_;
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_MEMBERSHIP_MEMBERSHIP_H_
