// What an update of variables looks at.
#ifndef SLUICE_GRAPH_OPS_ELEMENT_UPDATES_H_
#define SLUICE_GRAPH_OPS_ELEMENT_UPDATES_H_

#include "graph/graph.h"

namespace sluice {

// Whether the node updates each element of its variables, which are of one
// shape, by that element of its other operands and by scalars: a part of the
// variables can then be updated by that part of these alone. False where
// nothing is known of the op.
bool UpdatesByElements(const Node& node);

// The scalar without which an update changes nothing (MakeConditional); invalid
// where it has none.
Output ConditionOf(const Node& update);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_ELEMENT_UPDATES_H_
