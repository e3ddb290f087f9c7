// Cuts a model between its layers into stages, one for each device of a
// pipeline.
#ifndef SLUICE_GRAPH_COMPILE_CUT_STAGES_H_
#define SLUICE_GRAPH_COMPILE_CUT_STAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"
#include "graph/step_request.h"

namespace SLUICE_INTERNAL sluice {

// Places the nodes that `loss` needs, and their variables and updates, on
// `devices`, the first layers on the first; gradients built from then on follow
// (Gradients). Stages take about equally long, by the multiplications and bytes
// of a training step with `feeds`, and are cut where few bytes cross.
// kInvalidArgument if there are fewer ops than stages, or some are placed
// already.
Status CutIntoStages(Graph& graph, const Output& loss,
                     const std::vector<FeedShape>& feeds,
                     const std::vector<std::string>& devices);

// Cuts n items in a row into stages and returns where each stage but the first
// begins. A stage costs the sum of its items' `cost` and of crossing[i] at both
// ends, i being the item behind the end; the largest stage's cost is minimal.
// `crossing` has n + 1 elements. Stages may be empty if nothing is better.
std::vector<size_t> BalancedCuts(const std::vector<double>& cost,
                                 const std::vector<double>& crossing,
                                 size_t stages);

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_CUT_STAGES_H_
