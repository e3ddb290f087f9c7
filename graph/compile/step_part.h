// One device's part of a step: the master's half makes it, the worker's half
// makes a Plan of it, and between them it can travel as text.
#ifndef SLUICE_GRAPH_COMPILE_STEP_PART_H_
#define SLUICE_GRAPH_COMPILE_STEP_PART_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/precision.h"
#include "engine/runtime/executor_mode.h"
#include "graph/graph.h"
#include "graph/passes/pipeline.h"

namespace sluice {

// How a step computes, the same for all its parts.
struct StepSettings {
  bool deterministic = false;  // the same bits for any number of threads
  Precision precision = Precision::kFloat32;
  ExecutorMode executor = ExecutorMode::kAuto;
  uint64_t seed = 1;
};

struct StepPart {
  std::string device;
  uint64_t incarnation = 0;  // of the device that it was cut for; 0: any
  // For the whole step: how many tensors go from part to part, and how many
  // parts there are.
  int edges = 0, parts = 1;
  StepSettings settings;
  // A placed graph of concrete shapes, in the order in which it runs. Feeds are
  // placeholders (FeedIndex), fetches are Fetch nodes; sends and receives have
  // the numbers of their edges and the devices' incarnations.
  std::unique_ptr<Graph> graph;
};

// A part as text: a line of JSON, then the graph's text (graph/text/text.h).
// ParsePart restores the same bits and checks what it reads: the graph is
// legal, its shapes are concrete, its feeds, fetches and edges have numbers.
std::string PrintPart(const StepPart& part);
Result<StepPart> ParsePart(std::string_view text);

struct StepParts {
  std::vector<StepPart> parts;  // by device name
  std::vector<TensorType> feed_types, fetch_types;
  std::vector<passes::PassReport> passes;
};

// The master's half: takes a step as ExtractStep returns it through the
// pipeline and cuts it. Needs no device, only what describes them.
Result<StepParts> PartitionStep(std::unique_ptr<Graph> step,
                                const passes::Context& context,
                                const StepSettings& settings);

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_STEP_PART_H_
