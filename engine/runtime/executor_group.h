// Several accelerators' parts of a step as one captured work.
#ifndef SLUICE_ENGINE_RUNTIME_EXECUTOR_GROUP_H_
#define SLUICE_ENGINE_RUNTIME_EXECUTOR_GROUP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/accelerator.h"
#include "engine/runtime/captured_exchange.h"
#include "engine/runtime/executor.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"

namespace sluice {

// Parts that send to each other alone, on accelerators of which each reaches
// the memory of those that send to it. One thread runs them: the first time in
// turns, through the rendezvous, each as far as what the others have sent lets
// it; then all of them are captured as one, with their sends and receives as
// copies from where the sender has the tensor to where the receiver wants it.
// Every wait between devices is an edge within that work, so none can be passed
// too early, and none waits for the host: a run is launched as a whole or not
// at all, and what aborts it has nothing to wake.
//
// What the host takes part in (a part on a CPU, another process, a collective)
// cannot be in such a work: parts that have any of it are no group, and are
// replayed in segments.
class ExecutorGroup {
 public:
  // A group of `members`; null if they cannot be one. Uses the accelerators.
  static std::unique_ptr<ExecutorGroup> Make(
      const std::vector<Executor*>& members);
  ~ExecutorGroup();
  ExecutorGroup(const ExecutorGroup&) = delete;
  ExecutorGroup& operator=(const ExecutorGroup&) = delete;

  // Runs the members to the end of the run, as Executor::Resume does. Begin
  // must have been called for all members, with the same stop.
  void Run();
  // As Executor::why_not_captured.
  std::string why_not_captured() const {
    MutexLock lock(why_mutex_);
    return why_not_captured_;
  }

 private:
  struct Piece {
    Executor* member = nullptr;
    uint32_t begin = 0, end = 0;
  };

  explicit ExecutorGroup(const std::vector<Executor*>& members);
  void RunInTurn(size_t first);
  void RunHeld();
  bool FindEdges();
  bool FindOrder();
  bool MayReplay() const;
  void RunInTurns();
  Status Replay();
  Status Launch();
  Status Capture();
  Status Record(CapturedExchange& exchange);
  static Status RecordPiece(const Piece& piece, CapturedExchange& exchange);
  Status Fork();
  Status Join();
  Status MakeEvents();

  Accelerator& First() const { return *members_[0]->device_.accelerator(); }

  const std::vector<Executor*> members_;
  // Their accelerators in the order in which all who need several take turns.
  std::vector<Accelerator*> turns_;
  std::vector<CapturedExchange::Pair> edges_;
  // All instructions, no wait before its edge's starts.
  std::vector<Piece> order_;
  // By member: how far its compute queue is.
  std::vector<Accelerator::Event> reached_;
  std::unique_ptr<CapturedWork> work_;
  bool refused_ = false;
  mutable Mutex why_mutex_;
  std::string why_not_captured_ GUARDED_BY(why_mutex_);
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_EXECUTOR_GROUP_H_
