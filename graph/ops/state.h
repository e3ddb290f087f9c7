// Writing variables. Each returns the variable's new value; a read that does
// not depend on a write sees the value at the start of the step. A second write
// of a variable in the same step must depend on the first, by its operands or
// by a control edge (WithDependencies, ControlScope): two that are not ordered
// are an error when the step is prepared.
#ifndef SLUICE_GRAPH_OPS_STATE_H_
#define SLUICE_GRAPH_OPS_STATE_H_

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// variable = value; variable += value; variable -= value. Same dtype and shape.
Output Assign(Operand variable, Operand value);
Output AssignAdd(Operand variable, Operand value);
Output AssignSub(Operand variable, Operand value);

// Lets an operation that updates variables, a group of such or an Identity of
// one, do so only in steps where `condition`, a bool scalar, holds; otherwise
// they stay as they are, whatever the other operands. Throws Error, changing
// nothing, for an op whose last operand is not the optional `apply`, for an
// operation that updates nothing, and for one that is computed of what another
// writes.
void MakeConditional(const Operation& update, const Output& condition);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_STATE_H_
