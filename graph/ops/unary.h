// What the builders of ops of one operand share.
#ifndef SLUICE_GRAPH_OPS_UNARY_H_
#define SLUICE_GRAPH_OPS_UNARY_H_

#include <utility>

#include "graph/graph.h"

namespace sluice {

// Output 0 of a new node.
inline Output AddUnary(const char* op, const Operand& x,
                       Attributes attrs = {}) {
  return x.graph().Add({op, {x}, std::move(attrs)}).output(0);
}

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_UNARY_H_
