// float16 and bfloat16 through float32: operands are converted, the best
// float32 kernel runs, results are converted back. Numerically that is a kernel
// which multiplies halves exactly, sums in float32 and rounds once. It serves
// the ops whose float32 kernels leave the reference's loops far behind, and
// those whose sums grow in the result; what computes in half itself registers
// above it.
#include <algorithm>
#include <array>

#include "engine/ceil_div.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

constexpr const char* kOps[] = {
    "MatMul",
    "BatchMatMul",
    "MatMulBias",
    "MatMulAdd",
    "Conv2D",
    "Conv2DBias",
    "Conv2DBiasAdd",
    "Conv2DBackpropInput",
    "Conv2DBackpropFilter",
    "DepthwiseConv2D",
    "DepthwiseConv2DBackpropInput",
    "DepthwiseConv2DBackpropFilter",
    "MaxPool",
    "MaxPoolGrad",
    "MaxPoolWithArgmax",
    "MaxPoolGradWithArgmax",
    "AvgPool",
    "AvgPoolGrad",
    "BatchNorm",
    "BatchNormRelu",
    "BatchNormAddRelu",
    "BatchNormGrad",
    "BatchNormReluGrad",
    "BatchNormAddReluGrad",
    "BatchNormInference",
    "ScatterAdd",
    "Fused",
    "FusedSum",
};
constexpr size_t kMostOperands = 12;

KernelSpec Widened(const KernelSpec& spec) {
  KernelSpec wide = spec;
  for (auto* types : {&wide.inputs, &wide.outputs}) {
    for (TensorType& type : *types) type.dtype = ComputeDType(type.dtype);
  }
  for (size_t i = 0; i < wide.constants.size(); ++i) {
    wide.constants[i] = wide.constants[i].Cast(wide.inputs[i].dtype);
  }
  return wide;
}

Result<KernelPtr> Make(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(MadeKernel made,
                          KernelTable::Global().Make(spec, DeviceType::kCpu));
  return std::move(made.kernel);
}

Result<KernelPtr> MakeCast(const TensorType& from, DType to) {
  KernelSpec spec;
  spec.op = "Cast";
  spec.attrs = {{"to", to}};
  spec.inputs = {from};
  spec.outputs = {{to, from.shape}};
  return Make(spec);
}

// An operand that is converted, into or out of the workspace.
struct Conversion {
  size_t operand = 0;
  size_t offset = 0;  // of the float32 elements
  KernelPtr cast;
};

class WidenedKernel final : public Kernel {
 public:
  Status Prepare(const KernelSpec& spec) {
    const KernelSpec wide = Widened(spec);
    for (size_t i = 0; i < spec.inputs.size(); ++i) {
      const DType to = wide.inputs[i].dtype;
      if (to == spec.inputs[i].dtype) continue;
      if (ConstantInput(wide, static_cast<int>(i)) != nullptr) {
        constants_[i] = wide.constants[i];
        continue;
      }
      SLUICE_ASSIGN_OR_RETURN(KernelPtr cast, MakeCast(spec.inputs[i], to));
      inputs_.push_back({i, Take(wide.inputs[i].bytes()), std::move(cast)});
    }
    for (size_t i = 0; i < spec.outputs.size(); ++i) {
      if (wide.outputs[i].dtype == spec.outputs[i].dtype) continue;
      SLUICE_ASSIGN_OR_RETURN(KernelPtr cast,
                              MakeCast(wide.outputs[i], spec.outputs[i].dtype));
      outputs_.push_back({i, Take(wide.outputs[i].bytes()), std::move(cast)});
    }
    num_inputs_ = spec.inputs.size();
    num_outputs_ = spec.outputs.size();
    SLUICE_ASSIGN_OR_RETURN(kernel_, Make(wide));
    return {};
  }

  size_t workspace_bytes() const override {
    return bytes_ + kernel_->workspace_bytes();
  }

  Status Run(const KernelContext& c) override {
    char* workspace = static_cast<char*>(c.workspace());
    std::array<void*, kMostOperands> in{}, out{};
    for (size_t i = 0; i < num_inputs_; ++i) {
      in[i] = constants_[i].elements() > 0
                  ? constants_[i].raw()
                  : c.mutable_input<void>(static_cast<int>(i));
    }
    for (size_t i = 0; i < num_outputs_; ++i) {
      out[i] = c.output<void>(static_cast<int>(i));
    }
    for (const Conversion& input : inputs_) {
      void* wide = workspace + input.offset;
      SLUICE_RETURN_IF_ERROR(Convert(input, in[input.operand], wide, c));
      in[input.operand] = wide;
    }
    const std::array<void*, kMostOperands> results = out;
    for (const Conversion& output : outputs_) {
      out[output.operand] = workspace + output.offset;
    }
    SLUICE_RETURN_IF_ERROR(kernel_->Run(
        KernelContext(in.data(), out.data(), workspace + bytes_, &c.step())));
    for (const Conversion& output : outputs_) {
      SLUICE_RETURN_IF_ERROR(
          Convert(output, out[output.operand], results[output.operand], c));
    }
    return {};
  }

 private:
  // Where the next `bytes` of the workspace are.
  size_t Take(size_t bytes) {
    const size_t offset = bytes_;
    bytes_ += RoundUp(bytes, kAlignment);
    return offset;
  }

  static Status Convert(const Conversion& conversion, void* from, void* to,
                        const KernelContext& c) {
    return conversion.cast->Run(KernelContext(&from, &to, nullptr, &c.step()));
  }

  KernelPtr kernel_;
  std::vector<Conversion> inputs_, outputs_;
  std::array<Tensor, kMostOperands> constants_;  // converted; else empty
  size_t num_inputs_ = 0, num_outputs_ = 0;
  size_t bytes_ = 0;  // of the workspace, before the kernel's own
};

bool Supports(const KernelSpec& spec) {
  return spec.inputs.size() <= kMostOperands &&
         spec.outputs.size() <= kMostOperands &&
         KernelTable::Global().Find(Widened(spec), DeviceType::kCpu).ok();
}

}  // namespace

void RegisterWidenedKernels(KernelTable& table) {
  for (const char* op : kOps) {
    table.Register({.op = op,
                    .priority = 5,
                    .provider = "widened",
                    .supports = Supports,
                    .dtypes = DTypeSet(DType::kFloat16) | DType::kBFloat16,
                    .make = [](const KernelSpec& spec) -> Result<KernelPtr> {
                      auto kernel = std::make_unique<WidenedKernel>();
                      SLUICE_RETURN_IF_ERROR(kernel->Prepare(spec));
                      return KernelPtr(std::move(kernel));
                    }});
  }
}

}  // namespace sluice::cpu
