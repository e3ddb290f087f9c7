// Batch normalisation with the addition and the ReLU behind it.
//
//   y = Relu(BatchNorm(x))            -> BatchNormRelu(x), y and a mask
//   y = Relu(BatchNorm(x) + addend)   -> BatchNormAddRelu(x, addend)
//
// likewise of BatchNormApply, and
//
//   g = ReluGrad(dy, y); BatchNormGrad(x, ..., g)
//                                     -> BatchNormReluGrad(x, ..., mask, dy)
//
// and where others use g too (the gradient of the addend),
// BatchNormAddReluGrad, which gives g as an output. dy may be the sum of two
// terms, as behind a residual connection: then the addition joins in as well.
// A second BatchNormGrad of the same g (a projection shortcut) reads the mask
// and dy for itself, which moves as many bytes as reading g but leaves none to
// be written. kernels/cpu/norm/batch_norm.h counts the bytes.
#include <algorithm>

#include "engine/ceil_div.h"
#include "graph/passes/fuse_rules.h"

namespace sluice::passes {
namespace {

bool UsedOnce(const NodeMerger& merger, const Output& output) {
  return merger.UsesOf(output).size() == 1;
}

bool SameShapes(const Node& add) {
  return add.input(0).shape() == add.input(1).shape();
}

// By BatchNorm, or by BatchNormApply, which recomputation does it again with.
bool IsNormalized(const Output& output) {
  return output.node().op().with_relu != nullptr && output.index() == 0;
}

void FuseForward(NodeMerger& merger, Node& relu, Fusions* done) {
  const Output before = relu.input(0);
  if (!UsedOnce(merger, before)) return;
  std::vector<Node*> members = {&before.node(), &relu};
  Node* norm = &before.node();
  Output addend;
  if (before.node().Is("Add") && SameShapes(before.node())) {
    for (int i : {0, 1}) {
      const Output& normalized = before.node().input(i);
      const Output& other = before.node().input(1 - i);
      // Statistics of a vector have its shape, and are made with it.
      if (!IsNormalized(normalized) || !UsedOnce(merger, normalized) ||
          &other.node() == &normalized.node()) {
        continue;
      }
      norm = &normalized.node();
      addend = other;
      members.insert(members.begin(), norm);
      break;
    }
    if (!addend.valid()) return;
  } else if (!IsNormalized(before)) {
    return;
  }
  if (!merger.CanMerge(members)) return;

  NodeMerger::Merged merged;
  merged.op = &OpTable::Global().Get(addend.valid() ? norm->op().with_add_relu
                                                    : norm->op().with_relu);
  merged.attrs = norm->attrs();
  merged.inputs = norm->inputs();
  if (addend.valid()) merged.inputs.push_back(addend);
  merged.types = norm->output_types();
  const int64_t mask_bytes =
      CeilDiv(relu.output_type(0).shape.elements(), int64_t{8});
  merged.types.push_back({DType::kUInt8, {mask_bytes}});
  merged.outputs[relu.output(0)] = 0;
  for (int i = 1; i < norm->num_outputs(); ++i) {
    merged.outputs[norm->output(i)] = i;
  }
  // The ReLU read and wrote, the addition read the normalised x once more.
  const int64_t passes = addend.valid() ? 4 : 2;
  MergeAs(merger, members, relu, merged, passes * BytesOf(before) - mask_bytes,
          done);
}

// BatchNormGrads whose dy is g, in order.
std::vector<Node*> NormGradsOf(const NodeMerger& merger, const Output& g) {
  std::vector<Node*> grads;
  for (const NodeMerger::Use& use : merger.UsesOf(g)) {
    if (use.user->Is("BatchNormGrad") && use.input == 4 &&
        std::count(use.user->inputs().begin(), use.user->inputs().end(), g) ==
            1) {
      grads.push_back(use.user);
    }
  }
  std::sort(grads.begin(), grads.end(),
            [](const Node* a, const Node* b) { return a->id() < b->id(); });
  return grads;
}

NodeMerger::Merged GradOf(const Node& norm_grad, const Output& mask,
                          const std::vector<Output>& terms, bool keep) {
  NodeMerger::Merged merged;
  merged.op = &OpTable::Global().Get(keep ? "BatchNormAddReluGrad"
                                          : "BatchNormReluGrad");
  merged.inputs.assign(norm_grad.inputs().begin(),
                       norm_grad.inputs().begin() + 4);
  merged.inputs.push_back(mask);
  merged.inputs.insert(merged.inputs.end(), terms.begin(), terms.end());
  merged.types = norm_grad.output_types();
  if (keep) merged.types.push_back(norm_grad.output_type(0));
  for (int i = 0; i < 3; ++i) merged.outputs[norm_grad.output(i)] = i;
  return merged;
}

// Where y, the first output of one of the ops above, is positive; or nothing.
Output MaskOf(const NodeMerger& merger, const Output& y) {
  const Node& node = y.node();
  if (y.index() != 0 || !node.op().relu_mask) return {};
  // Of what is computed again for its own gradient alone the first has one too.
  if (node.Is("BatchNormApplyRelu") && UsedOnce(merger, y)) {
    const Node& first = node.input(3).node();
    if (first.Is("BatchNormRelu") && first.origin() == node.origin()) {
      return first.output(5);
    }
  }
  return node.output(node.num_outputs() - 1);
}

void FuseGradient(NodeMerger& merger, Node& relu_grad, Fusions* done) {
  const Output mask = MaskOf(merger, relu_grad.input(1));
  if (!mask.valid()) return;
  const Output g = relu_grad.output(0);
  const Output dy = relu_grad.input(0);
  const std::vector<Node*> grads = NormGradsOf(merger, g);
  if (grads.empty()) return;
  Node& first = *grads[0];

  std::vector<Node*> members = {&relu_grad, &first};
  std::vector<Output> terms = {dy};
  if (dy.node().Is("Add") && SameShapes(dy.node()) && UsedOnce(merger, dy)) {
    std::vector<Node*> more = {&dy.node(), &relu_grad, &first};
    if (merger.CanMerge(more)) {
      members = more;
      terms = dy.node().inputs();
    }
  }
  if (!merger.CanMerge(members)) return;
  const bool others = merger.UsesOf(g).size() > grads.size();
  const bool keep = others || (terms.size() == 2 && grads.size() > 1);
  if (keep) {
    NodeMerger::Merged merged = GradOf(first, mask, terms, true);
    merged.outputs[g] = 3;
    // Without: read dy, y, write g; read g twice. With: read dy, write g and
    // read it once.
    const int64_t passes = terms.size() == 2 ? 4 : 2;
    MergeAs(merger, members, first, merged, passes * BytesOf(g), done);
    return;
  }
  // Of several, each takes the mask for itself; the last takes the ReluGrad
  // along.
  for (const Node* norm_grad : grads) {
    if (norm_grad->device() != relu_grad.device()) return;
  }
  if (grads.size() > 1 && IsVariable(dy)) return;
  for (size_t i = grads.size(); i-- > 1;) {
    Node& norm_grad = *grads[i];
    NodeMerger::Merged merged = GradOf(norm_grad, mask, terms, false);
    for (Node* control : relu_grad.control_inputs()) {
      norm_grad.AddControlInput(control);
    }
    MergeAs(merger, {&norm_grad}, norm_grad, merged, 0, done);
  }
  const int64_t passes = terms.size() == 2 ? 4 : 3;
  MergeAs(merger, members, first, GradOf(first, mask, terms, false),
          passes * BytesOf(g), done);
}

}  // namespace

void FuseNorms(NodeMerger& merger, Fusions* done) {
  for (Node* node : merger.Order()) {
    if (node->Is("Relu")) FuseForward(merger, *node, done);
  }
  for (Node* node : merger.Order()) {
    if (node->Is("ReluGrad")) FuseGradient(merger, *node, done);
  }
  for (Node* node : merger.Order()) {
    const bool again = node->Is("BatchNormApplyRelu");
    if (again && merger.uses(*node).empty()) merger.Drop(*node);
  }
}

}  // namespace sluice::passes
