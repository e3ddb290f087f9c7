// The order of passes: one table, for sessions, tools, tests and docs.
#ifndef SLUICE_GRAPH_PASSES_PIPELINE_H_
#define SLUICE_GRAPH_PASSES_PIPELINE_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "graph/passes/passes.h"

namespace SLUICE_INTERNAL sluice {
namespace passes {

// The settings of passes, apart from the graph.
struct Context {
  DeviceDescriptions devices;  // the first is where unplaced nodes go
  Fold fold;
  WorkersIn workers;     // the workers that meet in the step
  std::string meets_on;  // see MeetOnCpu
  bool commit_together = false;
  bool simplify = true;
  bool soft_placement = false;
  bool fuse = true;
  bool fuse_statistics = false;
  std::optional<DType> half;  // the half dtype of mixed precision, if any
  // The device, of the process that has feeds and fetches, that these are
  // placed on, wherever else they were placed. Empty: they stay.
  std::string home;
};

struct Pass {
  const char* name;  // "order_variables"; several rows have it if it runs again
  const char* what;  // a few words
  Status (*run)(Graph& graph, const Context& context);
  // Whether the pass is run for a step; null: always.
  bool (*when)(const Context& context) = nullptr;
};

// The passes from an extracted step to a placed graph in the order in which it
// runs, all but Partition.
std::span<const Pass> Pipeline();

// The record of one pass: its time, and the nodes left.
struct PassReport {
  std::string name;
  double seconds = 0;
  int64_t nodes = 0;  // left in the graph
};

// Runs the passes that are part of the step. In debug builds, and once
// VerifyEachPass was called, Verify checks the graph after each pass. Errors
// name the pass.
Status RunPipeline(Graph& graph, const Context& context,
                   std::vector<PassReport>* reports = nullptr);

// Makes RunPipeline verify each pass from now on in this process, as all test
// programs do.
void VerifyEachPass();

}  // namespace passes
}  // namespace sluice

#endif  // SLUICE_GRAPH_PASSES_PIPELINE_H_
