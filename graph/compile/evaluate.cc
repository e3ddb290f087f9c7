#include "graph/compile/evaluate.h"

#include <fmt/format.h>

#include <cstring>

namespace sluice {

KernelSpec SpecOf(const Node& node, bool deterministic) {
  KernelSpec spec;
  spec.op = node.op().name;
  spec.scalar = node.op().ScalarFunction(node.attrs());
  spec.conv = node.op().conv;
  spec.node = node.name();
  spec.origin = node.origin();
  spec.attrs = node.attrs();
  for (const Output& input : node.inputs()) {
    spec.inputs.push_back(input.type());
    const Tensor* constant = ConstantValue(input);
    spec.constants.push_back(constant == nullptr ? Tensor() : *constant);
  }
  spec.outputs = node.output_types();
  spec.deterministic = deterministic;
  return spec;
}

Result<std::vector<Tensor>> EvaluateNode(const Node& node,
                                         const std::vector<Tensor>& inputs,
                                         const StepContext& step) {
  if (node.IsConstant()) {
    return std::vector<Tensor>{node.attrs().TensorOf("value")};
  }
  if (node.op().view) {
    return std::vector<Tensor>{inputs[0].Reshaped(node.output_type(0).shape)};
  }
  KernelSpec spec = SpecOf(node, /*deterministic=*/false);
  SLUICE_ASSIGN_OR_RETURN(const MadeKernel made,
                          KernelTable::Global().Make(spec, DeviceType::kCpu));
  Kernel& kernel = *made.kernel;
  std::vector<Tensor> operands = inputs;
  std::vector<Tensor> outputs;
  std::vector<void*> in, out;
  for (int i = 0; i < node.mutates(); ++i) operands[i] = inputs[i].Clone();
  for (Tensor& operand : operands) in.push_back(operand.raw());
  for (int i = 0; i < node.num_outputs(); ++i) {
    const TensorType& type = node.output_type(i);
    outputs.push_back(i == 0 && node.mutates() > 0
                          ? operands[0]
                          : Tensor(type.dtype, type.shape));
    out.push_back(outputs.back().raw());
  }
  const std::shared_ptr<void> workspace =
      AllocateBuffer(kernel.workspace_bytes());
  const Status status = RunKernel(
      kernel, KernelContext(in.data(), out.data(), workspace.get(), &step));
  if (!status.ok()) return status.WithContext(node.Describe());
  return outputs;
}

Result<std::vector<Tensor>> FoldNode(const Node& node,
                                     const std::vector<Tensor>& inputs) {
  return EvaluateNode(node, inputs);
}

Result<Tensor> Evaluate(const Output& fetch,
                        const std::map<Output, Tensor>& given,
                        const StepContext& step) {
  std::map<Output, Tensor> values = given;
  // Depth first, without recursion: graphs may be deep.
  std::vector<Node*> stack = {&fetch.node()};
  while (!stack.empty()) {
    Node& node = *stack.back();
    if (values.contains(node.output(0))) {
      stack.pop_back();
      continue;
    }
    std::vector<Tensor> inputs;
    bool ready = true;
    for (const Output& input : node.inputs()) {
      auto it = values.find(input);
      if (it == values.end()) {
        stack.push_back(&input.node());
        ready = false;
      } else {
        inputs.push_back(it->second);
      }
    }
    if (!ready) continue;
    SLUICE_ASSIGN_OR_RETURN(std::vector<Tensor> outputs,
                            EvaluateNode(node, inputs, step));
    for (int i = 0; i < node.num_outputs(); ++i) {
      values[node.output(i)] = outputs[i];
    }
    stack.pop_back();
  }
  return values.at(fetch);
}

}  // namespace sluice
