#include "graph/session/find_non_finite.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/compile/extract.h"
#include "graph/session/session_state.h"
#include "graph/traversal.h"

namespace sluice {
namespace {

class ObserverInPlace {
 public:
  ObserverInPlace(Session& session, Observer* observer)
      : session_(session), before_(session.SetObserver(observer)) {}
  ~ObserverInPlace() { session_.SetObserver(before_); }
  ObserverInPlace(const ObserverInPlace&) = delete;
  ObserverInPlace& operator=(const ObserverInPlace&) = delete;

 private:
  Session& session_;
  Observer* before_;
};

// The origins of the variables that the fetches of a frozen step need. It has
// no updates, so that it reads all of them.
std::set<std::string> NeededVariables(const Graph& graph,
                                      const StepRequest& request) {
  const std::unique_ptr<Graph> step =
      ExtractStep(graph, request).ValueOrThrow();
  std::vector<const Node*> fetches;
  for (const auto& node : step->nodes()) {
    if (node->IsFetch()) fetches.push_back(node.get());
  }
  std::set<std::string> origins;
  for (const Node* node : Needed(fetches)) {
    if (node->IsVariable()) origins.insert(node->origin());
  }
  return origins;
}

}  // namespace

bool EndedBy(FiniteCheck& check, Session& session,
             const std::function<void()>& steps) {
  const ObserverInPlace in_place(session, &check);
  try {
    steps();
  } catch (const Error&) {
    if (check.ends_step() && !check.node().empty()) return true;
    throw;
  }
  return false;
}

std::string Session::FindNonFinite(const std::vector<Feed>& feeds,
                                   const std::vector<Output>& fetches) {
  struct Saved {
    Variable* variable;
    const DeviceMemory& memory;
    Tensor value;  // on the host
  };
  if (impl_->cluster != nullptr) {
    throw Error(Code::kUnimplemented,
                "what is not finite cannot be looked for in a session with "
                "other tasks' devices");
  }
  for (const auto& device : impl_->devices) {
    if (!device->variables().shared()) continue;
    throw Error(Code::kFailedPrecondition,
                "what is not finite cannot be looked for while others may use "
                "the variables: the session has a container or concurrent "
                "runs");
  }
  std::vector<FeedShape> shapes;
  std::vector<Tensor> values;
  for (const Feed& feed : feeds) {
    shapes.push_back({feed.output, feed.value.shape()});
    values.push_back(feed.value);
  }
  const PreparedStep prepared = Prepare(shapes, fetches);
  std::vector<Tensor> results = prepared.MakeFetches();

  // Of the only lane: what others do would be lost with what is put back.
  const Lanes::Turn turn(impl_->lanes);
  std::vector<Saved> saved;
  for (const auto& device : impl_->devices) {
    for (Variable* variable : device->variables().All()) {
      if (!variable->initialized) continue;
      saved.push_back(
          {variable, device->memory(),
           device->memory().Download(variable->value).ValueOrThrow()});
    }
  }
  // What is wrong before the step begins comes first: a variable that it reads.
  // In a step of a frozen session these are constants.
  std::set<const Variable*> read;
  for (const auto& here : prepared.impl_->frames[0]->on_devices) {
    for (const uint32_t i : here->plan.reads) {
      read.insert(here->plan.variables[i]);
    }
  }
  std::set<std::string> frozen;
  if (impl_->is_frozen) {
    frozen = NeededVariables(impl_->graph, {shapes, fetches, {}});
  }
  std::string first_bad;
  for (const auto& [variable, memory, value] : saved) {
    if (!read.contains(variable) && !frozen.contains(variable->name)) continue;
    if (AllFinite(value)) continue;
    first_bad = variable->name;
    break;
  }
  // Other workers do the whole step, and would wait for one that ends it.
  const Collective* const workers = impl_->options.collective.get();
  const bool alone = workers == nullptr || workers->size() <= 1;
  if (alone && !first_bad.empty()) return first_bad;
  FiniteCheck check(/*ends_step=*/alone);
  const auto observe = [&](Observer* observer) {
    MutexLock lock(impl_->mutex);
    return std::exchange(impl_->observer, observer);
  };
  Observer* const before = observe(&check);
  const auto put_back = [&] {
    observe(before);
    // The step may have given first values.
    for (const auto& device : impl_->devices) {
      for (Variable* variable : device->variables().All()) {
        variable->initialized = false;
      }
    }
    for (const auto& [variable, memory, value] : saved) {
      ThrowIfError(memory.Store(value, variable->value));
      variable->initialized = true;
    }
  };
  RunOrder order;
  {
    MutexLock lock(impl_->mutex);
    order.step = impl_->step;
    order.replica = impl_->replica;
  }
  try {
    const Status status =
        prepared.impl_->RunIn(turn.lane(), values, results, order);
    if (!check.ends_step() || check.node().empty()) ThrowIfError(status);
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
  return first_bad.empty() ? check.node() : first_bad;
}

}  // namespace sluice
