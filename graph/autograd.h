// Reverse-mode differentiation. Gradients are ordinary nodes, so they can be
// differentiated again, optimised and partitioned like the rest.
#ifndef SLUICE_GRAPH_AUTOGRAD_H_
#define SLUICE_GRAPH_AUTOGRAD_H_

#include <vector>

#include "graph/graph.h"

namespace sluice {

struct GradientOptions {
  // Keeps few activations for the gradient and computes the others again when
  // it needs them (graph/recompute.h): less memory, the same bits.
  bool recompute = false;
};

// d(sum of ys) / dx for every x: seeds of ones at the ys unless `seeds` gives
// others (same shapes). Where y does not depend on x, or only through ops
// without a gradient, the result is an invalid Output. Only floating-point
// edges carry gradients. Throws Error, naming the op, when an op on the way
// has no gradient rule.
std::vector<Output> Gradients(const std::vector<Output>& ys,
                              const std::vector<Output>& xs,
                              const std::vector<Output>& seeds = {},
                              const GradientOptions& options = {});

// As above, with zeros in place of invalid results.
std::vector<Output> GradientsOrZeros(const std::vector<Output>& ys,
                                     const std::vector<Output>& xs);

}  // namespace sluice

#endif  // SLUICE_GRAPH_AUTOGRAD_H_
