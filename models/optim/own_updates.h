// Graph::updates of several trainings in a graph, all of which run them, where
// one leaves them out in some of its runs: it has a loss scale. Internal to
// models/optim.
#ifndef SLUICE_MODELS_OPTIM_OWN_UPDATES_H_
#define SLUICE_MODELS_OPTIM_OWN_UPDATES_H_

#include <vector>

#include "graph/graph.h"

namespace sluice {

// `updates` with nodes of one training's own in place of those that write a
// variable, if neither `loss` nor another update needs these, nor these a
// write: to make them conditional changes no other training.
std::vector<Operation> OwnUpdates(const std::vector<Operation>& updates,
                                  const Output& loss);

// Throws Error(kUnimplemented) where one of the `writes` of a training
// (WritesOf) is another's, too, and one of the two leaves it out: the other, or
// the one itself if it `leaves_out` its writes. Trainings are found by their
// writing `step`, the global step; what they write is also what their losses
// need (Graph::losses).
void CheckOwnWrites(const std::vector<Node*>& writes, const Output& step,
                    bool leaves_out);

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_OWN_UPDATES_H_
