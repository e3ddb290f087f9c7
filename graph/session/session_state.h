// The private state of a session and its prepared steps. Internal to
// graph/session.
#ifndef SLUICE_GRAPH_SESSION_SESSION_STATE_H_
#define SLUICE_GRAPH_SESSION_SESSION_STATE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/runtime/busy_clock.h"
#include "engine/runtime/collective.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/executor_group.h"
#include "engine/runtime/local_rendezvous.h"
#include "engine/runtime/step_threads.h"
#include "engine/runtime/waker.h"
#include "graph/row_pieces.h"
#include "graph/session/cluster.h"
#include "graph/session/lanes.h"
#include "graph/session/session.h"
#include "graph/session/step_builder.h"

namespace sluice {

inline TensorType TensorTypeOf(const Tensor& tensor) {
  return {tensor.dtype(), tensor.shape()};
}

// WithRows: a device's variable that has a value. RowsIn: a view of rows of
// such a value; kInvalidArgument if there are no such rows.
Result<Variable*> WithRows(Device& home, const std::string& variable);
Result<Tensor> RowsIn(const Tensor& value, const std::string& variable,
                      int64_t begin, int64_t count);

struct Session::Impl {
  const Graph& graph;
  SessionOptions options;
  std::vector<std::unique_ptr<Device>> devices;
  std::shared_ptr<Rendezvous> rendezvous;   // may hold memory of the devices
  std::unique_ptr<ClusterSession> cluster;  // null: no other task has a part

  BusyClock busy;  // while parts run that give their thread back to wait

  // Runs the parts of runs that no caller's thread runs.
  StepThreads threads;

  // A lane is held while a step runs. A session that does not share its devices
  // has one lane, which it also holds while it prepares a step or touches
  // variables (OwnTurn), so that these exclude each other. Taken before the
  // mutexes.
  mutable Lanes lanes;

  mutable Mutex mutex;
  Observer* observer GUARDED_BY(mutex) = nullptr;
  uint64_t step GUARDED_BY(mutex) = 0;
  uint32_t replica GUARDED_BY(mutex) = 0;

  // Held while a step is prepared.
  mutable Mutex cache_mutex;
  std::optional<FrozenValues> frozen GUARDED_BY(cache_mutex);  // if it is
  std::atomic<bool> is_frozen = false;  // the same, for runs
  // Prepared steps by request, least recently used last.
  using Key = std::vector<int64_t>;
  struct Cached {
    Key key;
    std::shared_ptr<PreparedStep::Impl> step;
  };
  std::list<Cached> cache GUARDED_BY(cache_mutex);
  std::map<Key, std::list<Cached>::iterator> cache_index
      GUARDED_BY(cache_mutex);
  uint64_t generation GUARDED_BY(cache_mutex) = 0;  // ClusterSession::Connect
  // Steps that are no longer cached but still used by a caller. They are
  // destroyed here, since only the holder of the lane may touch an accelerator
  // of the session's own.
  std::vector<std::shared_ptr<PreparedStep::Impl>> retired
      GUARDED_BY(cache_mutex);

  Impl(const Graph& g, const SessionOptions& o) : graph(g), options(o) {
    if (options.collective == nullptr) return;
    replica = static_cast<uint32_t>(options.collective->rank());
  }
  Result<std::shared_ptr<PreparedStep::Impl>> Cache(const StepRequest& request)
      REQUIRES(cache_mutex);
  // Throws Error if the session is frozen, so that `variable` cannot be
  // written.
  void RequireNotFrozen(const Output& variable) const;
  // Takes the least recently used step out of the cache.
  void Retire() REQUIRES(cache_mutex);
  // The memories of the devices that do not use the host's.
  std::vector<OwnMemory> OwnMemories() const;
  // Opens a ClusterSession for the options' devices of other tasks, if any.
  void OpenCluster();
  // Forgets steps that were prepared for devices that no longer exist.
  Status Reconnect() REQUIRES(cache_mutex);
  // The device of a variable if another task has it; else "".
  std::string FarHomeOf(const Output& variable) const;
  // Throws Error for an Output that is no variable of the graph.
  static void RequireVariable(const Output& variable);
  // A variable of the graph, null if it has not been made, and its device.
  struct Found {
    Variable* variable;
    Device* home;
  };
  Found Find(const Output& variable) const;
  // For variables whose rows are spread over devices. PiecesOf takes any
  // variable; another is its own single piece. HereOf is a piece's device if
  // this process has it; else null.
  std::vector<RowPiece> PiecesOf(const Output& variable) const;
  Device* HereOf(const RowPiece& piece) const;
  void WritePieces(const Output& variable, const Tensor& value);
  bool HavePieces(const Output& variable) const;
  // What a run begins with. A run that `counts` gets a step number of its own.
  // GiveBack returns the number of a failed run, to be used again, unless a
  // later run has begun.
  struct Beginning {
    uint64_t step;
    uint32_t replica;
    Observer* observer;
  };
  Beginning Begin(bool counts) EXCLUDES(mutex);
  void GiveBack(uint64_t step) EXCLUDES(mutex);
  // Peers number their runs by their calls, so one that cannot begin has a key,
  // too, or the next call would meet another of theirs. They are told. Returns
  // `why`.
  Status Refuse(const RunKey& key, Status why);
  // Makes threads for a run in `lane`, whose caller runs `mine` parts itself.
  Status ReserveThreads(const Lane& lane, int mine);
};

// Holds a lane for a scope if the session does not share its devices, whose
// variables then have no locks. If it shares them no lane is needed.
class OwnTurn {
 public:
  explicit OwnTurn(const Session::Impl& session) {
    if (!session.devices[0]->variables().shared()) turn_.emplace(session.lanes);
  }

 private:
  std::optional<Lanes::Turn> turn_;
};

struct PreparedStep::Impl : std::enable_shared_from_this<PreparedStep::Impl> {
  struct Frame;
  // What one device computes.
  struct DevicePart {
    Plan plan;
    std::unique_ptr<Executor> executor;
  };
  // What one thread runs: the executor of one device, or those of several
  // accelerators as a group.
  struct Part final : StepThreads::Part {
    Frame& frame;
    std::vector<Executor*> executors;
    std::unique_ptr<ExecutorGroup> group;  // null: there is one executor
    bool begun = false;                    // the run under way
    bool joined = false;                   // at the rendezvous

    explicit Part(Frame& f) : frame(f) {}
    // Goes on with the run. Returns true at its end, also after an error, and
    // false if it must wait for `waker` to be woken; never if `waker` is null.
    bool GoOn(Waker* waker);
    bool Resume() override { return GoOn(this); }
    void Ended() override;

   private:
    bool Begin();
  };
  // Receives the outcome of another task's parts of the run.
  struct FarEnd final : RunEnd {
    Frame* frame = nullptr;
    void Ended(const Status& status) override;
  };
  // A run that was begun, in the slot given by its number.
  struct Begun {
    uint64_t number = 0;
    bool under_way = false;
    Status status;               // of the run, once it is not under way
    std::vector<Tensor> values;  // keep what `fetches` points to
    std::vector<void*> fetches;
  };
  // What the runs of one lane use. Two runs at a time cannot share kernels or
  // pointers into an arena, so each lane has Plans of its own.
  struct Frame {
    Impl& step;
    std::vector<std::unique_ptr<DevicePart>> on_devices;  // pointed to
    std::vector<std::unique_ptr<Part>> parts;
    std::vector<void*> feeds;
    std::array<Begun, Staging::kSlots> runs;
    uint64_t next_run = 0;

    // The run under way, as its parts see it.
    Lane* lane = nullptr;
    StepBuffers buffers;
    StepContext context;
    Observer* observer = nullptr;
    RunKey key;
    bool counted = false;
    std::vector<FarEnd> far;  // parallel to step.remotes
    RunEnd* told = nullptr;   // of a run that another task has ordered

    std::vector<Tensor> kept;  // copies of feeds (TakeFeeds), once needed
    // Addresses and indices of fetches (CheckApart).
    std::vector<std::pair<uintptr_t, size_t>> by_address;
    // Keeps the step alive until the end of a run that goes on after Start has
    // returned.
    std::shared_ptr<Impl> keeper;

    Mutex mutex;
    CondVar changed;
    int left GUARDED_BY(mutex) = 0;  // parts in the session's threads
    // The last run that went on after Start: its ordinal, and its outcome.
    uint64_t started GUARDED_BY(mutex) = 0;
    bool under_way GUARDED_BY(mutex) = false;
    bool told_caller GUARDED_BY(mutex) = false;
    Status status GUARDED_BY(mutex);

    explicit Frame(Impl& s) : step(s) {}
    void PartEnded() EXCLUDES(mutex);
  };

  Session::Impl& session;
  std::vector<StepPart> cut;  // empty where there is but one lane
  std::vector<std::unique_ptr<RemoteParts>> remotes;  // one a task
  std::vector<TensorType> feed_types, fetch_types;
  std::vector<bool> feeds_here, fetches_here;  // in these parts
  std::vector<passes::PassReport> passes;
  std::vector<StepInfo::Launch> launches;
  std::vector<std::string> feed_names, fetch_names;
  int edges = 0;  // tensors that go from part to part
  bool has_targets = false;
  bool updates = false;  // whether a run writes to variables
  bool counts = false;   // whether a run advances the step counter
  // Whether a run may end after Run and Start have returned: on an accelerator
  // that the session does not share.
  bool queued = false;
  // Whether a run goes on, in the session's threads, after Start has returned.
  // If neither this nor `queued`, it is over when Start returns.
  bool goes_on = false;
  // By lane; only the holder of a lane touches its frame. A frame is made when
  // its lane first runs the step; the first exists from the beginning.
  std::vector<std::unique_ptr<Frame>> frames;

  Impl(Session::Impl& s, BuiltStep built, const StepRequest& request);
  // Run does a whole run; Start begins one and returns its number; Wait ends
  // one. Each takes a lane. A run with an order, for a given step or from
  // another task (whose key is not 0), leaves the session's step counter alone.
  Status Run(std::span<const Tensor> feed_values,
             std::span<Tensor> fetch_values,
             std::optional<RunOrder> order = std::nullopt);
  // Run in a lane that the caller holds.
  Status RunIn(Lane& lane, std::span<const Tensor> feed_values,
               std::span<Tensor> fetch_values,
               const std::optional<RunOrder>& order = std::nullopt);
  Result<uint64_t> Start(std::span<const Tensor> feed_values,
                         std::span<Tensor> fetch_values,
                         std::optional<uint32_t> replica = std::nullopt);
  Status Wait(uint64_t number);
  bool UnderWay(uint64_t number);
  // Registers other tasks' parts with them. Call it before the first run.
  Status RegisterRemotes(const std::vector<StepPart>& parts);
  // Starts a run that another task orders, without feeds and fetches. Does not
  // wait: returns an error if no lane is free; else `end` is told the outcome.
  Status StartOrdered(const RunOrder& order, RunEnd& end);
  // Whether runs may need the rendezvous. With peers all do, since all peers
  // must number the runs alike, whichever have parts.
  bool meets_others() const {
    return edges > 0 || !remotes.empty() || !session.options.task.empty();
  }

 private:
  std::unique_ptr<Frame> MakeFrame(std::vector<BuiltStep::Part> built,
                                   const Lane& lane);
  void MakeParts(Frame& frame);
  Result<Frame*> FrameOf(const Lane& lane);
  // The key of a run that is about to begin; see Session::Impl::Refuse.
  RunKey TakeKey(const std::optional<RunOrder>& order);
  Result<uint64_t> StartIn(Lane& lane, Frame& frame, const RunKey& key,
                           std::span<const Tensor> feed_values,
                           std::span<Tensor> fetch_values,
                           const std::optional<RunOrder>& order);
  // The caller of these must hold the lane. After BeginRun the parts run, each
  // to its end, and then EndRun returns the run's number.
  Status BeginRun(Lane& lane, Frame& frame, const RunKey& key,
                  std::span<const Tensor> feed_values,
                  std::span<Tensor> fetch_values,
                  const std::optional<RunOrder>& order, int parts_here);
  // Sets the run's feeds. They are read in place, but copied if they share
  // memory with a fetch, which may be written before the feed is read for the
  // last time. `copy_all`: copies all, since the caller may reuse them while
  // the run goes on.
  Status TakeFeeds(Frame& frame, std::span<const Tensor> feed_values,
                   std::span<const Tensor> fetch_values, bool copy_all);
  void StartParts(Frame& frame, size_t begin);
  void RunParts(Frame& frame);
  Result<uint64_t> EndRun(Frame& frame);
  // Starts a run that goes on after Start has returned; it keeps `turn` until
  // its end.
  Result<uint64_t> StartAlone(Lanes::Turn& turn, Frame& frame,
                              const RunKey& key,
                              std::span<const Tensor> feed_values,
                              std::span<Tensor> fetch_values,
                              const std::optional<RunOrder>& order);
  void EndAlone(Frame& frame);
  Status WaitAlone(Frame& frame, uint64_t number);
  Status WaitIn(Frame& frame, uint64_t number);
  Status CheckOperands(std::span<const Tensor> feed_values,
                       std::span<Tensor> fetch_values) const;
  // Returns kInvalidArgument if two fetches, whose types were checked, share
  // memory.
  Status CheckApart(Frame& frame, std::span<const Tensor> fetch_values) const;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_SESSION_SESSION_STATE_H_
