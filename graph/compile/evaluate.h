// Runs single nodes on the CPU, outside any session: for constant folding and
// as the tests' plain reference.
#ifndef SLUICE_GRAPH_COMPILE_EVALUATE_H_
#define SLUICE_GRAPH_COMPILE_EVALUATE_H_

#include <map>
#include <vector>

#include "engine/kernel.h"
#include "engine/tensor.h"
#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_INTERNAL sluice {

// The kernel spec of a node whose shapes are concrete.
KernelSpec SpecOf(const Node& node, bool deterministic);

// The outputs of one node, given its inputs' values. The node's output shapes
// must be concrete. Variables are not read or written: an op that updates one
// is given a copy, which is its first output.
Result<std::vector<Tensor>> EvaluateNode(const Node& node,
                                         const std::vector<Tensor>& inputs,
                                         const StepContext& step = {});

// EvaluateNode as passes ask for it (passes::Fold).
Result<std::vector<Tensor>> FoldNode(const Node& node,
                                     const std::vector<Tensor>& inputs);

// Evaluates `fetch` by running every node it needs, one after another, with
// `given` values for some outputs (placeholders, variables).
Result<Tensor> Evaluate(const Output& fetch,
                        const std::map<Output, Tensor>& given,
                        const StepContext& step = {});

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_EVALUATE_H_
