#include "models/train/weights_file.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

namespace sluice {
namespace {

constexpr std::string_view kAverage = "/average";

std::string PyTorchName(const Output& variable) {
  // Ours and PyTorch's last part, where they differ.
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4>
      kLast = {{{"weights", "weight"},
                {"scale", "weight"},
                {"offset", "bias"},
                {"running_variance", "running_var"}}};
  std::string name = variable.name();
  const size_t last = name.rfind('/') + 1;
  for (const auto& [ours, theirs] : kLast) {
    if (std::string_view(name).substr(last) == ours) {
      name.replace(last, std::string::npos, theirs);
      break;
    }
  }
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

std::vector<int> PyTorchOrder(const Output& variable) {
  switch (variable.shape().rank()) {
    case 2:
      return {1, 0};
    case 4:
      return {2, 3, 1, 0};
    default:
      return {};
  }
}

using Names = std::set<std::string, std::less<>>;

// Whether none of the tensors has the name of a variable, and some have
// PyTorch's.
bool IsPyTorch(const Names& tensors, const std::vector<Output>& variables) {
  const auto holds = [&](const auto& name_of) {
    return std::any_of(variables.begin(), variables.end(),
                       [&](const Output& variable) {
                         return tensors.contains(name_of(variable));
                       });
  };
  return !holds([](const Output& v) { return v.name(); }) && holds(PyTorchName);
}

// Whether a checkpoint has such a tensor beside the model's variables.
bool IsTrainingState(std::string_view name, const Names& variables) {
  const size_t slash = name.rfind('/');
  return name == "global_step" || (slash != std::string_view::npos &&
                                   variables.contains(name.substr(0, slash)));
}

}  // namespace

WeightLayout PyTorchLayout() {
  return {PyTorchName, PyTorchOrder};
}

std::vector<NamedTensor> PreferAverages(std::vector<NamedTensor> tensors) {
  Names averaged;
  for (const NamedTensor& tensor : tensors) {
    if (!tensor.name.ends_with(kAverage)) continue;
    averaged.insert(
        tensor.name.substr(0, tensor.name.size() - kAverage.size()));
  }
  std::erase_if(tensors, [&](const NamedTensor& tensor) {
    return averaged.contains(tensor.name);
  });
  for (NamedTensor& tensor : tensors) {
    if (!tensor.name.ends_with(kAverage)) continue;
    tensor.name.resize(tensor.name.size() - kAverage.size());
  }
  return tensors;
}

Status LoadWeights(Session& session, const std::vector<Output>& variables,
                   const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(Safetensors file, ReadSafetensors(path));
  std::vector<NamedTensor> tensors = PreferAverages(std::move(file.tensors));
  Names names, known;
  for (const NamedTensor& tensor : tensors) names.insert(tensor.name);
  for (const Output& variable : variables) known.insert(variable.name());
  const bool pytorch = IsPyTorch(names, variables);
  std::erase_if(tensors, [&](const NamedTensor& tensor) {
    return pytorch ? tensor.name.ends_with(".num_batches_tracked")
                   : IsTrainingState(tensor.name, known);
  });
  return WriteVariables(session, variables, tensors, Extra::kRefused, path,
                        pytorch ? PyTorchLayout() : WeightLayout());
}

}  // namespace sluice
