// Dropout (Srivastava et al., 2014).
#ifndef SLUICE_GRAPH_OPS_DROPOUT_H_
#define SLUICE_GRAPH_OPS_DROPOUT_H_

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// Training: sets each element to zero with probability `rate`, 0 <= rate < 1,
// and divides the others by 1 - rate. Which ones depends on the session's
// seed, the node's name, the global step and the replica. In inference leave
// it out.
Output Dropout(Operand x, double rate);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_DROPOUT_H_
