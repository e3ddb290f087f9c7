#include "models/train/values/weights_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "io/checkpoints/pth.h"
#include "models/optim/loss_scale.h"
#include "models/optim/name_pattern.h"
#include "models/optim/schedule.h"
#include "models/train/values/weights_of_model.h"

namespace sluice {
namespace {

constexpr std::string_view kAverage = "/average";
constexpr std::string_view kGlobalStep = "global_step";

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

bool Normalises(const Node& node) {
  return node.Is("BatchNorm") || node.Is("BatchNormInference") ||
         node.Is("LayerNorm");
}

// Whether column i of its result comes from column i of each input that has as
// many, if it is no Reshape.
bool KeepsColumns(const Node& node) {
  // Of a Concat of columns no part has as many. The last two are how a
  // layers::Classifier that is cut comes by the rows of all workers.
  return node.op().elementwise || node.Is("Dropout") || node.Is("BiasAdd") ||
         Normalises(node) || node.Is("AllGather") || node.Is("Concat");
}

// Images [n,h,w,c] that were flattened, one by one: their pixels and channels;
// {0, 0}: there were none.
struct Flattened {
  int64_t pixels = 0, channels = 0;
};
// Those that `rows`, as wide, were.
Flattened FlattenedInto(const Output& rows, int64_t columns) {
  const auto is_as_wide = [&](const Output& x) {
    return x.shape().rank() >= 2 && x.shape()[-1] == columns;
  };
  if (!is_as_wide(rows)) return {};
  std::vector<Output> left = {rows};
  std::set<Output> seen = {rows};
  while (!left.empty()) {
    const Node& node = left.back().node();
    left.pop_back();
    if (node.Is("Reshape")) {
      const Shape& image = node.input(0).shape();
      if (image.rank() == 4 && image.elements(1, 4) == columns) {
        return {image[1] * image[2], image[3]};
      }
    } else if (!KeepsColumns(node)) {
      continue;  // a product may have as many columns, which are no pixels
    }
    // A Reshape to as many columns keeps them.
    for (const Output& input : node.inputs()) {
      if (is_as_wide(input) && seen.insert(input).second) left.push_back(input);
    }
  }
  return {};
}

// The running statistics of a normalisation by those of a group of workers
// (layers::BatchNorm), which does not read them: its scale is beside them.
std::string ScaleBeside(const Output& variable) {
  const std::string name = variable.name();
  const size_t last = name.rfind('/') + 1;
  const std::string_view is = std::string_view(name).substr(last);
  const bool statistic = is == "running_mean" || is == "running_variance";
  return statistic ? name.substr(0, last) + "scale" : std::string();
}

// Of a matrix the rows that the node multiplies by it; of a vector those whose
// columns the node has an element of it for. Invalid: it does neither.
Output RowsFor(const Output& variable, const std::string& scale_beside,
               const Node& node) {
  if (variable.shape().rank() == 2) {
    const bool multiplies = node.Is("MatMul") && node.input(1) == variable &&
                            !node.attrs().Bool("transpose_a") &&
                            !node.attrs().Bool("transpose_b");
    return multiplies ? node.input(0) : Output();
  }
  if (!KeepsColumns(node)) return {};
  const bool reads = std::any_of(
      node.inputs().begin(), node.inputs().end(), [&](const Output& input) {
        return input == variable ||
               (!scale_beside.empty() && Normalises(node) &&
                input.node().IsVariable() && input.name() == scale_beside);
      });
  return reads ? node.output(0) : Output();
}

Flattened FlattenedFor(const Output& variable) {
  const std::string scale = ScaleBeside(variable);
  for (const auto& node : variable.graph().nodes()) {
    const Output rows = RowsFor(variable, scale, *node);
    if (!rows.valid()) continue;
    const Flattened found = FlattenedInto(rows, variable.shape()[0]);
    if (found.pixels > 0) return found;
  }
  return {};
}

// PyTorch flattens images [c,h,w], we [h,w,c]: [out, c * pixels] becomes [out,
// pixels * c], and so does [c * pixels], of a normalisation. `model` are
// `variables` in the graph of the model.
void TurnFlattened(const std::vector<Output>& variables,
                   const std::vector<Output>& model,
                   std::vector<NamedTensor>* tensors) {
  for (size_t i = 0; i < variables.size(); ++i) {
    const int rank = variables[i].shape().rank();
    if (rank != 1 && rank != 2) continue;
    const auto [pixels, channels] = FlattenedFor(model[i]);
    if (pixels < 2 || channels < 2) continue;
    const auto found = std::find_if(
        tensors->begin(), tensors->end(),
        [name = PyTorchName(variables[i])](const NamedTensor& tensor) {
          return tensor.name == name;
        });
    if (found == tensors->end()) continue;
    const Tensor& theirs = found->tensor;
    if (theirs.shape().rank() != rank ||
        theirs.shape()[-1] != pixels * channels) {
      continue;  // told of where all that does not fit is
    }
    Tensor turned(theirs.dtype(), theirs.shape());
    const size_t width = SizeOf(theirs.dtype());
    const auto* const from = static_cast<const char*>(theirs.raw());
    auto* to = static_cast<char*>(turned.raw());
    const int64_t rows = theirs.elements() / (pixels * channels);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t pixel = 0; pixel < pixels; ++pixel) {
        for (int64_t channel = 0; channel < channels; ++channel, to += width) {
          const int64_t at = (row * channels + channel) * pixels + pixel;
          std::memcpy(to, from + static_cast<size_t>(at) * width, width);
        }
      }
    }
    found->tensor = std::move(turned);
  }
}

using Names = std::set<std::string, std::less<>>;

// Whose names the tensors of a file have.
enum class Spelling { kUnknown, kEither, kOurs, kPyTorch };

// Ours where one is a variable's; a name that is the same in PyTorch does not
// tell them apart.
Spelling SpellingOf(const std::vector<NamedTensor>& tensors,
                    const std::vector<Output>& variables) {
  Names names;
  for (const NamedTensor& tensor : tensors) names.insert(tensor.name);
  Spelling spelling = Spelling::kUnknown;
  for (const Output& variable : variables) {
    const std::string name = variable.name(), theirs = PyTorchName(variable);
    if (names.contains(name)) {
      if (name != theirs) return Spelling::kOurs;
      spelling = std::max(spelling, Spelling::kEither);
    } else if (names.contains(theirs)) {
      spelling = Spelling::kPyTorch;
    }
  }
  return spelling;
}

// A prefix of wrappers that all tensors have; empty: none.
std::string_view CommonPrefix(const std::vector<NamedTensor>& tensors) {
  if (tensors.empty()) return "";
  // DataParallel's, PyTorch Lightning's habit, torch.compile's.
  for (const std::string_view prefix : {"module.", "model.", "_orig_mod."}) {
    if (std::all_of(tensors.begin(), tensors.end(),
                    [&](const NamedTensor& tensor) {
                      return tensor.name.starts_with(prefix);
                    })) {
      return prefix;
    }
  }
  return "";
}

// Drops such prefixes until none is left or a variable is known by its name: a
// model of ours may have a part "model". Returns whose names are left.
Spelling DropPrefixes(const std::vector<Output>& variables,
                      std::vector<NamedTensor>* tensors) {
  for (;;) {
    const Spelling spelling = SpellingOf(*tensors, variables);
    if (spelling != Spelling::kUnknown) return spelling;
    const size_t length = CommonPrefix(*tensors).size();
    if (length == 0) return spelling;
    for (NamedTensor& tensor : *tensors) tensor.name.erase(0, length);
  }
}

// Whether a checkpoint has such a tensor beside the model's variables.
bool IsTrainingState(std::string_view name, const Names& variables) {
  const size_t slash = name.rfind('/');
  return name == kGlobalStep || IsLossScaleState(name) ||
         IsLearningRateFactor(name) ||
         (slash != std::string_view::npos &&
          variables.contains(name.substr(0, slash)));
}

}  // namespace

WeightLayout PyTorchLayout() {
  return {PyTorchName, PyTorchOrder};
}

std::vector<NamedTensor> PreferAverages(std::vector<NamedTensor> tensors) {
  Names names;
  for (const NamedTensor& tensor : tensors) names.insert(tensor.name);
  // Of nothing that is there it is a model's own.
  const auto is_average = [&](const NamedTensor& tensor) {
    const std::string_view name = tensor.name;
    return name.ends_with(kAverage) &&
           names.contains(name.substr(0, name.size() - kAverage.size()));
  };
  const bool untrained = std::any_of(
      tensors.begin(), tensors.end(), [](const NamedTensor& tensor) {
        return tensor.name.ends_with(kGlobalStep) &&
               tensor.tensor.dtype() == DType::kInt64 &&
               tensor.tensor.elements() == 1 && tensor.tensor.IntAt(0) == 0;
      });
  if (untrained) {
    std::erase_if(tensors, is_average);
    return tensors;
  }
  Names averaged;
  for (const NamedTensor& tensor : tensors) {
    if (!is_average(tensor)) continue;
    averaged.insert(
        tensor.name.substr(0, tensor.name.size() - kAverage.size()));
  }
  std::erase_if(tensors, [&](const NamedTensor& tensor) {
    return averaged.contains(tensor.name);
  });
  for (NamedTensor& tensor : tensors) {
    if (!is_average(tensor)) continue;
    tensor.name.resize(tensor.name.size() - kAverage.size());
  }
  return tensors;
}

Result<std::vector<NamedTensor>> ReadWeightTensors(const std::string& path) {
  constexpr size_t kEnough = 64;  // bytes to know a format by
  SLUICE_ASSIGN_OR_RETURN(const std::string first_bytes,
                          FileSystem::Default().ReadPrefix(path, kEnough));
  if (IsPth(first_bytes)) return ReadPth(path);
  SLUICE_ASSIGN_OR_RETURN(Safetensors file, ReadSafetensors(path));
  return std::move(file.tensors);
}

Result<LoadedWeights> LoadWeightsLike(Session& session,
                                      const std::vector<Output>& variables,
                                      const std::vector<Output>& model,
                                      const std::string& path,
                                      const WeightsOptions& options) {
  std::vector<std::string> names;
  for (const Output& variable : variables) names.push_back(variable.name());
  LoadedWeights loaded;
  Result<std::vector<std::string>> reset = SelectNames(options.reset, names);
  if (!reset.ok()) return reset.status().WithContext("reset");
  loaded.reset = *std::move(reset);

  SLUICE_ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors,
                          ReadWeightTensors(path));
  tensors = PreferAverages(std::move(tensors));
  const bool pytorch = DropPrefixes(variables, &tensors) == Spelling::kPyTorch;
  const Names known(names.begin(), names.end());
  const Names kept(loaded.reset.begin(), loaded.reset.end());
  std::vector<Output> wanted, wanted_of_model;
  Names passed_over;  // by the names of the file
  for (size_t i = 0; i < variables.size(); ++i) {
    const Output& variable = variables[i];
    if (kept.contains(variable.name())) {
      passed_over.insert(pytorch ? PyTorchName(variable) : variable.name());
    } else {
      wanted.push_back(variable);
      wanted_of_model.push_back(model[i]);
    }
  }
  std::erase_if(tensors, [&](const NamedTensor& tensor) {
    return passed_over.contains(tensor.name) ||
           (pytorch ? tensor.name.ends_with(".num_batches_tracked")
                    : IsTrainingState(tensor.name, known));
  });
  if (pytorch) TurnFlattened(wanted, wanted_of_model, &tensors);
  SLUICE_ASSIGN_OR_RETURN(
      loaded.converted,
      WriteWeights(session, wanted, tensors, path,
                   pytorch ? PyTorchLayout() : WeightLayout()));
  loaded.tensors = static_cast<int64_t>(wanted.size());
  return loaded;
}

Result<LoadedWeights> LoadWeightsWith(Session& session,
                                      const std::vector<Output>& variables,
                                      const std::string& path,
                                      const WeightsOptions& options) {
  return LoadWeightsLike(session, variables, variables, path, options);
}

Status LoadWeights(Session& session, const std::vector<Output>& variables,
                   const std::string& path) {
  return LoadWeightsWith(session, variables, path, {}).status();
}

}  // namespace sluice
