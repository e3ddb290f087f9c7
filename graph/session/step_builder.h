// From a part of a graph to Plans: the pipeline that Session runs once per
// step shape.
#ifndef SLUICE_GRAPH_SESSION_STEP_BUILDER_H_
#define SLUICE_GRAPH_SESSION_STEP_BUILDER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/device.h"
#include "engine/runtime/plan.h"
#include "engine/visibility.h"
#include "graph/compile/step_part.h"
#include "graph/graph.h"
#include "graph/session/cluster.h"
#include "graph/session/session.h"

namespace SLUICE_INTERNAL sluice {

struct BuiltStep {
  struct Part {
    Device* device = nullptr;
    Plan plan;
  };
  std::vector<Part> parts;
  std::vector<StepPart> cut;     // from which `parts` were made
  std::vector<StepPart> remote;  // for other tasks' devices
  int edges = 0;                 // tensors that go from part to part
  bool updates = false;          // whether the step writes to variables
  std::vector<TensorType> feed_types;
  std::vector<TensorType> fetch_types;
  // Which feeds and fetches `parts` have: all, unless peers have some.
  std::vector<bool> feeds_here, fetches_here;
  std::vector<passes::PassReport> passes;
  std::vector<StepInfo::Launch> launches;
};

// Both halves in one process: cuts a step as ExtractStep returns it
// (PartitionStep) and makes a Plan of each part (Compile). If `cluster` is not
// null, parts for other tasks' devices among options.devices are not compiled,
// and feeds and fetches are on this process's first device; with peers
// (SessionOptions::task) each keeps its own.
Result<BuiltStep> PlanStep(std::unique_ptr<Graph> step,
                           const std::vector<std::unique_ptr<Device>>& devices,
                           const SessionOptions& options,
                           const ClusterSession* cluster = nullptr);

// The second half: makes a Plan of each part. A part for a device that is not
// among `devices` is an error.
Result<std::vector<BuiltStep::Part>> CompileParts(
    const std::vector<StepPart>& cut,
    const std::vector<std::unique_ptr<Device>>& devices);

// Where a variable lives: on the device that it asks for, or the first (Place).
Device& HomeOf(const Node& variable,
               const std::vector<std::unique_ptr<Device>>& devices);
// The variable on its device; null if it has not been made. If another session
// has made it with another type, the error says both types.
Result<Variable*> FindVariable(const Node& variable, Device& home);

// The values of frozen variables that other sessions might write, so that all
// steps use the same values.
using FrozenValues = std::map<const Variable*, Tensor>;

// ExtractStep and PlanStep. With `frozen`, unless null, variables that have a
// value become constants in between; a step that updates one is an error.
Result<BuiltStep> BuildStep(const Graph& graph, const StepRequest& request,
                            const std::vector<std::unique_ptr<Device>>& devices,
                            const SessionOptions& options, FrozenValues* frozen,
                            const ClusterSession* cluster = nullptr);

}  // namespace sluice

#endif  // SLUICE_GRAPH_SESSION_STEP_BUILDER_H_
