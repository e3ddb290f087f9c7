// Softmax and its logarithm.
#ifndef SLUICE_GRAPH_OPS_SOFTMAX_H_
#define SLUICE_GRAPH_OPS_SOFTMAX_H_

#include <cstdint>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// exp(x) / sum(exp(x)) along an axis, computed without overflow.
Output Softmax(Operand x, int64_t axis = -1);
// x - log(sum(exp(x))) along an axis.
Output LogSoftmax(Operand x, int64_t axis = -1);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_SOFTMAX_H_
