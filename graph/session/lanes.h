// The lanes in which a session's runs take place: as many runs as there are
// lanes may be under way at once, each in its own; more wait for their turn.
//
// A run keeps its lane, and with it its arenas, from its turn to its end, also
// while it waits for another process: what it has computed cannot move. It
// keeps nothing else then: its parts have given their threads back
// (engine/runtime/step_threads.h; but for the one in which the caller of Run
// waits, which is the caller's) and between instructions hold no lock.
//
// So the lanes are what runs could block each other with: were the only lane of
// one process taken by run 1 and that of another by run 2, each would wait for
// the other for good. Therefore turns have places in one line, and are granted
// in that order. Where processes give the same runs places in the same order,
// with none left out, the earliest run under way has its turn in each of them
// sooner or later, since only earlier ones, which are over, came before.
#ifndef SLUICE_GRAPH_SESSION_LANES_H_
#define SLUICE_GRAPH_SESSION_LANES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/device.h"
#include "engine/runtime/executor.h"
#include "engine/thread_annotations.h"

namespace sluice {

// What one run needs for itself. Any thread may use `index` and `stop`; the
// rest is for the thread that has taken the lane.
struct Lane {
  int index = 0;
  std::map<const Device*, std::unique_ptr<Arena>> arenas;
  StepStop stop;  // has a lock of its own: Cancel comes from other threads
};

// Thread-safe. Borrows the devices.
class Lanes {
 public:
  // The lanes' arenas are in the memory of the devices.
  void Open(int count, const std::vector<std::unique_ptr<Device>>& devices);
  int count() const { return static_cast<int>(lanes_.size()); }
  const Lane& lane(int index) const { return *lanes_[index]; }
  // Ends the runs under way, with `status`.
  void Stop(const Status& status);
  // Ends `run` if it is under way.
  void Stop(const RunKey& run, const Status& status);

  // Waits in line for a lane: until all earlier places have had their turn and
  // a lane is free. The place is the last in the line or, if the caller numbers
  // places 0, 1, 2, ..., `place`. Any thread may give the lane back.
  Lane& Take() EXCLUDES(mutex_);
  Lane& Take(uint64_t place) EXCLUDES(mutex_);
  // Take() without waiting: null where it would wait.
  Lane* TryTake() EXCLUDES(mutex_);
  void Give(const Lane& lane) EXCLUDES(mutex_);

  // Holds a lane for a scope.
  class Turn {
   public:
    explicit Turn(Lanes& lanes) : lanes_(lanes), lane_(&lanes.Take()) {}
    ~Turn() {
      if (lane_ != nullptr) lanes_.Give(*lane_);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    Lane& lane() const { return *lane_; }
    // Leaves it to others to give the lane back.
    void Release() { lane_ = nullptr; }

   private:
    Lanes& lanes_;
    Lane* lane_;
  };
  // Holds all lanes for a scope, so that no run is under way; goes before those
  // that wait for one lane. The caller must not hold a Turn.
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
  Lane& Await(uint64_t place) REQUIRES(mutex_);
  void TakeAll() EXCLUDES(mutex_);
  void GiveAll() EXCLUDES(mutex_);

  std::vector<std::unique_ptr<Lane>> lanes_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<bool> taken_ GUARDED_BY(mutex_);  // parallel to lanes_
  uint64_t next_place_ GUARDED_BY(mutex_) = 0;  // the next that Take gives out
  uint64_t next_turn_ GUARDED_BY(mutex_) = 0;   // the place whose turn it is
  int want_all_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_SESSION_LANES_H_
