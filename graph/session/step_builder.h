// From a part of a graph to Plans: the pipeline that Session runs once per
// step shape.
#ifndef SLUICE_GRAPH_SESSION_STEP_BUILDER_H_
#define SLUICE_GRAPH_SESSION_STEP_BUILDER_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/device.h"
#include "engine/runtime/plan.h"
#include "graph/graph.h"
#include "graph/session/session.h"

namespace sluice {

struct StepRequest {
  std::vector<FeedShape> feeds;
  std::vector<Output> fetches;
  std::vector<Operation> targets;
};

struct BuiltStep {
  struct Part {
    Device* device = nullptr;
    Plan plan;
  };
  std::vector<Part> parts;
  std::vector<size_t> slot_bytes;  // of the rendezvous between the parts
  std::vector<TensorType> feed_types;
  std::vector<TensorType> fetch_types;
};

// The first device that is a CPU, or "".
std::string FirstCpu(const std::vector<std::string>& devices);

// The requested part of the graph as a graph of its own: fed outputs become
// placeholders of concrete shape, fetches and targets become sinks. Errors name
// the feed or fetch, what was given and what was wanted.
Result<std::unique_ptr<Graph>> ExtractStep(const Graph& graph,
                                           const StepRequest& request);

// Makes Plans of a step as ExtractStep returns it: prune, refine, simplify,
// place, mixed precision, order variables, fuse, schedule, partition, lower.
Result<BuiltStep> PlanStep(std::unique_ptr<Graph> step,
                           const std::vector<std::unique_ptr<Device>>& devices,
                           const SessionOptions& options);

// ExtractStep and PlanStep. With `frozen`, variables that have a value become
// constants in between; a step that updates one is an error.
Result<BuiltStep> BuildStep(const Graph& graph, const StepRequest& request,
                            const std::vector<std::unique_ptr<Device>>& devices,
                            const SessionOptions& options, bool frozen);

}  // namespace sluice

#endif  // SLUICE_GRAPH_SESSION_STEP_BUILDER_H_
