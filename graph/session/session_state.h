// What a session and its prepared steps hold; for graph/session/session.cc and
// graph/session/prepared_step.cc alone.
#ifndef SLUICE_GRAPH_SESSION_SESSION_STATE_H_
#define SLUICE_GRAPH_SESSION_SESSION_STATE_H_

#include <array>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/executor.h"
#include "engine/runtime/local_rendezvous.h"
#include "engine/runtime/step_threads.h"
#include "graph/session/session.h"
#include "graph/session/step_builder.h"

namespace sluice {

inline TensorType TensorTypeOf(const Tensor& tensor) {
  return {tensor.dtype(), tensor.shape()};
}

struct Session::Impl {
  const Graph& graph;
  SessionOptions options;
  std::vector<std::unique_ptr<Device>> devices;
  std::shared_ptr<Rendezvous> rendezvous;  // may hold what is the devices'

  // Held while a step is prepared or runs, and while variables are touched.
  mutable Mutex run_mutex;
  StepThreads threads GUARDED_BY(run_mutex);
  Observer* observer GUARDED_BY(run_mutex) = nullptr;
  uint64_t step GUARDED_BY(run_mutex) = 0;
  bool frozen GUARDED_BY(run_mutex) = false;
  StepStop stop;  // has a lock of its own: Cancel comes from other threads

  // Prepared steps by request, least recently used last.
  using Key = std::vector<int64_t>;
  struct Cached {
    Key key;
    std::shared_ptr<PreparedStep::Impl> step;
  };
  std::list<Cached> cache GUARDED_BY(run_mutex);
  std::map<Key, std::list<Cached>::iterator> cache_index GUARDED_BY(run_mutex);
  // No longer cached but in somebody's hands. They end here, since devices are
  // only touched under the lock.
  std::vector<std::shared_ptr<PreparedStep::Impl>> retired
      GUARDED_BY(run_mutex);

  Impl(const Graph& g, const SessionOptions& o) : graph(g), options(o) {}
  Result<std::shared_ptr<PreparedStep::Impl>> Cache(const StepRequest& request)
      REQUIRES(run_mutex);
  // Takes the least recently used step out of the cache.
  void Retire() REQUIRES(run_mutex);
  // A variable and where it lives.
  struct Found {
    Variable* variable = nullptr;  // null when there is none
    Device* device = nullptr;
  };
  Found Find(const Output& variable) const;
};

struct PreparedStep::Impl {
  struct Part {
    Plan plan;
    std::unique_ptr<Executor> executor;
    bool joined = false;  // the run under way, at the rendezvous
  };

  Session::Impl& session;
  std::vector<std::unique_ptr<Part>> parts;  // executors point to plans
  std::vector<TensorType> feed_types, fetch_types;
  std::vector<passes::PassReport> passes;
  std::vector<std::string> feed_names;
  int edges = 0;        // tensors that go from part to part
  bool counts = false;  // whether a run advances the step counter
  bool queued = false;  // whether it may end later than it begins
  std::vector<void*> feeds;

  // A run that was begun, in the slot that its number gives.
  struct Begun {
    uint64_t number = 0;
    bool under_way = false;
    Status status;               // of the run when it no longer is
    std::vector<Tensor> values;  // keep what `fetches` points to
    std::vector<void*> fetches;
  };
  std::array<Begun, Staging::kSlots> runs GUARDED_BY(session.run_mutex);
  uint64_t next_run GUARDED_BY(session.run_mutex) = 0;

  Impl(Session::Impl& s, BuiltStep built, const StepRequest& request);
  // A whole run; begins one, whose number is returned; ends one. A run at a
  // given step leaves the session's step counter alone.
  Status Run(std::span<const Tensor> feed_values,
             std::span<Tensor> fetch_values,
             std::optional<uint64_t> at_step = std::nullopt)
      EXCLUDES(session.run_mutex);
  Result<uint64_t> Start(std::span<const Tensor> feed_values,
                         std::span<Tensor> fetch_values)
      EXCLUDES(session.run_mutex);
  Status Wait(uint64_t number) EXCLUDES(session.run_mutex);
  bool UnderWay(uint64_t number) EXCLUDES(session.run_mutex);

  Result<uint64_t> StartLocked(std::span<const Tensor> feed_values,
                               std::span<Tensor> fetch_values,
                               std::optional<uint64_t> at_step = std::nullopt)
      REQUIRES(session.run_mutex);
  Status WaitLocked(uint64_t number) REQUIRES(session.run_mutex);
  // The part's share of a run. An error has stopped the step.
  void RunPart(Part& part, const StepBuffers& buffers, StepContext context,
               Observer* observer, const RunKey& run);
  Status CheckOperands(std::span<const Tensor> feed_values,
                       std::span<Tensor> fetch_values) const;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_SESSION_SESSION_STATE_H_
