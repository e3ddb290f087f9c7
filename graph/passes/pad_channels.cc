// A fourth channel for images, where a device convolves that faster. Tensor
// cores take what they read in packs: of the three channels of colours, in half
// precision, cuDNN makes padded copies of its own in most engines, in each
// pass. So images and filters get a channel of zeros, which adds nothing to any
// sum:
//
//   y = Conv2D(x, filter)                 y = Conv2D(x4, filter4)
//   d = Conv2DBackpropFilter(x, dy, s)    d4 = Conv2DBackpropFilter(x4, dy, s4)
//                                         d = Slice(d4)
//
// x4 is made once for both, by the pass over memory that made x of float32
// where there was one (CastPad in place of Cast).
#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "graph/passes/passes.h"
#include "graph/passes/variable_writes.h"

namespace sluice::passes {
namespace {

// NVIDIA's guide to convolutions: four are enough for a first layer.
constexpr int64_t kColours = 3, kPadded = 4;

class Padder {
 public:
  Padder(Graph& graph, const DeviceDescriptions& devices, const Fold& fold)
      : graph_(graph),
        devices_(devices),
        fold_(fold),
        nodes_(graph.TopologicalOrder()),
        writes_(nodes_) {}

  void Run() {
    for (Node* node : nodes_) {
      if (Gains(*node)) {
        const Output images = Padded(node->input(0), 3, *node);
        if (node->Is("Conv2D")) {
          node->set_inputs({images, Padded(node->input(1), 2, *node)});
        } else {
          CutGradient(*node, images);
        }
      }
      order_.push_back(node);
    }
    graph_.Renumber(order_);
  }

 private:
  bool Gains(const Node& node) const {
    if (!node.Is("Conv2D") && !node.Is("Conv2DBackpropFilter")) return false;
    const DeviceDescription* device = FindDevice(devices_, node.device());
    return device != nullptr && device->half_channels == kPadded &&
           IsHalf(node.output_type(0).dtype) &&
           node.input(0).shape()[3] == kColours &&
           node.attrs().Int("groups") == 1 && !ReadsWritten(node);
  }

  // Whether an operand is a variable that is written before, which what reads
  // it in the node's place would not wait for.
  bool ReadsWritten(const Node& node) const {
    return std::any_of(node.inputs().begin(), node.inputs().end(),
                       [&](const Output& input) {
                         return !writes_.Before(input, node).empty();
                       });
  }

  Node& Add(const std::string& name, const char* op, Attributes attrs,
            std::vector<Output> inputs, const TensorType& type,
            const Node& user) {
    const std::string unique = graph_.UniqueName(name);
    Node& node = graph_.AddRaw(unique, unique, OpTable::Global().Get(op),
                               std::move(attrs), std::move(inputs), {type});
    node.set_device(user.device());
    node.set_location(user.location());
    order_.push_back(&node);
    return node;
  }

  // x with kPadded channels along `axis`, for a node that stands next.
  Output Padded(const Output& x, int64_t axis, const Node& user) {
    Output& padded = padded_[{x, axis, user.device()}];
    if (padded.valid()) return padded;
    const Node& cast = x.node();
    const bool converts = cast.Is("Cast") && cast.control_inputs().empty() &&
                          cast.device() == user.device() &&
                          IsFloating(cast.input(0).dtype());
    const Output& from = converts ? cast.input(0) : x;
    Shape shape = x.shape();
    shape.set(static_cast<int>(axis), kPadded);
    Node& made = Add(from.node().name() + "/padded", "CastPad",
                     {{"to", x.dtype()}, {"axis", axis}, {"size", kPadded}},
                     {from}, {x.dtype(), shape}, user);
    if (const Tensor* value = ConstantValue(from)) {
      const Result<std::vector<Tensor>> folded = fold_(made, {*value});
      if (folded.ok()) {
        made.Become(OpTable::Global().Get("Const"), {{"value", (*folded)[0]}},
                    {});
      }
    }
    padded = made.output(0);
    return padded;
  }

  // The node keeps its name and becomes the part that is wanted.
  void CutGradient(Node& node, const Output& images) {
    const Shape& wanted = node.output_type(0).shape;
    const std::vector<int64_t> size(wanted.begin(), wanted.end());
    TensorType type = node.output_type(0);
    type.shape.set(2, kPadded);
    const Tensor dims = Tensor::Vector<int64_t>(
        std::vector<int64_t>(type.shape.begin(), type.shape.end()));
    const Node& shape = Add(node.name() + "/shape", "Const", {{"value", dims}},
                            {}, {dims.dtype(), dims.shape()}, node);
    const Node& gradient =
        Add(node.name() + "/padded", "Conv2DBackpropFilter", node.attrs(),
            {images, node.input(1), shape.output(0)}, type, node);
    node.Become(OpTable::Global().Get("Slice"),
                {{"begin", std::vector<int64_t>{0, 0, 0, 0}}, {"size", size}},
                {gradient.output(0)});
  }

  Graph& graph_;
  const DeviceDescriptions& devices_;
  const Fold& fold_;
  const std::vector<Node*> nodes_;
  const VariableWrites writes_;
  std::vector<Node*> order_;  // the new
  std::map<std::tuple<Output, int64_t, std::string>, Output> padded_;
};

}  // namespace

void PadChannels(Graph& graph, const DeviceDescriptions& devices,
                 const Fold& fold) {
  Padder(graph, devices, fold).Run();
}

}  // namespace sluice::passes
