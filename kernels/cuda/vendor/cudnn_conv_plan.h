// Convolutions in cuDNN's words: the operations, the engines that it suggests
// for them, and plans of those.
#ifndef SLUICE_KERNELS_CUDA_VENDOR_CUDNN_CONV_PLAN_H_
#define SLUICE_KERNELS_CUDA_VENDOR_CUDNN_CONV_PLAN_H_

#include <cstdint>
#include <vector>

#include "engine/semantics/conv_geometry.h"
#include "kernels/cuda/ops/conv/conv.h"
#include "kernels/cuda/vendor/cudnn.h"

namespace sluice::cuda {

// A convolution, and what is done to y in the same pass: + addend + bias, then
// max(0, .).
struct DnnConv {
  ConvGeometry geometry;
  ConvPass pass = ConvPass::kForward;
  DType dtype = DType::kFloat32;  // float32, float16 or bfloat16
  bool bias = false, addend = false, relu = false;
  // Whether to compute also the sums of each channel of y, and of its squares,
  // in float32.
  bool sums = false;
};

// Whether cuDNN takes such a convolution. It refuses tensors without elements,
// though of images without pixels, padded, there may be windows.
inline bool DnnTakes(const ConvGeometry& g) {
  const auto any = [](const WindowDim& d) {
    return d.input > 0 && d.output > 0 && d.window > 0;
  };
  return g.images > 0 && g.groups > 0 && g.in > 0 && g.out > 0 && any(g.h) &&
         any(g.w);
}

// Device memory of a run: images NHWC, filters OHWI of a group's input
// channels, the bias [channels of y]; null for what the convolution lacks.
struct DnnOperands {
  void* x = nullptr;       // or dx
  void* filter = nullptr;  // or dfilter
  void* y = nullptr;       // or dy
  void* bias = nullptr;
  void* addend = nullptr;
  void* sum = nullptr;      // float32, as the next
  void* squares = nullptr;  // [channels of y]
  void* workspace = nullptr;
  friend bool operator==(const DnnOperands&, const DnnOperands&) = default;
};

// The operations, connected. Movable.
class DnnConvGraph {
 public:
  static Result<DnnConvGraph> Make(const DnnConv& conv,
                                   const DnnTarget& target);
  const DnnDescriptor& get() const { return graph_; }
  // Are its operands float32?
  bool exact() const { return exact_; }

 private:
  std::vector<DnnDescriptor> parts_;  // what graph_ refers to
  DnnDescriptor graph_;
  bool exact_ = false;
};

struct DnnConditions {
  bool deterministic = false;
  bool tf32 = false;  // with float32
};

// One way to run the operations. Who makes it says which they are.
struct DnnPlan {
  int64_t engine = 0;  // cuDNN's number
  DnnDescriptor config, plan;
  size_t workspace = 0;  // bytes
  bool sums = false;     // whether DnnConv::sums are among the operations
};

// cuDNN's suggestions that meet the conditions, best first by its own
// estimate: configurations of engines, of which not all can become plans.
std::vector<DnnDescriptor> DnnSuggestions(const DnnConvGraph& graph,
                                          const DnnTarget& target,
                                          const DnnConditions& conditions);
// cuDNN's number of a configuration's engine; -1 where it does not say.
int64_t DnnEngineOf(const DnnDescriptor& config);
// Unimplemented where the engine cannot after all.
Result<DnnPlan> MakeDnnPlan(DnnDescriptor config, const DnnTarget& target);

// The operands in cuDNN's words, for DnnDevice::Execute.
Result<DnnDescriptor> MakeDnnPack(const DnnConv& conv,
                                  const DnnOperands& operands);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_VENDOR_CUDNN_CONV_PLAN_H_
