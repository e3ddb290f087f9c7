// The rendezvous of a task whose steps have parts in other tasks.
//
// An edge from task to task is one question and one answer:
//
//   the receiver   want      there is a place for the edge's tensor; its name
//   the sender     tensor    the edge, the sender's incarnation, the bytes
//
// in either order of readiness: a want that comes before the sender's part has
// joined is kept, and what is sent before it is wanted stays where it is, or,
// when the part needs that memory, in a copy. So nobody receives what there is
// no place for, and what waits for a slow task is at most what the runs under
// way send it.
//
// What an accelerator sends is such a copy from the beginning: in pinned
// memory, offered as soon as it is there. What it is to receive is wanted as
// soon as there is pinned memory for it, and copied from there when the part
// comes to its wait (dist/rendezvous/device_transfers.h).
#ifndef SLUICE_DIST_RENDEZVOUS_LINKED_RENDEZVOUS_H_
#define SLUICE_DIST_RENDEZVOUS_LINKED_RENDEZVOUS_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/rendezvous/device_transfers.h"
#include "dist/rendezvous/link.h"
#include "engine/runtime/busy_clock.h"
#include "engine/runtime/local_rendezvous.h"
#include "engine/runtime/rendezvous.h"
#include "engine/thread_annotations.h"

namespace sluice::dist {

// The mark of an edge's name, of 31 bits, that a want carries: it differs where
// tasks that each cut a step for themselves do not mean the same edge.
int MarkOf(const Edge& edge);

// `note` is called when a run's receive or send has waited for `after` for a
// task that lives, and again each time that as much more has passed, with a
// line, without a newline, on the one that has waited longest. It may be empty.
struct StallNotes {
  std::chrono::milliseconds after = std::chrono::seconds(10);
  std::function<void(std::string_view)> note = nullptr;
};

// Devices that no link leads to are this task's; `parts`, of Join, counts the
// parts of this task. Accelerators that send to or receive from other tasks are
// those of AddDevices. An abort reaches every task that has a part in the run,
// as far as this one has dealings with it, and so on; the end of a link aborts
// the runs that need it with an error that names the peer. Of runs that others
// speak of and nobody here has begun the newest are remembered, a thousand at
// least; older ones are aborted.
class LinkedRendezvous final : public Rendezvous {
 public:
  // Called, without locks held, for aborts that come from other tasks.
  using Told = std::function<void(const RunKey&, const Status&)>;
  // `name` is the task's, which others are told with its errors; may be empty.
  explicit LinkedRendezvous(uint64_t epoch = 0, Told told = nullptr,
                            std::string name = "", StallNotes stalls = {});
  ~LinkedRendezvous() override;

  bool tells() const override { return true; }
  void AddDevices(std::span<const OwnMemory> devices) override;
  void RemoveDevices(std::span<const OwnMemory> devices) override;
  // Numbers begin at random, so that tasks need not agree on them.
  RunKey NewRun() override;
  Result<sluice::Exchange*> Join(const RunKey& run, int edges, int parts,
                                 TimePoint deadline) override;
  void Leave(const RunKey& run) override;
  void Abort(const RunKey& run, const Status& status) override;
  void BeginEpoch(uint64_t epoch) override;

  // From now on the link leads to the devices of these incarnations, until
  // Forget, which is to be called when no run needs them any more.
  // kResourceExhausted where links lead to as many as they may.
  Status Reach(const std::vector<uint64_t>& devices,
               const std::shared_ptr<Link>& link);
  void Forget(const std::vector<uint64_t>& devices);
  // Says that the run needs the link's task, whatever it sends to it, until
  // Release, which comes when the run is over everywhere. An error where the
  // link has ended, or the run was aborted before, of which the task is told:
  // it may wait for this one already.
  Status Needs(const RunKey& run, const std::shared_ptr<Link>& link);
  void Release(const RunKey& run);
  // For a link's owner: a frame of kTensor, kWant or kAbort, and the end.
  Status Take(Link& link, const Frame& frame);
  void Ended(Link& link, const Status& why);
  // For a link's owner, at each beat: notes who has waited for long. Time in
  // which this process did not run does not count: at most half a second
  // between two looks does.
  void Look(TimePoint now);
  // Seconds in which some receive or send has waited for another task so far; a
  // wait that is under way counts when it has ended.
  double seconds() const { return waiting_.seconds(); }
  // For tests: runs under way or remembered, and devices that links lead to.
  size_t runs() const;
  size_t ways() const;

 private:
  class Run;
  using RunPtr = std::shared_ptr<Run>;
  using Id = std::pair<uint64_t, uint64_t>;

  std::shared_ptr<Link> LinkTo(uint64_t device) const;
  // The transfers of a device of AddDevices, valid until it is removed; null
  // for the host's memory.
  Result<DeviceTransfers*> TransfersOf(const Edge& edge,
                                       const DeviceView& view);
  RunPtr Find(const RunKey& key) const;
  RunPtr FindOrBegin(const RunKey& key) REQUIRES(mutex_);
  void AbortFrom(const RunKey& key, const Status& status, const Link* origin);
  void EraseIfOver(const RunPtr& run);
  void GiveUpOldest() EXCLUDES(mutex_);

  LocalRendezvous local_;
  const Told told_;
  const std::string name_;  // "/job:worker/task:1"
  const StallNotes stalls_;
  BusyClock waiting_;  // is some run's receive or send?
  mutable Mutex mutex_;
  uint64_t epoch_ GUARDED_BY(mutex_);
  uint64_t last_run_ GUARDED_BY(mutex_);
  std::map<Id, RunPtr> runs_ GUARDED_BY(mutex_);
  // Runs that nobody had joined when other tasks spoke of them first, the
  // oldest first; also those that have begun since, or are over, until there
  // are many.
  std::deque<Id> early_ GUARDED_BY(mutex_);
  // The time of the last Look, and for how long this process had run by then.
  TimePoint looked_ GUARDED_BY(mutex_);
  TimePoint::duration ran_ GUARDED_BY(mutex_){0};
  mutable Mutex links_mutex_;
  std::map<uint64_t, std::shared_ptr<Link>> links_ GUARDED_BY(links_mutex_);
  // The sessions of a container have one accelerator in common.
  struct OwnAccelerator {
    int devices = 0;
    std::unique_ptr<DeviceTransfers> transfers;  // when it is first needed
  };
  // Number of wants of all runs that nobody has joined.
  const std::shared_ptr<std::atomic<size_t>> early_wants_ =
      std::make_shared<std::atomic<size_t>>(0);
  Mutex accelerators_mutex_;
  std::map<const Accelerator*, OwnAccelerator> accelerators_
      GUARDED_BY(accelerators_mutex_);
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_RENDEZVOUS_LINKED_RENDEZVOUS_H_
