// Ops in which the steps of all workers of a job meet. In a session without a
// collective (SessionOptions) there is one worker, and they change nothing.
//
// Each depends on the one that was added to the graph before it, so that all
// workers, which run the same graph, have them in the same order.
#ifndef SLUICE_GRAPH_OPS_COLLECTIVE_H_
#define SLUICE_GRAPH_OPS_COLLECTIVE_H_

#include <string>

#include "engine/reduction.h"
#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// x added up over the workers, or its mean; of one dtype and shape on all of
// them. The gradient is that of what each worker makes of the result, reduced
// in the same way.
Output AllReduce(Operand x, Reduction how = Reduction::kMean,
                 const std::string& name = "all_reduce");

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_COLLECTIVE_H_
