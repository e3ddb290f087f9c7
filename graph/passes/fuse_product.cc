// What is added to a matrix product or a convolution, as part of it: the last
// pass over each tile of the result adds it while the tile is in registers.
//
//   MatMul + bias (+ Relu)            -> MatMulBias
//   MatMul + addend                   -> MatMulAdd, in the addend's place where
//                                        it may: the sum of two gradients costs
//                                        one more read
//   Conv2D + bias (+ addend) (+ Relu) -> Conv2DBias, Conv2DBiasAdd
#include <algorithm>

#include "graph/passes/fuse_rules.h"

namespace sluice::passes {
namespace {

// The node behind an operand, if it is of this op and used here alone.
Node* OnlyUsedAt(const NodeMerger& merger, const Node& node, int input,
                 const char* op) {
  const Output& operand = node.input(input);
  const bool only = operand.node().Is(op) && merger.UsesOf(operand).size() == 1;
  return only ? &operand.node() : nullptr;
}

// Whether nobody else wants the bytes; otherwise they would be copied first.
bool CanTakeOver(const NodeMerger& merger, const Output& addend) {
  return merger.UsesOf(addend).size() == 1 && !IsVariable(addend) &&
         !addend.node().op().view && !addend.node().IsConstant() &&
         !addend.node().IsPlaceholder();
}

// Merges `product` and `sum`, and a ReLU that is all that follows, into one of
// `op`.
bool MergeSum(NodeMerger& merger, Node& product, Node& sum, const char* op,
              std::vector<Output> inputs, Fusions* done) {
  std::vector<Node*> members = {&product, &sum};
  Node* root = &sum;
  const std::vector<NodeMerger::Use> uses = merger.UsesOf(sum.output(0));
  if (uses.size() == 1 && uses[0].user->Is("Relu")) {
    members.push_back(uses[0].user);
    if (merger.CanMerge(members)) {
      root = uses[0].user;
    } else {
      members.pop_back();
    }
  }
  if (!merger.CanMerge(members)) return false;
  NodeMerger::Merged merged;
  merged.op = &OpTable::Global().Get(op);
  merged.attrs = product.attrs();
  merged.attrs.Set("relu", root != &sum);
  merged.inputs = std::move(inputs);
  merged.types = sum.output_types();
  merged.outputs[root->output(0)] = 0;
  // Each read and wrote the product in place.
  const int64_t passes = 2 * static_cast<int64_t>(members.size() - 1);
  MergeAs(merger, members, *root, merged, passes * BytesOf(product.output(0)),
          done);
  return true;
}

void FuseBias(NodeMerger& merger, Node& bias_add, Fusions* done) {
  for (const auto& [op, fused] :
       {std::pair{"MatMul", "MatMulBias"}, {"Conv2D", "Conv2DBias"}}) {
    Node* product = OnlyUsedAt(merger, bias_add, 0, op);
    if (product == nullptr) continue;
    MergeSum(merger, *product, bias_add, fused,
             {product->input(0), product->input(1), bias_add.input(1)}, done);
    return;
  }
}

void FuseAddend(NodeMerger& merger, Node& add, Fusions* done) {
  for (int i : {0, 1}) {
    Node* product = OnlyUsedAt(merger, add, i, "MatMul");
    const Output& addend = add.input(1 - i);
    if (product == nullptr || addend.shape() != product->output_type(0).shape ||
        !CanTakeOver(merger, addend) || !merger.CanMerge({product, &add})) {
      continue;
    }
    NodeMerger::Merged merged;
    merged.op = &OpTable::Global().Get("MatMulAdd");
    merged.attrs = product->attrs();
    merged.inputs = {product->input(0), product->input(1), addend};
    merged.types = add.output_types();
    merged.outputs[add.output(0)] = 0;
    // Written, read with the addend, written; instead of read and written.
    MergeAs(merger, {product, &add}, add, merged,
            2 * BytesOf(product->output(0)), done);
    return;
  }
}

// A residual block's shortcut. It is read where it lies, so others may want it.
void FuseShortcut(NodeMerger& merger, Node& add, Fusions* done) {
  for (int i : {0, 1}) {
    Node* conv = OnlyUsedAt(merger, add, i, "Conv2DBias");
    const Output& addend = add.input(1 - i);
    if (conv == nullptr || conv->attrs().Bool("relu") ||
        addend.shape() != conv->output_type(0).shape) {
      continue;
    }
    std::vector<Output> inputs(conv->inputs().begin(), conv->inputs().end());
    inputs.push_back(addend);
    if (MergeSum(merger, *conv, add, "Conv2DBiasAdd", std::move(inputs),
                 done)) {
      return;
    }
  }
}

}  // namespace

void FuseProducts(NodeMerger& merger, Fusions* done) {
  for (Node* node : merger.Order()) {
    if (merger.gone(*node)) continue;
    if (node->Is("BiasAdd")) FuseBias(merger, *node, done);
    if (node->Is("Add")) {
      FuseAddend(merger, *node, done);
      if (node->Is("Add")) FuseShortcut(merger, *node, done);
    }
  }
}

}  // namespace sluice::passes
