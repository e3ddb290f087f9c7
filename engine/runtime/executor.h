// Runs a Plan: in schedule order by the calling thread, whose kernels use all
// compute threads; or by dependency counts on several threads, each kernel on
// one; or on an accelerator, where the calling thread adds the kernels to a
// queue, once, and from then on the step as captured: as a whole, or in
// segments between the instructions that the host takes part in.
#ifndef SLUICE_ENGINE_RUNTIME_EXECUTOR_H_
#define SLUICE_ENGINE_RUNTIME_EXECUTOR_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/runtime/checked_run.h"
#include "engine/runtime/device_meeting.h"
#include "engine/runtime/plan.h"
#include "engine/runtime/rendezvous.h"
#include "engine/runtime/staging.h"
#include "engine/runtime/trace.h"
#include "engine/runtime/variable_locks.h"
#include "engine/runtime/waker.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"

namespace sluice {

// Ends a step early; shared by all executors of the step. Any thread may stop
// the step; the first status wins.
class StepStop {
 public:
  // `rendezvous` is null for a step on one device.
  void Begin(Rendezvous* rendezvous, const RunKey& run,
             std::chrono::steady_clock::time_point deadline);
  // Ends the step and wakes its waiters.
  void Stop(const Status& status);
  // Ends the step if `run` is the run under way; otherwise does nothing.
  void Stop(const RunKey& run, const Status& status);
  // To be called when no executor runs the step any more.
  void End();
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
  Status status() const;
  std::chrono::steady_clock::time_point deadline() const { return deadline_; }
  bool has_deadline() const {
    return deadline_ != std::chrono::steady_clock::time_point::max();
  }
  bool past_deadline() const {
    return std::chrono::steady_clock::now() > deadline_;
  }

 private:
  void StopNow(const Status& status) REQUIRES(mutex_);

  std::atomic<bool> stopped_{false};
  std::chrono::steady_clock::time_point deadline_ =
      std::chrono::steady_clock::time_point::max();
  Rendezvous* rendezvous_ = nullptr;
  RunKey run_;
  mutable Mutex mutex_;
  Status status_ GUARDED_BY(mutex_);
};

// The buffers of a step on the host; each device's Plan picks its own. Steps
// alternate between slots 0 and 1, see Executor::Collect.
struct StepBuffers {
  std::span<void* const> feeds;
  std::span<void* const> fetches;
  int slot = 0;
};

// Holds one Plan's operand pointers, so that a run only patches feeds and
// fetches. One call at a time. Borrows the Plan, the device and the arena,
// which other executors may use between its calls.
class Executor {
 public:
  Executor(const Plan& plan, Device& device, Arena& arena);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs the whole Plan. Errors carry the node's name. Does not allocate unless
  // the arena must grow or an instruction fails. On an accelerator it returns
  // before the work is done; the slot must not be used again before Collect,
  // or, if the step has failed on any device, Drain. What fails later is
  // returned by the next call that waits for the device.
  Status Run(const StepBuffers& buffers, const StepContext& step,
             StepStop& stop, Observer* observer);
  // Begin and Resume do what Run does in pieces, each on any thread: Begin,
  // then Resume until it returns true. The run is then over; an error has
  // stopped the step. Resume returns false when the run cannot go on before
  // `waker` is woken, or the step's deadline; it then holds nothing but its
  // arena. With a null waker Resume waits in place. The arguments of Begin must
  // stay valid until the run is over.
  void Begin(const StepBuffers& buffers, const StepContext& step,
             StepStop& stop, Observer* observer);
  bool Resume(Waker* waker);
  // On an accelerator, waits for the slot's last run and writes its fetches.
  Status Collect(const StepBuffers& buffers);
  // On an accelerator, waits for all work added to the queue; an error is left
  // for a later call to return.
  void Drain();
  const Plan& plan() const { return plan_; }
  bool on_accelerator() const { return device_.accelerator() != nullptr; }
  // Why the step runs in pieces or kernel by kernel on its accelerator rather
  // than as one captured graph; empty if it runs as one, or on the CPU. May be
  // called at any time, by any thread.
  std::string why_not_captured() const {
    MutexLock lock(why_mutex_);
    return why_not_captured_;
  }

 private:
  friend class ExecutorGroup;

  struct Bound {
    Kernel* kernel;
    KernelContext context;
  };
  struct Patch {
    uint32_t location;
    uint32_t index;  // of the feed or fetch
  };
  static constexpr uint32_t kNoInstruction = ~uint32_t{0};
  // Instructions [begin, end), which are captured and then added to the
  // accelerator's queue as one.
  struct Segment {
    uint32_t begin = 0, end = 0;
    std::unique_ptr<CapturedWork> work = nullptr;
    std::unique_ptr<CapturedWork> timed = nullptr;  // with marks
    bool refused = false;
  };

  Status Bind();
  Status BindOnAccelerator();
  void MakeSegments();
  Status CheckVariables() const;
  Status Prepare(const StepBuffers& buffers);
  bool RunOnHost(Waker* waker);
  Status BeginQueued(const StepBuffers& buffers);
  void WatchReports();
  Status TakeReports();
  bool RunQueued(Waker* waker);
  Status Meet();
  bool AddQueued(Waker* waker);
  void EndQueued(const Status& status);
  Result<bool> AddStep(Waker* waker);
  Result<bool> Enqueue(Observer* timed, Waker* waker);
  Status EnqueueSegment(Segment& segment, StepStop& stop, Observer* timed);
  Status Capture(Segment& segment, Observer* timed);
  Status MakeMarks();
  Status ReportTimes(Observer& observer);
  Status Observe(uint32_t instruction, int64_t begin_ns, Observer& observer);
  Status Tell(uint32_t instruction, int64_t begin_ns, int64_t end_ns,
              void* const* outputs, Observer& observer);
  // The outcome of one instruction.
  enum class Call : uint8_t { kNone, kFailed, kDone };
  Status RunOne(uint32_t instruction, Observer* observer, StepStop& stop,
                Call* call);
  // RunOne with the locks of the instruction's variables held.
  Status RunHeld(uint32_t instruction, Observer* observer, StepStop& stop,
                 Call* call);
  bool Ready(uint32_t wait, Waker& waker);
  bool RunUpTo(uint32_t end, Observer* observer, Waker* waker);
  void RunInOrder(uint32_t end, Observer* observer);
  void Passed(uint32_t instruction, Call call);
  void MarkInitialized();
  template <bool kWatched>
  void RunSerial(uint32_t begin, uint32_t end, Observer* observer,
                 StepStop& stop);
  void Settle();
  void RunChecked(uint32_t end, Observer* observer, StepStop& stop);
  void RunDataflow(Observer* observer, StepStop& stop);
  void Work(Observer* observer, StepStop& stop);

  const Plan& plan_;
  Device& device_;
  Arena& arena_;
  uint64_t generation_ = ~uint64_t{0};  // of the arena the pointers point into
  // The arguments of the run under way.
  StepContext step_;
  StepStop* stop_ = nullptr;
  Observer* observer_ = nullptr;
  int slot_ = 0;
  // For a run in order: how many instructions were called, which one failed or
  // kNoInstruction, and the next of waits_ and, on an accelerator, of
  // segments_.
  uint32_t reached_ = 0;
  uint32_t failed_ = kNoInstruction;
  uint32_t next_wait_ = 0;
  uint32_t next_segment_ = 0;
  std::vector<uint32_t> waits_;  // of plan_.pending, in order
  std::vector<void*> pointers_;  // parallel to plan_.locations
  std::vector<Bound> bound_;     // parallel to plan_.instructions
  std::vector<Patch> feeds_, fetches_;
  std::unique_ptr<CheckedRun> checked_;   // of a Plan that asks for it
  std::unique_ptr<VariableLocks> locks_;  // where others use the variables, too

  // On an accelerator only. The first run is not captured, since it loads
  // kernels and fills tables. The host takes part in the instructions between
  // segments.
  std::unique_ptr<Staging> staging_;
  bool shares_ = false;  // the device, with other runs or sessions
  // Reports of invalid operands found by queued work, by instruction.
  std::vector<std::pair<uint32_t, std::shared_ptr<WorkReport>>> reports_;
  std::vector<Segment> segments_;
  mutable Mutex why_mutex_;
  std::string why_not_captured_ GUARDED_BY(why_mutex_);
  bool ran_before_ = false;
  // For a Plan with exchanges: whether the workers have agreed how to do the
  // run under way, how, and the numbers of the recordings, plain and with
  // marks.
  bool met_ = false;
  DeviceRun way_ = DeviceRun::kAdd;
  uint64_t recorded_[2] = {};
  uint32_t missed_ = 0;  // DeviceRunOffer
  // Events before the first instruction and after each, from which an observer
  // is told times.
  std::vector<Accelerator::Event> marks_;

  // Dataflow: each instruction enters ready_ at most once, so a queue is an
  // array with two counters. A worker claims a place with head_ and waits for
  // it to be filled.
  std::vector<uint32_t> sources_;  // instructions without dependencies
  std::unique_ptr<std::atomic<uint32_t>[]> pending_;
  std::unique_ptr<std::atomic<int32_t>[]> ready_;
  alignas(64) std::atomic<uint32_t> head_{0};
  alignas(64) std::atomic<uint32_t> tail_{0};
  alignas(64) std::atomic<uint32_t> remaining_{0};
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_EXECUTOR_H_
