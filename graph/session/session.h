// Session: runs parts of a graph on this process's devices, and on those of
// others (SessionOptions::cluster). The first run of a (feeds, fetches, feed
// shapes) triple prunes, optimises, partitions and plans that part; later ones
// only execute it.
#ifndef SLUICE_GRAPH_SESSION_SESSION_H_
#define SLUICE_GRAPH_SESSION_SESSION_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/precision.h"
#include "engine/runtime/executor_mode.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"
#include "graph/graph.h"
#include "graph/step_request.h"

namespace SLUICE_PUBLIC sluice {

class Cluster;
class Collective;
class Observer;
class PendingRun;
class Rendezvous;

struct SessionOptions {
  // Devices by name; the first is where unplaced nodes go. "/cpu:N" are
  // virtual CPUs with variables and memory of their own that share the
  // process's threads; "/gpu:N" are CUDA devices; "/null:0" is planned
  // for as a GPU but does not compute. "/job:worker/task:1/cpu:0" is a device
  // of another process, of `cluster`; feeds and fetches are then on the first
  // of this process's own devices, and if none is named a "/cpu:0" is added.
  // One is also added to GPUs that read tables whose rows are on several
  // devices.
  std::vector<std::string> devices = {"/cpu:0"};
  // Whether "/gpu:N" may be the same GPU for several N, so that a program for
  // several GPUs can be tried on one.
  bool share_accelerators = false;
  // Whether a node that its device has no kernel for goes to the first CPU
  // among the devices, or to a "/cpu:0" added to them, at the price of sending
  // tensors across. Otherwise such a node is an error that names the op.
  bool soft_placement = false;
  uint64_t seed = 1;
  bool deterministic = false;  // the same bits for any number of threads
  ExecutorMode executor = ExecutorMode::kAuto;
  Precision precision = Precision::kFloat32;
  // Identities, common subexpressions, batch normalisation of frozen models
  // folded into weights. Constants are folded in any case.
  bool simplify = true;
  bool fuse = true;  // several nodes in one; see passes::Fuse
  // Whether, on a GPU, convolutions in float16 also sum what they make for the
  // batch normalisation behind them, which then reads it once less. Not yet
  // measured. See passes::FuseStatistics.
  bool fuse_statistics = false;
  int plan_cache_size = 64;  // least recently used plans are dropped
  // The deadline of one step (on an accelerator, of adding its work to the
  // queue); 0: none.
  std::chrono::milliseconds deadline{0};
  // Sessions of this process with the same container (not "") and a device of
  // the same name share that device's variables, by name, while one of them
  // lives; see Variable (engine/variable_store.h) for what a step may rely on
  // meanwhile. On a GPU they add their work to one queue, and Run and Start
  // return when it is done, with the error that it found.
  std::string container = {};
  // How many runs may be under way at the same time; more wait for their turn.
  // Each has its own memory for intermediate values and its own kernels with
  // what they keep. If more than one, runs share the variables, and a GPU's
  // queue, as the sessions of a container do.
  int concurrent_runs = 1;
  // How tensors get from device to device (engine/runtime/rendezvous.h); null:
  // within this process.
  std::shared_ptr<Rendezvous> rendezvous = nullptr;
  // The workers whose steps meet this session's (AllReduce); all of them run
  // the same steps in the same order. The rank is the replica that keys the
  // randomness of steps, but not of first values. Null: there is one worker.
  // Excludes concurrent runs. Cancel and the deadline take effect only after a
  // collective that is under way has ended.
  std::shared_ptr<Collective> collective = nullptr;
  // The tasks whose devices are named above. Their variables outlive the
  // session, and other sessions may use them, too (with a container: while one
  // session has that). Runs that need a task that is gone return an error that
  // names it; a task that has come back has no values, and steps must be
  // prepared anew. Excludes a rendezvous of the caller's, FindNonFinite and
  // Freeze. Collectives and observers see only what this process computes.
  std::shared_ptr<Cluster> cluster = nullptr;
  // With a cluster of peers (dist/cluster/peers.h): which of its tasks this
  // process is, such as "/job:worker/task:1". Its devices then are named with
  // the task, too. All peers name the same devices in the same order, run the
  // same steps in the same order and give variables the same values; each
  // computes what is on its own devices. A call of Run or Start that fails here
  // fails for all that are not through with it, and the next ones meet again; a
  // Prepare must not fail for one alone. Feeds and fetches stay where they are
  // used and made: a peer's variable cannot be read here, and a write to it is
  // left to that peer. Empty: this process is a master, and no task.
  std::string task = {};
};

// A feed of a step: an output and its value.
struct Feed {
  Output output;
  Tensor value;
};
// Statistics of a prepared step.
struct StepInfo {
  int64_t nodes = 0;             // instructions over all devices
  size_t arena_bytes = 0;        // the largest that the step needs on a device
  size_t arena_lower_bound = 0;  // largest sum of live bytes at any time
  size_t constant_bytes = 0;
  // On an accelerator, why the step is not replayed as a whole but in pieces or
  // kernel by kernel; known after its second run.
  std::string why_not_captured;
  // How long each pass took when the step was prepared, and what it left.
  struct Pass {
    std::string name;
    double seconds = 0;
    int64_t nodes = 0;
  };
  std::vector<Pass> passes;
  // The kernel provider of each node: "onednn", "cudnn", "own"; "" on a device
  // that only plans. `refused` says why a better kernel could not be made.
  struct Provider {
    std::string node, op, provider, refused;
  };
  std::vector<Provider> providers;
  // The number of nodes by op and provider; and a line for each node for which
  // a better kernel could not be made.
  std::map<std::string, std::map<std::string, int>> ProviderCounts() const;
  std::vector<std::string> Refusals() const;
  // On "/gpu:N", and on "/null:0", which is planned for as one: the kernels and
  // copies of the step in their order, counted from shapes
  // (graph/compile/launches.h).
  struct Launch {
    std::string kind;    // "convolution", "batch_norm_grad", ...
    std::string kernel;  // its name in our sources, or "library"
    int64_t bytes = 0;   // read and written
    int64_t multiply_adds = 0;
  };
  std::vector<Launch> launches;
};

// A step made ready: Run only computes; it does not allocate. Keeps what it
// needs of the session alive for as long as the session lives; must not outlive
// it. Thread-safe as the session is; the first of several runs at the same time
// makes itself ready, too.
class PreparedStep {
 public:
  PreparedStep() = default;
  bool valid() const { return impl_ != nullptr; }

  // Feeds and fetches in the order given to Prepare. Each fetch must have the
  // dtype and shape of fetch_types(); it is overwritten. No two may share
  // memory, of the same output neither; a fetch and a feed may. Throws Error.
  // On an accelerator a run without fetches returns before its work is done,
  // and what fails then is thrown by a later call.
  void Run(std::span<const Tensor> feeds, std::span<Tensor> fetches);
  // As Run, but returns the error.
  Status TryRun(std::span<const Tensor> feeds, std::span<Tensor> fetches);
  // Begins a run. On an accelerator it is under way on return: runs happen in
  // the order in which they were started, and two of a step can be under way;
  // starting a third waits for the first. On the host a run is under way on
  // return only if tensors go from device to device by a rendezvous that holds
  // no thread (Rendezvous::tells): as many runs as the session has concurrent
  // runs, in no order; one more waits. `feeds` may be reused at once, `fetches`
  // are written when the run has been waited for. Throws Error, also that of an
  // earlier run that nobody has waited for.
  PendingRun Start(std::span<const Tensor> feeds, std::span<Tensor> fetches);
  // Begins a run as the given replica in place of the session's, which leaves
  // the session's step counter alone. Only for a step without targets.
  PendingRun Start(std::span<const Tensor> feeds, std::span<Tensor> fetches,
                   uint32_t replica);

  const std::vector<TensorType>& fetch_types() const;
  // Tensors that fit Run's fetches; an empty one for a fetch that peers have
  // (SessionOptions::task). A feed that only peers use may be empty, too.
  std::vector<Tensor> MakeFetches() const;
  StepInfo info() const;

  struct Impl;

 private:
  friend class PendingRun;
  friend class Session;
  explicit PreparedStep(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// A run that was started and may be under way. Copies are of the same run. Must
// not outlive the session.
class PendingRun {
 public:
  PendingRun() = default;
  bool valid() const { return step_ != nullptr; }
  // Whether Wait would have to wait, as far as is known.
  bool under_way() const;
  // Returns when the run has ended and its fetches are written; meanwhile, on
  // an accelerator, the session's other calls wait, too. Throws Error if it
  // failed, unless a later Start has thrown that. More calls return at once.
  void Wait();

 private:
  friend class PreparedStep;
  PendingRun(std::shared_ptr<PreparedStep::Impl> step, uint64_t run)
      : step_(std::move(step)), run_(run) {}
  std::shared_ptr<PreparedStep::Impl> step_;
  uint64_t run_ = 0;  // its number among the step's
};

// Thread-safe: of concurrent runs as many as SessionOptions::concurrent_runs
// are under way, the others wait. The graph must outlive the session and not
// change during a call.
class Session {
 public:
  explicit Session(const Graph& graph, const SessionOptions& options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Gives every variable, or those in `only`, its first value (again), for all
  // sessions that share it.
  void Initialize();
  void Initialize(const std::vector<Output>& only);

  // Runs what `fetches` and `targets` need and returns the fetched values.
  // Throws Error; after an error variables may have been partly updated.
  std::vector<Tensor> Run(const std::vector<Feed>& feeds,
                          const std::vector<Output>& fetches,
                          const std::vector<Operation>& targets = {});
  // One fetch, one tensor.
  Tensor Run(const std::vector<Feed>& feeds, const Output& fetch,
             const std::vector<Operation>& targets = {});
  void Run(const std::vector<Feed>& feeds, const Operation& target);

  PreparedStep Prepare(const std::vector<FeedShape>& feeds,
                       const std::vector<Output>& fetches,
                       const std::vector<Operation>& targets = {});

  // Read and write variables by handle. Writing checks dtype and shape and
  // copies. Reading copies, into the buffer of `value` if that has the
  // variable's type, so that tensors which share the buffer change, too. Throws
  // Error for an uninitialised or unknown variable, and for one that another
  // session has made with another type.
  Tensor Read(const Output& variable) const;
  void Read(const Output& variable, Tensor* value) const;
  void Write(const Output& variable, const Tensor& value);
  bool IsInitialized(const Output& variable) const;
  // Read and write rows from `begin` on, as many as `rows` has, of a variable
  // that has a value. If its rows are on several devices (graph/row_pieces.h)
  // no more of them are in one place at a time. Throws Error if there are no
  // such rows.
  void ReadRows(const Output& variable, int64_t begin, Tensor* rows) const;
  void WriteRows(const Output& variable, int64_t begin, const Tensor& rows);
  // Seconds during which steps that go on after PreparedStep::Start has
  // returned have kept some thread of this process; time in which all of them
  // wait for other devices does not count.
  double busy_seconds() const;
  // Whether a variable can be read here; false if another peer has it
  // (SessionOptions::task).
  bool CanRead(const Output& variable) const;

  // For inference: variables keep their present values for good, and steps
  // prepared from now on take them as constants, so that batch normalisation
  // folds into convolutions and kernels prepare their weights once. Writes, and
  // steps that update variables, are errors from then on. If other sessions
  // write a variable, all steps use the value it had when one first needed it.
  void Freeze();

  // The global step that keys randomness. Each run with targets, or whose
  // fetches need an update of a variable, uses the current value and increments
  // it as it begins, so that runs at the same time use different ones; a run
  // that fails gives its number back, unless another has begun since. Runs
  // without either leave it alone, and draw the same again. A trainer sets it
  // on resume.
  uint64_t step() const;
  void set_step(uint64_t step);
  // Sets the replica that keys randomness from now on, in place of the
  // collective's rank.
  void set_replica(uint32_t replica);

  // Aborts the steps in flight, if any, with kCancelled, also those that wait
  // for other processes. May be called from any thread. Work already in an
  // accelerator's queue is completed.
  void Cancel();

  // Sets the observer, which is told of every kernel run from now on; null:
  // none. Not owned. A step with an observer is slower. Returns the previous
  // observer.
  Observer* SetObserver(Observer* observer);

  // The first node, in schedule order, whose output holds a NaN or an infinity
  // when the step is run with these feeds; variables and the step's number are
  // left unchanged, and the session's other calls wait. Empty when all are
  // finite. An error where others may change the variables, and if the step
  // fails for another reason.
  std::string FindNonFinite(const std::vector<Feed>& feeds,
                            const std::vector<Output>& fetches);

  const SessionOptions& options() const;
  // Bytes of the variables, and of the arenas of all runs, over all devices of
  // this process.
  size_t variable_bytes() const;
  size_t arena_bytes() const;
  // Bytes that can still be allocated on the accelerator with the least left;
  // nullopt if all devices use the host's memory.
  std::optional<size_t> available_accelerator_bytes() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_SESSION_SESSION_H_
