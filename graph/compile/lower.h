// Lowering: one device's graph, with concrete shapes and in schedule order, to
// a Plan.
#ifndef SLUICE_GRAPH_COMPILE_LOWER_H_
#define SLUICE_GRAPH_COMPILE_LOWER_H_

#include <map>
#include <string>

#include "engine/device.h"
#include "engine/runtime/plan.h"
#include "graph/graph.h"
#include "graph/session/session.h"

namespace sluice {

struct LowerOptions {
  // Placeholder name to the step's feed index; every placeholder is here.
  std::map<std::string, int> feeds;
  // Send/Recv key to the step's rendezvous slot.
  std::map<std::string, int> slots;
  bool deterministic = false;
  bool tf32 = false;  // KernelSpec::tf32
  ExecutorMode mode = ExecutorMode::kAuto;
};

// What ExecutorMode::kAuto stands for in Plans made from now on, so that a
// whole test suite can run checked.
void SetAutoExecutor(ExecutorMode mode);

// Does the node become an instruction? Views, constants, variables, feeds and
// NoOp do not.
bool IsInstruction(const Node& node);

// Chooses and prepares kernels, decides which outputs take over an input's
// buffer, and gives every buffer its offset. Variables are declared in the
// device's store. Errors name the node.
Result<Plan> Lower(const Graph& graph, Device& device,
                   const LowerOptions& options);

// An order of all nodes that respects their dependencies and keeps few bytes
// alive: among the nodes that can run, first those that free more than they
// allocate (optimizer updates, as soon as their gradient is there), then the
// order of creation. Every partition follows the one order chosen here.
std::vector<Node*> Schedule(const Graph& graph);

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_LOWER_H_
