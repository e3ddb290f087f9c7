#include "models/train/values/weights_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <set>
#include <string_view>
#include <utility>

#include "engine/allocate.h"
#include "graph/row_pieces.h"
#include "io/checkpoints/pth.h"
#include "io/files/without_query.h"
#include "models/optim/loss_scale.h"
#include "models/optim/name_pattern.h"
#include "models/optim/schedule.h"
#include "models/train/values/flattened_images.h"
#include "models/train/values/weights_of_model.h"

namespace sluice {
namespace {

constexpr std::string_view kAverage = "/average";
constexpr std::string_view kGlobalStep = "global_step";

std::string_view LastPart(std::string_view name) {
  return name.substr(name.rfind('/') + 1);
}

std::string PyTorchName(const Output& variable) {
  // Ours and PyTorch's last part, where they differ.
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5>
      kLast = {{{"weights", "weight"},
                {"table", "weight"},
                {"scale", "weight"},
                {"offset", "bias"},
                {"running_variance", "running_var"}}};
  std::string name = variable.name();
  const std::string_view last = LastPart(name);
  for (const auto& [ours, theirs] : kLast) {
    if (last == ours) {
      name.replace(name.size() - last.size(), std::string::npos, theirs);
      break;
    }
  }
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

std::vector<int> PyTorchOrder(const Output& variable) {
  switch (variable.shape().rank()) {
    case 2:
      // An embedding's rows are rows there, too.
      if (LastPart(variable.name()) == "table") return {};
      return {1, 0};
    case 4:
      return {2, 3, 1, 0};
    default:
      return {};
  }
}

// With element order[i] of the dimension as its element i.
Tensor Reordered(const Tensor& tensor, int dimension,
                 const std::vector<int64_t>& order) {
  const Shape& shape = tensor.shape();
  Tensor reordered(tensor.dtype(), shape);
  const size_t width =
      SizeOf(tensor.dtype()) *
      static_cast<size_t>(shape.elements(dimension + 1, shape.rank()));
  const auto* from = static_cast<const char*>(tensor.raw());
  auto* to = static_cast<char*>(reordered.raw());
  for (int64_t n = shape.elements(0, dimension); n > 0; --n) {
    for (const int64_t i : order) {
      std::memcpy(to, from + static_cast<size_t>(i) * width, width);
      to += width;
    }
    from += order.size() * width;
  }
  return reordered;
}

// Puts what images were flattened for into our order. `model` are `variables`
// in the graph of the model.
Status TurnFlattened(const std::vector<Output>& variables,
                     const std::vector<Output>& model,
                     std::vector<NamedTensor>* tensors) {
  if (model.empty()) return {};
  FlattenedImages images(model[0].graph());
  for (size_t i = 0; i < variables.size(); ++i) {
    const auto found = std::find_if(
        tensors->begin(), tensors->end(),
        [name = PyTorchName(variables[i])](const NamedTensor& tensor) {
          return tensor.name == name;
        });
    if (found == tensors->end()) continue;
    Tensor& theirs = found->tensor;
    const int rank = variables[i].shape().rank();
    const std::vector<int> places = PyTorchOrder(variables[i]);
    for (int dimension = 0; dimension < rank; ++dimension) {
      SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> order,
                              images.Order(model[i], dimension));
      const int place =
          places.empty() ? dimension : places[static_cast<size_t>(dimension)];
      // What does not fit is told of where all of that is.
      const bool fits =
          theirs.shape().rank() == rank &&
          theirs.shape()[place] == static_cast<int64_t>(order.size()) &&
          theirs.elements() > 0;
      if (fits) theirs = Reordered(theirs, place, order);
    }
  }
  return {};
}

using Names = std::set<std::string, std::less<>>;

// Whose names the tensors of a file have.
enum class Spelling { kUnknown, kEither, kOurs, kPyTorch };

// Of all that is in a file.
std::vector<std::string*> NamesIn(Safetensors* file) {
  std::vector<std::string*> names;
  for (NamedTensor& tensor : file->tensors) names.push_back(&tensor.name);
  for (RowsTensor& tensor : file->by_rows) names.push_back(&tensor.name);
  return names;
}

// Takes out what has such a name.
void TakeOut(Safetensors* file,
             const std::function<bool(const std::string& name)>& which) {
  std::erase_if(file->tensors, [&](const auto& t) { return which(t.name); });
  std::erase_if(file->by_rows, [&](const auto& t) { return which(t.name); });
}

// Ours where one is a variable's; a name that is the same in PyTorch does not
// tell them apart.
Spelling SpellingOf(const std::vector<std::string*>& in_file,
                    const std::vector<Output>& variables) {
  Names names;
  for (const std::string* name : in_file) names.insert(*name);
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
std::string_view CommonPrefix(const std::vector<std::string*>& names) {
  if (names.empty()) return "";
  // DataParallel's, PyTorch Lightning's habit, torch.compile's.
  for (const std::string_view prefix : {"module.", "model.", "_orig_mod."}) {
    if (std::all_of(names.begin(), names.end(), [&](const std::string* name) {
          return name->starts_with(prefix);
        })) {
      return prefix;
    }
  }
  return "";
}

// Drops such prefixes until none is left or a variable is known by its name: a
// model of ours may have a part "model". Returns whose names are left.
Spelling DropPrefixes(const std::vector<Output>& variables, Safetensors* file) {
  const std::vector<std::string*> names = NamesIn(file);
  for (;;) {
    const Spelling spelling = SpellingOf(names, variables);
    if (spelling != Spelling::kUnknown) return spelling;
    const size_t length = CommonPrefix(names).size();
    if (length == 0) return spelling;
    for (std::string* name : names) name->erase(0, length);
  }
}

// Whether a checkpoint has such a tensor beside the model's variables.
bool IsTrainingState(std::string_view name, const Names& variables) {
  if (variables.contains(name)) return false;
  const size_t slash = name.rfind('/');
  return name == kGlobalStep || IsLossScaleState(name) ||
         IsLearningRateFactor(name) ||
         (slash != std::string_view::npos &&
          variables.contains(name.substr(0, slash)));
}

Names NamesOf(const std::vector<Output>& variables) {
  Names names;
  for (const Output& variable : variables) names.insert(variable.name());
  return names;
}

// PreferAverages.
void TakeAverages(const Names& variables, Safetensors* file) {
  Names names;
  for (const std::string* name : NamesIn(file)) names.insert(*name);
  const auto averaged_by = [](std::string_view name) {
    return name.substr(0, name.size() - kAverage.size());
  };
  // Of nothing that is there it is a model's own, too.
  const auto is_average = [&](std::string_view name) {
    return name.ends_with(kAverage) && names.contains(averaged_by(name)) &&
           !variables.contains(name);
  };
  const bool untrained = std::any_of(
      file->tensors.begin(), file->tensors.end(),
      [](const NamedTensor& tensor) {
        return tensor.name == kGlobalStep &&
               tensor.tensor.dtype() == DType::kInt64 &&
               tensor.tensor.elements() == 1 && tensor.tensor.IntAt(0) == 0;
      });
  if (untrained) return TakeOut(file, is_average);
  Names averaged;
  for (const std::string& name : names) {
    if (is_average(name)) averaged.emplace(averaged_by(name));
  }
  TakeOut(file,
          [&](const std::string& name) { return averaged.contains(name); });
  for (std::string* name : NamesIn(file)) {
    if (is_average(*name)) name->resize(averaged_by(*name).size());
  }
}

Result<Safetensors> ReadWeights(const std::string& path, const Leave& leave) {
  constexpr size_t kEnough = 64;  // bytes to know a format by
  SLUICE_ASSIGN_OR_RETURN(const std::string first_bytes,
                          FileSystem::Default().ReadPrefix(path, kEnough));
  if (!IsPth(first_bytes)) return ReadSafetensors(path, leave);
  Safetensors file;
  SLUICE_ASSIGN_OR_RETURN(file.tensors, ReadPth(path));
  return file;
}

// What is left in a file for those variables whose rows are on several devices,
// so that it is whole nowhere: under any prefix, and what a checkpoint has
// beside them, such as slots as large.
Leave LeftFor(const Session& session, const std::vector<Output>& variables) {
  std::vector<std::string> names;
  for (const Output& variable : variables) {
    if (SpreadsRows(variable.node()) && session.IsInitialized(variable)) {
      names.push_back(variable.name());
    }
  }
  if (names.empty()) return nullptr;
  return [names = std::move(names)](const std::string& tensor) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) {
                         return tensor.find(name) != std::string::npos;
                       });
  };
}

// What a variable is given rows of.
struct OfRows {
  Output variable;
  RowsTensor tensor;
};
// Of what was left in a file what is just as a variable is, which it takes out
// of `wanted`; the rest is read into memory.
Result<std::vector<OfRows>> TakeRows(bool ours, std::vector<Output>* wanted,
                                     Safetensors* file) {
  std::vector<OfRows> by_rows;
  for (RowsTensor& left : std::exchange(file->by_rows, {})) {
    const auto variable =
        std::find_if(wanted->begin(), wanted->end(), [&](const Output& one) {
          return ours && SpreadsRows(one.node()) && one.name() == left.name &&
                 one.type() == TensorType{left.dtype, left.shape};
        });
    if (variable != wanted->end()) {
      by_rows.push_back({*variable, std::move(left)});
      wanted->erase(variable);
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(Tensor whole,
                            AllocateTensor(left.dtype, left.shape));
    SLUICE_RETURN_IF_ERROR(left.read(0, &whole));
    file->tensors.push_back({std::move(left.name), std::move(whole)});
  }
  return by_rows;
}

}  // namespace

WeightLayout PyTorchLayout() {
  return {PyTorchName, PyTorchOrder};
}

std::vector<NamedTensor> PreferAverages(std::vector<NamedTensor> tensors,
                                        const std::vector<Output>& variables) {
  Safetensors file;
  file.tensors = std::move(tensors);
  TakeAverages(NamesOf(variables), &file);
  return std::move(file.tensors);
}

Result<std::vector<NamedTensor>> ReadWeightTensors(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(Safetensors file, ReadWeights(path, nullptr));
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

  SLUICE_ASSIGN_OR_RETURN(Safetensors file,
                          ReadWeights(path, LeftFor(session, variables)));
  const bool pytorch = DropPrefixes(variables, &file) == Spelling::kPyTorch;
  const Names known = NamesOf(variables);
  TakeAverages(known, &file);
  const Names kept(loaded.reset.begin(), loaded.reset.end());
  std::vector<Output> wanted, wanted_of_model;
  Names passed_over;  // by the names of the file
  for (size_t i = 0; i < variables.size(); ++i) {
    const Output& variable = variables[i];
    // What begins with weights begins at step 0.
    if (kept.contains(variable.name()) || variable.name() == kGlobalStep) {
      passed_over.insert(pytorch ? PyTorchName(variable) : variable.name());
    } else {
      wanted.push_back(variable);
      wanted_of_model.push_back(model[i]);
    }
  }
  TakeOut(&file, [&](const std::string& name) {
    return passed_over.contains(name) ||
           (pytorch ? name.ends_with(".num_batches_tracked")
                    : IsTrainingState(name, known));
  });
  loaded.tensors = static_cast<int64_t>(wanted.size());
  SLUICE_ASSIGN_OR_RETURN(const std::vector<OfRows> by_rows,
                          TakeRows(!pytorch, &wanted, &file));
  if (pytorch) {
    const Status turned = TurnFlattened(wanted, wanted_of_model, &file.tensors);
    if (!turned.ok()) return turned.WithContext(WithoutQuery(path));
  }
  SLUICE_ASSIGN_OR_RETURN(
      loaded.converted,
      WriteWeights(session, wanted, file.tensors, WithoutQuery(path),
                   pytorch ? PyTorchLayout() : WeightLayout()));
  for (const auto& [variable, tensor] : by_rows) {
    SLUICE_RETURN_IF_ERROR(WriteByRows(session, variable, tensor));
  }
  for (const Output& variable : variables) {
    if (variable.name() == kGlobalStep && !session.IsInitialized(variable)) {
      session.Write(variable,
                    Tensor::Zeros(variable.dtype(), variable.shape()));
    }
  }
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
