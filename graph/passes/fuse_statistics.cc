// Statistics of what a convolution makes, made by the convolution:
//
//   y = OhwiConv2D(x, filter)      y, sum, squares = OhwiConv2DWithSums(...)
//   z = BatchNorm(y, ...)          z = BatchNormBySums(y, ..., sum, squares)
//
// likewise of BatchNormRelu and BatchNormAddRelu. Batch normalisation then
// reads y once, where it read it for its statistics as well. Runs on what
// TurnFilters leaves, where a device says that its convolutions can
// (half_sums): in float16 and one group, with whole packs of channels, the same
// padding before and behind, and windows of up to 5 x 5. Such cuDNN has plans
// for (tests/kernels/cuda/vendor/cudnn_plan_test.cc); where it has none after
// all, the kernel makes the sums in a second pass.
#include <algorithm>
#include <utility>
#include <vector>

#include "engine/semantics/filter_layout.h"
#include "engine/semantics/window.h"
#include "graph/passes/passes.h"

namespace sluice::passes {
namespace {

// Channels of images in 16 bytes.
constexpr int64_t kPack = 8;
constexpr int64_t kLargestWindow = 5;

bool HasPlans(const WindowDim& d) {
  return d.window <= kLargestWindow && d.pad_before == d.pad_after;
}
bool HasPlans(const Node& conv) {
  const Shape& x = conv.input(0).shape();
  const Shape filter = HwioOf(conv.input(1).shape());
  const Result<Window2D> window =
      WindowOf(conv.attrs(), x, filter[0], filter[1]);
  return window.ok() && HasPlans(window->h) && HasPlans(window->w) &&
         conv.attrs().Int("groups") == 1 && x[3] % kPack == 0 &&
         filter[3] % kPack == 0;
}

bool Sums(const Node& conv, const DeviceDescriptions& devices) {
  const DeviceDescription* device = FindDevice(devices, conv.device());
  return device != nullptr && device->half_sums &&
         conv.op().with_sums != nullptr &&
         conv.output_type(0).dtype == DType::kFloat16 && HasPlans(conv);
}

void GiveSums(Node& conv) {
  const TensorType y = conv.output_type(0);
  const TensorType sums = {ComputeDType(y.dtype), {y.shape[3]}};
  conv.Become(OpTable::Global().Get(conv.op().with_sums), conv.attrs(),
              conv.inputs());
  conv.set_output_types({y, sums, sums});
}

}  // namespace

void FuseStatistics(Graph& graph, const DeviceDescriptions& devices) {
  // Those that have sums: several may read one.
  std::vector<const Node*> summed;
  for (Node* node : graph.TopologicalOrder()) {
    if (node->op().by_sums == nullptr) continue;
    const Output y = node->input(0);
    if (y.index() != 0 || y.node().device() != node->device()) continue;
    const bool has =
        std::find(summed.begin(), summed.end(), &y.node()) != summed.end();
    if (!has) {
      if (!Sums(y.node(), devices)) continue;
      GiveSums(y.node());
      summed.push_back(&y.node());
    }
    std::vector<Output> inputs = node->inputs();
    inputs.push_back(y.node().output(1));
    inputs.push_back(y.node().output(2));
    node->Become(OpTable::Global().Get(node->op().by_sums), node->attrs(),
                 std::move(inputs));
  }
}

}  // namespace sluice::passes
