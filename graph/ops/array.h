// Ops that put tensors together, cut them up, repeat and turn them round.
// Axes may be negative, counting from the end.
#ifndef SLUICE_GRAPH_OPS_ARRAY_H_
#define SLUICE_GRAPH_OPS_ARRAY_H_

#include <cstdint>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// The parts one after another along `axis`; their other dimensions agree.
Output Concat(
    const std::vector<Output>& parts, int64_t axis,
    const std::source_location& location = std::source_location::current());
// `num` equal parts along `axis`.
std::vector<Output> Split(Operand x, int64_t num, int64_t axis = 0);

// The parts, all of one shape, along a new dimension `axis`.
Output Stack(
    const std::vector<Output>& parts, int64_t axis = 0,
    const std::source_location& location = std::source_location::current());
// The slices along `axis`, whose size must be known, without that dimension.
std::vector<Output> Unstack(Operand x, int64_t axis = 0);

// x repeated multiples[i] times along each dimension i.
Output Tile(Operand x, const std::vector<int64_t>& multiples);

// The order of elements turned round along each of `axes`.
Output Reverse(Operand x, const std::vector<int64_t>& axes);

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_ARRAY_H_
