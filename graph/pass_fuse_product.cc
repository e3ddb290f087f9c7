// What is added to a matrix product, as part of it: the product's last pass
// over each tile of the result adds it while the tile is in registers.
//
//   MatMul + bias (+ Relu)   -> MatMulBias
//   MatMul + addend          -> MatMulAdd, in the addend's place where it may:
//                               the sum of two gradients costs one more read
#include <algorithm>

#include "graph/fuse_rules.h"

namespace sluice::passes {
namespace {

// A product that is used here alone.
Node* ProductAt(const NodeMerger& merger, const Node& node, int input) {
  Node& product = node.input(input).node();
  const bool only =
      product.Is("MatMul") && merger.UsesOf(product.output(0)).size() == 1;
  return only ? &product : nullptr;
}

// Whether nobody else wants the bytes; otherwise they would be copied first.
bool CanTakeOver(const NodeMerger& merger, const Output& addend) {
  return merger.UsesOf(addend).size() == 1 && !IsVariable(addend) &&
         !addend.node().op().view && !addend.node().Is("Const") &&
         !addend.node().Is("Placeholder");
}

void FuseBias(NodeMerger& merger, Node& bias_add, Fusions* done) {
  Node* product = ProductAt(merger, bias_add, 0);
  if (product == nullptr) return;
  std::vector<Node*> members = {product, &bias_add};
  Node* root = &bias_add;
  const std::vector<NodeMerger::Use> uses = merger.UsesOf(bias_add.output(0));
  if (uses.size() == 1 && uses[0].user->Is("Relu")) {
    members.push_back(uses[0].user);
    if (merger.CanMerge(members)) {
      root = uses[0].user;
    } else {
      members.pop_back();
    }
  }
  if (!merger.CanMerge(members)) return;
  NodeMerger::Merged merged;
  merged.op = &OpTable::Global().Get("MatMulBias");
  merged.attrs = product->attrs();
  merged.attrs.Set("relu", root != &bias_add);
  merged.inputs = {product->input(0), product->input(1), bias_add.input(1)};
  merged.types = bias_add.output_types();
  merged.outputs[root->output(0)] = 0;
  // Each read and wrote the product in place.
  const int64_t passes = 2 * static_cast<int64_t>(members.size() - 1);
  MergeAs(merger, members, *root, merged, passes * BytesOf(product->output(0)),
          done);
}

void FuseAddend(NodeMerger& merger, Node& add, Fusions* done) {
  for (int i : {0, 1}) {
    Node* product = ProductAt(merger, add, i);
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

}  // namespace

void FuseProducts(NodeMerger& merger, Fusions* done) {
  for (Node* node : merger.Order()) {
    if (merger.gone(*node)) continue;
    if (node->Is("BiasAdd")) FuseBias(merger, *node, done);
    if (node->Is("Add")) FuseAddend(merger, *node, done);
  }
}

}  // namespace sluice::passes
