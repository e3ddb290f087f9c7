// Matrix products.
#ifndef SLUICE_GRAPH_OPS_MATMUL_H_
#define SLUICE_GRAPH_OPS_MATMUL_H_

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

struct MatMulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

// [m,k] x [k,n] = [m,n]; with transposes the operands are [k,m], [n,k].
Output MatMul(Operand a, Operand b, const MatMulOptions& options = {});

// MatMul over the last two dimensions; the leading dimensions broadcast.
Output BatchMatMul(Operand a, Operand b, const MatMulOptions& options = {});

// x + bias along the last dimension: [..., n] + [n].
Output BiasAdd(Operand x, Operand bias);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_MATMUL_H_
