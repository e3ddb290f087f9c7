// Random tensors. Element i depends only on the session's seed, the node's
// name when it was built, the global step, the replica and i: the same bits
// for any number of threads, after a resume and on every device
// (engine/semantics/random.h).
#ifndef SLUICE_GRAPH_OPS_RANDOM_H_
#define SLUICE_GRAPH_OPS_RANDOM_H_

#include "engine/visibility.h"
#include "graph/graph.h"
#include "graph/ops/shape.h"

namespace SLUICE_PUBLIC sluice {

// Uniform on [lo, hi): float types, int32 and int64.
Output RandomUniform(
    Graph& graph, const ShapeOperand& shape, const Number& lo = 0,
    const Number& hi = 1, DType dtype = DType::kFloat32,
    const std::source_location& location = std::source_location::current());

// Normal; float types.
Output RandomNormal(
    Graph& graph, const ShapeOperand& shape, double mean = 0, double stddev = 1,
    DType dtype = DType::kFloat32,
    const std::source_location& location = std::source_location::current());

// Normal, drawn again until within two standard deviations of the mean; its
// own deviation is then 0.8796 stddev.
Output TruncatedNormal(
    Graph& graph, const ShapeOperand& shape, double mean = 0, double stddev = 1,
    DType dtype = DType::kFloat32,
    const std::source_location& location = std::source_location::current());

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_RANDOM_H_
