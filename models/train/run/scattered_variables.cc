#include "models/train/run/scattered_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/device.h"
#include "models/nn/parts.h"
#include "models/train/values/weights_of_model.h"

namespace sluice {
namespace {

std::string PartName(const Output& variable, int rank) {
  return fmt::format("part {} of {}", rank, variable.name());
}

// Each worker has some columns.
class CutVariables final : public ScatteredVariables {
 public:
  CutVariables(const Graph& graph, const Workers& workers)
      : ScatteredVariables(graph, workers, [](const Output& variable) {
          return variable.node().part_of() > 0;
        }) {
    for (const Output& variable : scattered_) {
      const Node& node = variable.node();
      if (workers.several() &&
          variable.shape()[-1] == PartWidth(node.part_of(), workers.size())) {
        continue;
      }
      throw Error(
          Code::kInvalidArgument,
          fmt::format("'{}' is not cut for {} worker{}: its last "
                      "dimension, {}, is of {} ({})",
                      variable.name(), workers.size(),
                      workers.several() ? "s" : "", variable.shape()[-1],
                      node.part_of(), node.location()));
    }
  }

  bool HasWhole(const Output&) const override { return false; }

 private:
  Shape WholeShapeOf(const Output& variable) const override {
    return WholeShape(variable.shape(), variable.node().part_of());
  }
  Tensor MineOf(const Tensor& whole) const override {
    return PartOf(whole, workers_.rank(), workers_.size());
  }

  // Part by part, of which the others let those pass that are not theirs: none
  // of them ever has room for a whole.
  void HandOutOne(Session& session, const Output& variable,
                  const Tensor& whole) override {
    Tensor part(variable.dtype(), variable.shape());
    for (int rank = 1; rank < workers_.size(); ++rank) {
      if (workers_.leads()) part = PartOf(whole, rank, workers_.size());
      workers_.TakeFromFirst(PartName(variable, rank), part.raw(),
                             static_cast<int64_t>(part.bytes()));
      if (rank == workers_.rank()) session.Write(variable, part);
    }
  }

  std::optional<Tensor> GatherOne(const Session& session,
                                  const Output& variable) override {
    const Tensor mine = session.Read(variable);
    Tensor whole;
    if (workers_.leads()) {
      whole = Tensor(variable.dtype(), WholeShapeOf(variable));
      PutPart(mine, 0, workers_.size(), &whole);
    }
    Tensor part(variable.dtype(), variable.shape());
    for (int rank = 1; rank < workers_.size(); ++rank) {
      const Tensor& sent = rank == workers_.rank() ? mine : part;
      workers_.TakeFrom(rank, PartName(variable, rank),
                        const_cast<void*>(sent.raw()),
                        static_cast<int64_t>(sent.bytes()));
      if (workers_.leads()) PutPart(part, rank, workers_.size(), &whole);
    }
    return workers_.leads() ? whole : mine;
  }
};

// Each worker has those on its stage's device, its replica's.
class StagedVariables final : public ScatteredVariables {
 public:
  StagedVariables(const Graph& graph, const Workers& workers)
      : ScatteredVariables(graph, workers, [](const Output&) { return true; }) {
  }

  bool HasWhole(const Output& variable) const override {
    return StageOf(variable) == workers_.stage();
  }
  std::vector<Output> Mine(std::vector<Output> variables) const override {
    if (workers_.leads()) return variables;
    std::erase_if(variables, [&](const Output& one) { return !HasWhole(one); });
    return variables;
  }
  Tensor ReadForAll(const Session& session,
                    const Output& variable) const override {
    Tensor value = HasWhole(variable)
                       ? session.Read(variable)
                       : Tensor(variable.dtype(), variable.shape());
    workers_.TakeFrom(workers_.FirstWith(StageOf(variable)), variable.name(),
                      value.raw(), static_cast<int64_t>(value.bytes()));
    return value;
  }

 private:
  // What is on no stage is with the loss.
  int StageOf(const Output& variable) const {
    const std::string& device = variable.node().device();
    return device.empty() ? workers_.stages() - 1
                          : ParseDeviceName(device).ValueOrThrow().task;
  }

  Shape WholeShapeOf(const Output& variable) const override {
    return variable.shape();
  }
  Tensor MineOf(const Tensor& whole) const override { return whole; }

  void HandOutOne(Session& session, const Output& variable,
                  const Tensor& whole) override {
    Tensor value =
        workers_.leads() ? whole : Tensor(variable.dtype(), variable.shape());
    workers_.TakeFromFirst(variable.name(), const_cast<void*>(value.raw()),
                           static_cast<int64_t>(value.bytes()));
    if (HasWhole(variable)) session.Write(variable, value);
  }

  std::optional<Tensor> GatherOne(const Session& session,
                                  const Output& variable) override {
    Tensor value = ReadForAll(session, variable);
    if (!workers_.leads() && !HasWhole(variable)) return std::nullopt;
    return value;
  }
};

}  // namespace

std::unique_ptr<ScatteredVariables> ScatteredVariables::Make(
    const Graph& graph, const Workers& workers) {
  if (workers.stages() > 1) {
    return std::make_unique<StagedVariables>(graph, workers);
  }
  return std::make_unique<CutVariables>(graph, workers);
}

ScatteredVariables::ScatteredVariables(
    const Graph& graph, const Workers& workers,
    bool (*scattered)(const Output& variable))
    : workers_(workers) {
  for (const Output& variable : graph.Variables()) {
    (scattered(variable) ? scattered_ : others_).push_back(variable);
  }
}

std::vector<NamedTensor> ScatteredVariables::TakeOut(
    std::vector<NamedTensor>* tensors) const {
  const auto is_other = [&](const NamedTensor& tensor) {
    return std::none_of(
        scattered_.begin(), scattered_.end(),
        [&](const Output& variable) { return variable.name() == tensor.name; });
  };
  const auto mine =
      std::stable_partition(tensors->begin(), tensors->end(), is_other);
  std::vector<NamedTensor> taken(std::make_move_iterator(mine),
                                 std::make_move_iterator(tensors->end()));
  tensors->erase(mine, tensors->end());
  return taken;
}

void ScatteredVariables::TakeMine(std::vector<NamedTensor>* tensors) {
  for (const Output& variable : scattered_) {
    for (NamedTensor& tensor : *tensors) {
      if (tensor.name != variable.name() ||
          tensor.tensor.shape() != WholeShapeOf(variable)) {
        continue;
      }
      if (workers_.leads()) wholes_[tensor.name] = tensor.tensor;
      tensor.tensor = MineOf(tensor.tensor);
    }
  }
}

// By way of a session that has them whole, whose variables the file is for.
Result<LoadedWeights> ScatteredVariables::Load(
    Session& session, const std::vector<Output>& variables,
    const std::string& path, const WeightsOptions& options) {
  if (!any()) return LoadWeightsWith(session, variables, path, options);
  Graph graph;
  std::vector<Output> wholes;
  for (const Output& variable : variables) {
    const bool scattered = std::find(scattered_.begin(), scattered_.end(),
                                     variable) != scattered_.end();
    wholes.push_back(graph.Variable(
        variable.name(),
        Zeros(scattered ? WholeShapeOf(variable) : variable.shape(),
              variable.dtype())));
  }
  Session whole(graph);
  SLUICE_ASSIGN_OR_RETURN(
      LoadedWeights loaded,
      LoadWeightsLike(whole, wholes, variables, path, options));
  for (size_t i = 0; i < variables.size(); ++i) {
    if (!whole.IsInitialized(wholes[i])) continue;
    std::vector<NamedTensor> value = {
        {variables[i].name(), whole.Read(wholes[i])}};
    TakeMine(&value);
    session.Write(variables[i], value[0].tensor);
  }
  return loaded;
}

void ScatteredVariables::HandOut(Session& session) {
  const std::map<std::string, Tensor> wholes = std::exchange(wholes_, {});
  for (const Output& variable : scattered_) {
    const auto whole = wholes.find(variable.name());
    uint8_t there = whole != wholes.end() ? 1 : 0;
    workers_.TakeFromFirst("whole " + variable.name(), &there, sizeof(there));
    if (there == 0) continue;
    HandOutOne(session, variable,
               whole != wholes.end() ? whole->second : Tensor());
  }
}

void ScatteredVariables::Gather(const Session& session) {
  std::vector<NamedTensor> gathered;
  for (const Output& variable : scattered_) {
    std::optional<Tensor> value = GatherOne(session, variable);
    if (value) gathered.push_back({variable.name(), *std::move(value)});
  }
  gathered_ = std::move(gathered);
}

const Tensor* ScatteredVariables::FindGathered(
    const std::string& variable) const {
  const auto found = std::find_if(
      gathered_.begin(), gathered_.end(),
      [&](const NamedTensor& one) { return one.name == variable; });
  return found == gathered_.end() ? nullptr : &found->tensor;
}

std::vector<NamedTensor> ScatteredVariables::Gathered(
    const Session& session) const {
  std::vector<NamedTensor> gathered = gathered_;
  for (NamedTensor& value : gathered) {
    const auto variable = std::find_if(
        scattered_.begin(), scattered_.end(),
        [&](const Output& one) { return one.name() == value.name; });
    if (HasWhole(*variable)) value.tensor = session.Read(*variable);
  }
  return gathered;
}

}  // namespace sluice
