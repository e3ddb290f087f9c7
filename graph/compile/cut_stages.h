// Cuts a model by its layers into stages, each for a device: for pipelines.
#ifndef SLUICE_GRAPH_COMPILE_CUT_STAGES_H_
#define SLUICE_GRAPH_COMPILE_CUT_STAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"
#include "graph/step_request.h"

namespace SLUICE_INTERNAL sluice {

// Places what `loss` needs, and the variables and updates that go with it, on
// `devices`, of the first layers first; gradients built from then on follow
// (Gradients). Stages take about equally long by the multiplications and bytes
// of a training step on what is fed, and are cut where few bytes cross.
// kInvalidArgument where there are fewer ops than stages, or some are placed
// already.
Status CutIntoStages(Graph& graph, const Output& loss,
                     const std::vector<FeedShape>& feeds,
                     const std::vector<std::string>& devices);

// Of n things in a row that cost `cost` each, where stages begin, the first
// not named: so that the largest sum of a stage's costs and of crossing[i] at
// each of its ends, where i is what comes behind the end, is least. `crossing`
// has n + 1; stages may be empty where there is nothing better.
std::vector<size_t> BalancedCuts(const std::vector<double>& cost,
                                 const std::vector<double>& crossing,
                                 size_t stages);

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_CUT_STAGES_H_
