// Maximum pools that say which element of its window each result is:
//
//   y  = MaxPool(x)                y  = MaxPoolWithArgmax(x)
//   dx = MaxPoolGrad(x, y, dy)     dx = MaxPoolGradWithArgmax(dy, y:1, shape)
//
// The gradient then reads a byte per result where it read x and y, x once for
// each window that covers it, and x need not be kept until then.
#include "engine/semantics/pool_argmax.h"
#include "graph/passes/fuse_rules.h"

namespace sluice::passes {
namespace {

std::vector<Node*> GradientsOf(const NodeMerger& merger, const Node& pool) {
  std::vector<Node*> gradients;
  for (const NodeMerger::Use& use : merger.UsesOf(pool.output(0))) {
    Node& user = *use.user;
    if (use.input == 1 && user.Is("MaxPoolGrad") &&
        user.input(0) == pool.input(0) && user.attrs() == pool.attrs() &&
        user.device() == pool.device()) {
      gradients.push_back(&user);
    }
  }
  return gradients;
}

void FuseMaxPool(NodeMerger& merger, Node& pool, Fusions* done) {
  const std::vector<int64_t>& window = pool.attrs().Ints("window");
  if (window[0] * window[1] > kNoPoolElement) return;
  const std::vector<Node*> gradients = GradientsOf(merger, pool);
  if (gradients.empty()) return;
  const Output x = pool.input(0), y = pool.output(0);
  const TensorType argmax = {DType::kUInt8, y.shape()};
  const int64_t argmax_bytes = y.shape().elements();

  NodeMerger::Merged forward;
  forward.op = &OpTable::Global().Get("MaxPoolWithArgmax");
  forward.attrs = pool.attrs();
  forward.inputs = {x};
  forward.types = {y.type(), argmax};
  forward.outputs[y] = 0;
  MergeAs(merger, {&pool}, pool, forward, -argmax_bytes, done);

  const Shape shape = x.shape();
  for (Node* gradient : gradients) {
    NodeMerger::Merged merged;
    merged.op = &OpTable::Global().Get("MaxPoolGradWithArgmax");
    merged.attrs = gradient->attrs();
    merged.inputs = {
        gradient->input(2), pool.output(1),
        merger.AddConstant(*gradient, "x_shape",
                           Tensor::Vector<int64_t>(std::vector<int64_t>(
                               shape.begin(), shape.end())))};
    merged.types = gradient->output_types();
    merged.outputs[gradient->output(0)] = 0;
    MergeAs(merger, {gradient}, *gradient, merged,
            BytesOf(x) + BytesOf(y) - argmax_bytes, done);
  }
}

}  // namespace

void FuseMaxPools(NodeMerger& merger, Fusions* done) {
  for (Node* node : merger.Order()) {
    if (node->Is("MaxPool")) FuseMaxPool(merger, *node, done);
  }
}

}  // namespace sluice::passes
