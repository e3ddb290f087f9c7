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
  // of another process, of `cluster`; what is fed and fetched is then on the
  // first of this one's own devices, to which a "/cpu:0" is added where there
  // is none among those that are named. So it is to GPUs that read tables whose
  // rows are on several devices.
  std::vector<std::string> devices = {"/cpu:0"};
  // Whether "/gpu:N" may be one GPU for several N, so that what is meant for
  // several can be tried on one.
  bool share_accelerators = false;
  // Whether what a device has no kernel for goes to the first CPU among the
  // devices, or to a "/cpu:0" that is added to them, at the price of sending
  // tensors across. Otherwise it is an error that names the op.
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
  // Of one step, on an accelerator of adding its work; 0: none.
  std::chrono::milliseconds deadline{0};
  // Sessions of this process with the same container (not "") and a device of
  // the same name have that device's variables in common, by name, while one of
  // them lives; see Variable (engine/variable_store.h) for what a step may rely
  // on meanwhile. On a GPU they add their work to one queue, and Run and Start
  // return when it is done: what it found wrong is that run's error.
  std::string container = {};
  // How many runs may be under way at the same time, each with memory of its
  // own for intermediate values and with kernels of its own, also what these
  // keep; more wait for their turn. With more than one they share the variables
  // as the sessions of a container do, on a GPU its queue, too.
  int concurrent_runs = 1;
  // How tensors get from device to device (engine/runtime/rendezvous.h); null:
  // within this process.
  std::shared_ptr<Rendezvous> rendezvous = nullptr;
  // The workers whose steps this session's meet (AllReduce); all of them run
  // the same steps in the same order. Its rank is the replica that keys the
  // randomness of steps, but for first values. Null: there is one worker. Not
  // with concurrent runs. A collective under way ends before Cancel and the
  // deadline do.
  std::shared_ptr<Collective> collective = nullptr;
  // The tasks whose devices are named above; their variables outlive the
  // session, and others may have them, too (with a container: while one session
  // has that). A task that is gone is an error that names it, of the runs that
  // need it; one that has come back has no values, and steps must be prepared
  // anew. Not with a rendezvous of the caller's, FindNonFinite or Freeze; a
  // collective is of what this process computes alone. An observer sees this
  // process's part alone, not those of the other tasks.
  std::shared_ptr<Cluster> cluster = nullptr;
  // With a cluster of peers (dist/cluster/peers.h): which of its tasks this
  // process is, such as "/job:worker/task:1". Its devices then have its name,
  // too, and all peers name the same ones in the same order, run the same steps
  // in the same order and give variables the same values; each computes what is
  // on its own devices. What is fed and fetched stays where it is used and
  // made: of a far variable there is nothing to read, and what is written to it
  // is left to the peer that has it. Empty: this is a master, and no task.
  std::string task = {};
};

// What a step is fed: an output and its value.
struct Feed {
  Output output;
  Tensor value;
};
// Figures of a prepared step.
struct StepInfo {
  int64_t nodes = 0;             // instructions over all devices
  size_t arena_bytes = 0;        // the largest arena it needs on any device
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
  // Who computes each node: "onednn", "cudnn", "own"; "" on a device that only
  // plans. `refused` says why a better kernel could not be made for it.
  struct Provider {
    std::string node, op, provider, refused;
  };
  std::vector<Provider> providers;
  // By op and provider, how many nodes; and a line for each that a better
  // kernel refused.
  std::map<std::string, std::map<std::string, int>> ProviderCounts() const;
  std::vector<std::string> Refusals() const;
  // On "/gpu:N", and on "/null:0", which is planned for as one: the kernels and
  // copies of the step in their order, counted from shapes
  // (graph/compile/launches.h).
  struct Launch {
    std::string kind;    // "convolution", "batch_norm_grad", ...
    std::string kernel;  // its name in our sources, or "library"
    int64_t bytes = 0;   // that it reads and writes
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
  // dtype and shape of fetch_types(); it is overwritten. Throws Error. On an
  // accelerator a run without fetches returns before its work is done, and
  // what fails then is thrown by a later call.
  void Run(std::span<const Tensor> feeds, std::span<Tensor> fetches);
  // As Run, but returns the error.
  Status TryRun(std::span<const Tensor> feeds, std::span<Tensor> fetches);
  // Begins a run. On an accelerator it is then under way: runs happen in the
  // order they were started, and two of a step can be under way; starting a
  // third waits for the first. On the host it is where tensors go from device
  // to device by a rendezvous that holds no thread (Rendezvous::tells), beside
  // others in the order of none: as many as the session has concurrent runs,
  // one more waits. `feeds` may be reused at once, `fetches` are written when
  // it has been waited for. Throws Error, also that of an earlier run that
  // nobody has waited for.
  PendingRun Start(std::span<const Tensor> feeds, std::span<Tensor> fetches);
  // The same as a given replica, in place of the session's; of a step without
  // targets, which advances no counter.
  PendingRun Start(std::span<const Tensor> feeds, std::span<Tensor> fetches,
                   uint32_t replica);

  const std::vector<TensorType>& fetch_types() const;
  // Tensors that fit Run's fetches; of those that peers have
  // (SessionOptions::task) there is none, and a feed that peers alone use may
  // be left out, too.
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
  // Whether Wait would have to wait, for all that is known.
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

  // Gives every variable its first value (again), for all sessions that share
  // it. With `only`, just those.
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

  // Variables by handle. Writing checks dtype and shape and copies; reading
  // copies, into the memory of `value` where that is of the variable's type, so
  // that tensors which share it see it. Throws Error for uninitialised or
  // unknown ones, and where another session has made it of another type.
  Tensor Read(const Output& variable) const;
  void Read(const Output& variable, Tensor* value) const;
  void Write(const Output& variable, const Tensor& value);
  bool IsInitialized(const Output& variable) const;
  // Rows from `begin` on, as many as `rows` has, of a variable that has a
  // value; of one whose rows are on several devices (graph/row_pieces.h) no
  // more of it is anywhere at a time. Throws Error where there are none such.
  void ReadRows(const Output& variable, int64_t begin, Tensor* rows) const;
  void WriteRows(const Output& variable, int64_t begin, const Tensor& rows);
  // For how long steps that go on by themselves (PreparedStep::Start) have kept
  // some thread of this process: not while all of them wait for other devices.
  double busy_seconds() const;
  // Whether it can be read here: not where another peer has it
  // (SessionOptions::task).
  bool CanRead(const Output& variable) const;

  // For inference: variables keep their present values for good, and steps
  // prepared from now on take them as constants, so that batch normalisation
  // folds into convolutions and kernels prepare their weights once. Writes, and
  // steps that update variables, are errors from then on. Of a variable that
  // other sessions write, steps have the value at which one first needed it.
  void Freeze();

  // The global step that keys randomness. Each run with targets uses the
  // current value and increments it as it begins; if it fails, the number is
  // given back, unless another run has begun since. So of several at the same
  // time each uses another. A trainer sets it on resume.
  uint64_t step() const;
  void set_step(uint64_t step);
  // The replica that keys it from now on, in place of the collective's rank.
  void set_replica(uint32_t replica);

  // Aborts the steps in flight, if any, with kCancelled, also those that wait
  // for other processes. From any thread. What
  // an accelerator was given to do is done.
  void Cancel();

  // Told of every kernel run from now on; null: none. Not owned. A step with an
  // observer is slower. Returns the one before.
  Observer* SetObserver(Observer* observer);

  // The first node, in schedule order, whose output holds a NaN or an infinity
  // when the step is run with these feeds; variables and the step's number are
  // left unchanged. Empty when all are finite. An error where others may change
  // the variables, and if the step fails for another reason.
  std::string FindNonFinite(const std::vector<Feed>& feeds,
                            const std::vector<Output>& fetches);

  const SessionOptions& options() const;
  // Bytes of variables, and of the arenas, over all runs and devices of this
  // process.
  size_t variable_bytes() const;
  size_t arena_bytes() const;
  // What can still be allocated on the accelerator that has least; nothing
  // where all devices are in the host's memory.
  std::optional<size_t> available_accelerator_bytes() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_SESSION_SESSION_H_
