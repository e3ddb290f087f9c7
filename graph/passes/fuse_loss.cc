// Softmax cross entropy and its gradient with respect to the logits in one pass
// over them. That works where the loss's own gradient does not depend on the
// loss, as for a mean or a sum; for a square it does.
#include "graph/passes/fuse_rules.h"

namespace sluice::passes {
namespace {

void FuseLoss(NodeMerger& merger, Node& loss, Fusions* done) {
  Node* gradient = nullptr;
  for (const NodeMerger::Use& use : merger.UsesOf(loss.output(1))) {
    Node& user = *use.user;
    if (use.input == 2 && user.Is(loss.op().gradient_op) &&
        user.input(0) == loss.input(0) && user.input(1) == loss.input(1) &&
        user.input(3) == loss.output(2) && &user.input(4).node() != &loss &&
        user.attrs() == loss.attrs()) {
      gradient = &user;
    }
  }
  if (gradient == nullptr || !merger.CanMerge({&loss, gradient})) return;
  NodeMerger::Merged merged;
  merged.op = &OpTable::Global().Get(loss.op().with_gradient);
  merged.attrs = loss.attrs();
  merged.inputs = {loss.input(0), loss.input(1), gradient->input(4)};
  merged.types = loss.output_types();
  merged.types.push_back(gradient->output_type(0));
  for (int i = 0; i < 3; ++i) merged.outputs[loss.output(i)] = i;
  merged.outputs[gradient->output(0)] = 3;
  MergeAs(merger, {&loss, gradient}, *gradient, merged, BytesOf(loss.input(0)),
          done);
}

}  // namespace

void FuseLosses(NodeMerger& merger, Fusions* done) {
  for (Node* node : merger.Order()) {
    if (node->op().with_gradient != nullptr) FuseLoss(merger, *node, done);
  }
}

}  // namespace sluice::passes
