// Reverse-mode differentiation. Gradients are ordinary nodes, so they can be
// differentiated again, optimised and partitioned like the rest.
#ifndef SLUICE_GRAPH_AUTOGRAD_H_
#define SLUICE_GRAPH_AUTOGRAD_H_

#include <cstdint>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// Which activations are computed again when the gradient needs them, rather
// than kept for it: less memory, the same results, to rounding
// (graph/recompute.h says where to the bit).
enum class Recompute : uint8_t {
  kNone,
  // Computes again the outputs of batch normalisations, and of an addition and
  // activation function behind one: passes over memory, no product runs twice.
  kNorms,
  // Computes again all activations but those that cross a few cuts: costs most
  // of one more forward pass.
  kAll,
};

struct GradientOptions {
  Recompute recompute = Recompute::kNone;
};

// d(sum of ys) / dx for every x: seeds of ones at the ys unless `seeds` gives
// others (same shapes). Where y does not depend on x, or only through ops
// without a gradient, the result is an invalid Output. Only floating-point
// edges carry gradients. Throws Error, naming the op, when an op on the way
// has no gradient rule, and for an x or y that is empty or in another graph
// than the first y.
std::vector<Output> Gradients(const std::vector<Output>& ys,
                              const std::vector<Output>& xs,
                              const std::vector<Output>& seeds = {},
                              const GradientOptions& options = {});

// Gradients, with zeros in place of invalid results.
std::vector<Output> GradientsOrZeros(const std::vector<Output>& ys,
                                     const std::vector<Output>& xs);

// The gradient of one x. Without valid `rows`, `values` has x's shape. With
// `rows`, integers [n...], it is the gradient of some rows of x: each slice of
// `values`, [n..., row shape], belongs to one of them. Slices of the same row
// add up; the gradient of a row that is not listed is 0.
struct RowsGradient {
  Output values;
  Output rows = {};

  bool valid() const { return values.valid(); }
};

// Gradients, but those of xs among `tables` are of rows where rows say all: x
// is a variable of float32 or float64, and the ys depend on it only through ops
// that take rows of it along the first dimension (OpDef::rows_taken: Gather,
// EmbeddingLookup). Such a gradient takes memory for the rows read, not for all
// of x. Summed by row in their order, its slices give the bits of Gradients.
std::vector<RowsGradient> GradientsByRows(const std::vector<Output>& ys,
                                          const std::vector<Output>& xs,
                                          const std::vector<Output>& tables,
                                          const std::vector<Output>& seeds = {},
                                          const GradientOptions& options = {});

}  // namespace sluice

#endif  // SLUICE_GRAPH_AUTOGRAD_H_
