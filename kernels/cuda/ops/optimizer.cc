// The kernels of optimizer steps, of one variable or a list of them.
#include "kernels/cuda/ops/optimizer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/semantics/optimizer_operands.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/kernels.h"
#include "kernels/cuda/runtime/memory.h"

namespace sluice::cuda {
namespace {

// The device reads where the variables are from a table in its memory. It is
// uploaded at the first run and again when an operand has moved, so that a
// captured step, whose operands stay where they are, holds no copy.
class OptimizerStep final : public Kernel {
 public:
  static Result<KernelPtr> Make(const KernelSpec& spec,
                                const OptimizerRule& rule) {
    std::unique_ptr<OptimizerStep> step(new OptimizerStep(spec, rule));
    SLUICE_ASSIGN_OR_RETURN(step->pinned_, AllocatePinned(step->table_bytes()));
    SLUICE_ASSIGN_OR_RETURN(step->device_,
                            AllocateOnDevice(step->table_bytes()));
    return KernelPtr(std::move(step));
  }
  Status Run(const KernelContext& c) override {
    if (Moved(c)) uploaded_ = false;
    if (!uploaded_) SLUICE_RETURN_IF_ERROR(Upload(c));
    uploaded_ = true;
    OptimizerList list;
    list.tensors = static_cast<const OptimizerTensor*>(device_.get());
    list.count = at_.variables;
    list.chunks = chunks_;
    list.learning_rate = c.input<float>(at_.rate);
    if (at_.step >= 0) list.step = c.input<int64_t>(at_.step);
    if (at_.gradient_scale >= 0) {
      list.gradient_scale = c.input<float>(at_.gradient_scale);
    }
    if (at_.apply >= 0) list.apply = c.input<bool>(at_.apply);
    return launch_(list, params_, StreamOf(c));
  }

 private:
  OptimizerStep(const KernelSpec& spec, const OptimizerRule& rule)
      : at_(spec, rule.slots, rule.counts_steps),
        params_(OptimizerParamsOf(spec.attrs)),
        launch_(rule.launcher(spec.inputs[0].dtype)),
        tensors_(at_.variables) {
    for (int i = 0; i < at_.variables; ++i) {
      tensors_[i].elements = spec.inputs[i].shape.elements();
      tensors_[i].gradient_dtype = spec.inputs[at_.gradient + i].dtype;
    }
    chunks_ = PlanOptimizer(tensors_);
  }
  size_t table_bytes() const {
    return tensors_.size() * sizeof(OptimizerTensor);
  }

  // Brings tensors_ up to date. Was anything elsewhere than before?
  bool Moved(const KernelContext& c) {
    bool moved = false;
    const auto place = [&](auto& pointer, auto* now) {
      moved |= pointer != now;
      pointer = now;
    };
    for (int i = 0; i < at_.variables; ++i) {
      OptimizerTensor& tensor = tensors_[i];
      place(tensor.variable, c.mutable_input<void>(i));
      for (int s = 0; s < at_.slots; ++s) {
        place(tensor.slots[s],
              c.mutable_input<void>((1 + s) * at_.variables + i));
      }
      place(tensor.gradient, c.input<void>(at_.gradient + i));
    }
    return moved;
  }

  Status Upload(const KernelContext& c) {
    // A copy from the pinned memory may still be under way.
    SLUICE_RETURN_IF_ERROR(
        Check(cudaStreamSynchronize(StreamOf(c)), "wait for the last step"));
    std::copy(tensors_.begin(), tensors_.end(),
              static_cast<OptimizerTensor*>(pinned_.get()));
    return Check(cudaMemcpyAsync(device_.get(), pinned_.get(), table_bytes(),
                                 cudaMemcpyDefault, StreamOf(c)),
                 "copy of the optimizer's table");
  }

  const OptimizerOperands at_;
  const OptimizerParams params_;
  const OptimizerLauncher launch_;
  std::vector<OptimizerTensor> tensors_;
  int64_t chunks_ = 0;
  bool uploaded_ = false;
  std::shared_ptr<void> pinned_, device_;
};

}  // namespace

void RegisterOptimizerKernels(KernelTable& table) {
  for (const OptimizerRule& rule : OptimizerRules()) {
    const auto make = [&rule](const KernelSpec& spec) {
      return OptimizerStep::Make(spec, rule);
    };
    RegisterOwn(table, rule.op, kFloatDouble, make);
    RegisterOwn(table, rule.op + std::string("List"), kFloatDouble, make);
  }
}

}  // namespace sluice::cuda
