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

// What passes may read beside the graph.
struct Context {
  DeviceDescriptions devices;  // the first is where unplaced nodes go
  Fold fold;
  WorkersIn workers;     // that meet in the step
  std::string meets_on;  // MeetOnCpu
  bool commit_together = false;
  bool simplify = true;
  bool soft_placement = false;
  bool fuse = true;
  bool fuse_statistics = false;
  std::optional<DType> half;  // of mixed precision
  // Where feeds and fetches are, whatever they were placed beside: a device of
  // the process that has them. Empty: anywhere.
  std::string home;
};

struct Pass {
  const char* name;  // "order_variables"; that of several rows if it runs again
  const char* what;  // a few words
  Status (*run)(Graph& graph, const Context& context);
  // Whether it is part of a step; null: always.
  bool (*when)(const Context& context) = nullptr;
};

// From an extracted step to a placed graph in the order in which it runs. What
// is left is Partition.
std::span<const Pass> Pipeline();

// What one pass did.
struct PassReport {
  std::string name;
  double seconds = 0;
  int64_t nodes = 0;  // that it left
};

// Runs the passes that are part of the step. In debug builds, and once
// VerifyEachPass was called, Verify looks at what each left. Its errors name
// the pass.
Status RunPipeline(Graph& graph, const Context& context,
                   std::vector<PassReport>* reports = nullptr);

// From now on, in this process: all test programs do so.
void VerifyEachPass();

}  // namespace passes
}  // namespace sluice

#endif  // SLUICE_GRAPH_PASSES_PIPELINE_H_
