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
// than kept for it: less memory, the same results, most of them to the bit
// (graph/recompute.h says which).
enum class Recompute : uint8_t {
  kNone,
  // What a batch normalisation leaves, and an addition and activation function
  // behind it: passes over memory alone, no product runs twice.
  kNorms,
  // All but what crosses a few cuts: most of one more forward pass.
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

// As above, with zeros in place of invalid results.
std::vector<Output> GradientsOrZeros(const std::vector<Output>& ys,
                                     const std::vector<Output>& xs);

// The gradient of one x: of x's shape; or of some of its rows, where `rows` are
// valid, integers [n...]: each slice of `values`, [n..., a row's shape],
// belongs to one of them. Of several that belong to one row the sum counts;
// what is in no row is 0.
struct RowsGradient {
  Output values;
  Output rows = {};

  bool valid() const { return values.valid(); }
};

// As Gradients, but of those xs that are among `tables` of some rows, where
// that says all: where x is a
// variable of float32 or float64 and the ys depend on it through ops
// alone that take rows of it along the first dimension (OpDef::rows_taken:
// Gather, EmbeddingLookup). It then takes memory for what was read, not for x.
// Summed by row in their order, the slices give the bits that Gradients has.
std::vector<RowsGradient> GradientsByRows(const std::vector<Output>& ys,
                                          const std::vector<Output>& xs,
                                          const std::vector<Output>& tables,
                                          const std::vector<Output>& seeds = {},
                                          const GradientOptions& options = {});

}  // namespace sluice

#endif  // SLUICE_GRAPH_AUTOGRAD_H_
