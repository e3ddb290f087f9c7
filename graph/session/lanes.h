// Where the runs of a session take place: so many may be under way at once,
// each in a lane of its own; more wait for their turn.
#ifndef SLUICE_GRAPH_SESSION_LANES_H_
#define SLUICE_GRAPH_SESSION_LANES_H_

#include <map>
#include <memory>
#include <vector>

#include "engine/device.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/step_threads.h"
#include "engine/thread_annotations.h"

namespace sluice {

// What one run needs for itself. Its index and `stop` are anybody's; the rest
// is for who has taken it.
struct Lane {
  int index = 0;
  std::map<const Device*, std::unique_ptr<Arena>> arenas;
  StepThreads threads;
  StepStop stop;  // has a lock of its own: Cancel comes from other threads
};

// Thread-safe. Borrows the devices.
class Lanes {
 public:
  // The lanes' arenas are in the memory of the devices.
  void Open(int count, const std::vector<std::unique_ptr<Device>>& devices);
  int count() const { return static_cast<int>(lanes_.size()); }
  const Lane& lane(int index) const { return *lanes_[index]; }
  // Ends the runs under way.
  void Stop(const Status& status);

  // Holds a lane for a scope: the first that is free, in no order among those
  // that wait.
  class Turn {
   public:
    explicit Turn(Lanes& lanes) : lanes_(lanes), lane_(lanes.Take()) {}
    ~Turn() { lanes_.Give(lane_); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    Lane& lane() const { return lane_; }

   private:
    Lanes& lanes_;
    Lane& lane_;
  };
  // Holds all of them, so that no run is under way; goes before those that wait
  // for one. Not for who holds a turn.
  class AllTurns {
   public:
    explicit AllTurns(Lanes& lanes) : lanes_(lanes) { lanes_.TakeAll(); }
    ~AllTurns() { lanes_.GiveAll(); }
    AllTurns(const AllTurns&) = delete;
    AllTurns& operator=(const AllTurns&) = delete;
    const std::vector<std::unique_ptr<Lane>>& lanes() const {
      return lanes_.lanes_;
    }

   private:
    Lanes& lanes_;
  };

 private:
  Lane& Take() EXCLUDES(mutex_);
  void Give(const Lane& lane) EXCLUDES(mutex_);
  void TakeAll() EXCLUDES(mutex_);
  void GiveAll() EXCLUDES(mutex_);

  std::vector<std::unique_ptr<Lane>> lanes_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<bool> taken_ GUARDED_BY(mutex_);  // parallel to lanes_
  int want_all_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_SESSION_LANES_H_
