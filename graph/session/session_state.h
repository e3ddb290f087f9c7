// What a session and its prepared steps hold; for graph/session/session.cc and
// graph/session/prepared_step.cc alone.
#ifndef SLUICE_GRAPH_SESSION_SESSION_STATE_H_
#define SLUICE_GRAPH_SESSION_SESSION_STATE_H_

#include <array>
#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
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

// A device's variable that has a value; and a view of rows of it, of
// kInvalidArgument where there are none such.
Result<Variable*> WithRows(Device& home, const std::string& variable);
Result<Tensor> RowsIn(const Tensor& value, const std::string& variable,
                      int64_t begin, int64_t count);

struct Session::Impl {
  const Graph& graph;
  SessionOptions options;
  std::vector<std::unique_ptr<Device>> devices;
  std::shared_ptr<Rendezvous> rendezvous;   // may hold what is the devices'
  std::unique_ptr<ClusterSession> cluster;  // null: no other task has a part

  BusyClock busy;  // while parts run that give their thread back to wait

  // For the parts of runs but for those that a caller's thread runs.
  StepThreads threads;

  // A lane is held while a step runs and, where the session has its devices to
  // itself (OwnTurn), while one is prepared and variables are touched. There is
  // but one then, which keeps all of this apart. Taken before the mutexes.
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
  // No longer cached but in somebody's hands. They end here, since an
  // accelerator of the session's own is only touched by who holds the lane.
  std::vector<std::shared_ptr<PreparedStep::Impl>> retired
      GUARDED_BY(cache_mutex);

  Impl(const Graph& g, const SessionOptions& o) : graph(g), options(o) {
    if (options.collective == nullptr) return;
    replica = static_cast<uint32_t>(options.collective->rank());
  }
  Result<std::shared_ptr<PreparedStep::Impl>> Cache(const StepRequest& request)
      REQUIRES(cache_mutex);
  // Throws where it is frozen: `variable` cannot be written.
  void RequireNotFrozen(const Output& variable) const;
  // Takes the least recently used step out of the cache.
  void Retire() REQUIRES(cache_mutex);
  // Of the devices that are not in the host's memory.
  std::vector<OwnMemory> OwnMemories() const;
  // Opens what devices of other tasks there are among the options'.
  void OpenCluster();
  // Forgets steps that were made for devices that are no more.
  Status Reconnect() REQUIRES(cache_mutex);
  // The device that a variable is on, if that is another task's; else empty.
  std::string FarHomeOf(const Output& variable) const;
  // Where a variable of the graph lives, and it, if it has been made.
  struct Found {
    Variable* variable;
    Device* home;
  };
  Found Find(const Output& variable) const;
  // Of a variable whose rows are spread; the first, of any, too: it is its own
  // piece. The device of a piece, if that is this process's; else null.
  std::vector<RowPiece> PiecesOf(const Output& variable) const;
  Device* HereOf(const RowPiece& piece) const;
  void WritePieces(const Output& variable, const Tensor& value);
  bool HavePieces(const Output& variable) const;
  // What a step begins with. One that `counts` gets a number that no other does
  // but after GiveBack, which a failed one's is, unless a later one has begun.
  struct Beginning {
    uint64_t step;
    uint32_t replica;
    Observer* observer;
  };
  Beginning Begin(bool counts) EXCLUDES(mutex);
  void GiveBack(uint64_t step) EXCLUDES(mutex);
  // Makes threads for a run in that lane, whose caller runs some parts itself.
  Status ReserveThreads(const Lane& lane, int mine);
};

// A turn where a session has its devices to itself, variables without locks of
// their own among them. Where it shares them there is no need of one.
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
  // What one thread runs: one device's, or several accelerators' as a group.
  struct Part final : StepThreads::Part {
    Frame& frame;
    std::vector<Executor*> executors;
    std::unique_ptr<ExecutorGroup> group;  // null: there is one executor
    bool begun = false;                    // the run under way
    bool joined = false;                   // at the rendezvous

    explicit Part(Frame& f) : frame(f) {}
    // Goes on with the run: to its end, which an error may have brought about,
    // or, false, until `waker` is woken, unless that is null.
    bool GoOn(Waker* waker);
    bool Resume() override { return GoOn(this); }
    void Ended() override;

   private:
    bool Begin();
  };
  // What another task's parts of the run have come to.
  struct FarEnd final : RunEnd {
    Frame* frame = nullptr;
    void Ended(const Status& status) override;
  };
  // A run that was begun, in the slot that its number gives.
  struct Begun {
    uint64_t number = 0;
    bool under_way = false;
    Status status;               // of the run when it no longer is
    std::vector<Tensor> values;  // keep what `fetches` points to
    std::vector<void*> fetches;
  };
  // What the runs of one lane use. Kernels and pointers into an arena are not
  // for two at a time, so each lane has Plans of its own.
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
    // Keeps this until the end of a run that goes on when Start has returned.
    std::shared_ptr<Impl> keeper;

    Mutex mutex;
    CondVar changed;
    int left GUARDED_BY(mutex) = 0;  // parts in the session's threads
    // The last run that went on so: how manieth it is, and what became of it.
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
  std::vector<std::string> feed_names;
  int edges = 0;         // tensors that go from part to part
  bool counts = false;   // whether a run advances the step counter
  bool updates = false;  // whether one writes to variables
  // Whether a run may end later than Run and Start return: on an accelerator
  // that the session has to itself.
  bool queued = false;
  // Whether a run goes on when Start has returned. Otherwise, without `queued`,
  // it is over then.
  bool goes_on = false;
  // By lane, each touched by who holds it; made when a lane first runs the
  // step, but for the first, which is there from the beginning.
  std::vector<std::unique_ptr<Frame>> frames;

  Impl(Session::Impl& s, BuiltStep built, const StepRequest& request);
  // A whole run; begins one, whose number is returned; ends one. A run at a
  // given step, or with an order of another's (whose key is not 0), leaves the
  // session's step counter alone. Each takes a lane.
  Status Run(std::span<const Tensor> feed_values,
             std::span<Tensor> fetch_values,
             std::optional<RunOrder> order = std::nullopt);
  Result<uint64_t> Start(std::span<const Tensor> feed_values,
                         std::span<Tensor> fetch_values,
                         std::optional<uint32_t> replica = std::nullopt);
  Status Wait(uint64_t number);
  bool UnderWay(uint64_t number);
  // Gives other tasks their parts. Before the first run.
  Status RegisterRemotes(const std::vector<StepPart>& parts);
  // As another task orders; without feeds and fetches. Waits for nothing: an
  // error where no lane is free. Otherwise `end` is told.
  Status StartOrdered(const RunOrder& order, RunEnd& end);
  // Whether runs may need the rendezvous; of peers all, which number them alike
  // whoever has parts.
  bool meets_others() const {
    return edges > 0 || !remotes.empty() || !session.options.task.empty();
  }

 private:
  std::unique_ptr<Frame> MakeFrame(std::vector<BuiltStep::Part> built,
                                   const Lane& lane);
  void MakeParts(Frame& frame);
  Result<Frame*> FrameOf(const Lane& lane);
  Result<uint64_t> StartIn(Lane& lane, Frame& frame,
                           std::span<const Tensor> feed_values,
                           std::span<Tensor> fetch_values,
                           const std::optional<RunOrder>& order);
  // Who calls these holds the lane. After BeginRun come the parts, each to its
  // end, and EndRun, which returns the run's number.
  Status BeginRun(Lane& lane, Frame& frame, std::span<const Tensor> feed_values,
                  std::span<Tensor> fetch_values,
                  const std::optional<RunOrder>& order, int parts_here);
  // Feeds are read where they are, but for copies of those that share memory
  // with a fetch, which may be written before they are read for the last time.
  // `copy_all`: the caller has all back while the run goes on.
  Status TakeFeeds(Frame& frame, std::span<const Tensor> feed_values,
                   std::span<const Tensor> fetch_values, bool copy_all);
  void StartParts(Frame& frame, size_t begin);
  void RunParts(Frame& frame);
  Result<uint64_t> EndRun(Frame& frame);
  // A run that goes on, in a turn that is kept till its end.
  Result<uint64_t> StartAlone(Lanes::Turn& turn, Frame& frame,
                              std::span<const Tensor> feed_values,
                              std::span<Tensor> fetch_values,
                              const std::optional<RunOrder>& order);
  void EndAlone(Frame& frame);
  Status WaitAlone(Frame& frame, uint64_t number);
  Status WaitIn(Frame& frame, uint64_t number);
  Status CheckOperands(std::span<const Tensor> feed_values,
                       std::span<Tensor> fetch_values) const;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_SESSION_SESSION_STATE_H_
