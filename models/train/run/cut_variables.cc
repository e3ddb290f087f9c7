#include "models/train/run/cut_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/nn/parts.h"

namespace sluice {
namespace {

Shape WholeShapeOf(const Output& variable) {
  return WholeShape(variable.shape(), variable.node().part_of());
}

std::string PartName(const Output& variable, int rank) {
  return fmt::format("part {} of {}", rank, variable.name());
}

}  // namespace

CutVariables::CutVariables(const Graph& graph, const Workers& workers)
    : workers_(workers) {
  for (const Output& variable : graph.Variables()) {
    const Node& node = variable.node();
    (node.part_of() > 0 ? cut_ : others_).push_back(variable);
    if (node.part_of() == 0 ||
        (workers.several() &&
         variable.shape()[-1] == PartWidth(node.part_of(), workers.size()))) {
      continue;
    }
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}' is not cut for {} worker{}: its last "
                            "dimension, {}, is of {} ({})",
                            variable.name(), workers.size(),
                            workers.several() ? "s" : "", variable.shape()[-1],
                            node.part_of(), node.location()));
  }
}

std::vector<NamedTensor> CutVariables::TakeOut(
    std::vector<NamedTensor>* tensors) const {
  const auto is_other = [&](const NamedTensor& tensor) {
    return std::none_of(cut_.begin(), cut_.end(), [&](const Output& variable) {
      return variable.name() == tensor.name;
    });
  };
  const auto parts =
      std::stable_partition(tensors->begin(), tensors->end(), is_other);
  std::vector<NamedTensor> taken(std::make_move_iterator(parts),
                                 std::make_move_iterator(tensors->end()));
  tensors->erase(parts, tensors->end());
  return taken;
}

void CutVariables::TakeMine(std::vector<NamedTensor>* tensors) {
  for (const Output& variable : cut_) {
    for (NamedTensor& tensor : *tensors) {
      if (tensor.name != variable.name() ||
          tensor.tensor.shape() != WholeShapeOf(variable)) {
        continue;
      }
      wholes_[tensor.name] = tensor.tensor;
      tensor.tensor = PartOf(tensor.tensor, workers_.rank(), workers_.size());
    }
  }
}

// By way of a session that has them whole, whose variables the file is for.
Result<LoadedWeights> CutVariables::Load(Session& session,
                                         const std::vector<Output>& variables,
                                         const std::string& path,
                                         const WeightsOptions& options) {
  if (!any()) return LoadWeightsWith(session, variables, path, options);
  Graph graph;
  std::vector<Output> wholes;
  for (const Output& variable : variables) {
    const bool cut = variable.node().part_of() > 0;
    wholes.push_back(graph.Variable(
        variable.name(), Zeros(cut ? WholeShapeOf(variable) : variable.shape(),
                               variable.dtype())));
  }
  Session whole(graph);
  SLUICE_ASSIGN_OR_RETURN(LoadedWeights loaded,
                          LoadWeightsWith(whole, wholes, path, options));
  for (size_t i = 0; i < variables.size(); ++i) {
    if (!whole.IsInitialized(wholes[i])) continue;
    std::vector<NamedTensor> value = {
        {variables[i].name(), whole.Read(wholes[i])}};
    TakeMine(&value);
    session.Write(variables[i], value[0].tensor);
  }
  return loaded;
}

// Part by part, of which the others let those pass that are not theirs: none of
// them ever has room for a whole.
void CutVariables::HandOut(Session& session) {
  const std::map<std::string, Tensor> wholes = std::exchange(wholes_, {});
  for (const Output& variable : cut_) {
    const auto whole = wholes.find(variable.name());
    uint8_t there = whole != wholes.end() ? 1 : 0;
    workers_.TakeFromFirst("whole " + variable.name(), &there, sizeof(there));
    if (there == 0) continue;
    Tensor part(variable.dtype(), variable.shape());
    for (int rank = 1; rank < workers_.size(); ++rank) {
      if (workers_.leads()) {
        part = PartOf(whole->second, rank, workers_.size());
      }
      workers_.TakeFromFirst(PartName(variable, rank), part.raw(),
                             static_cast<int64_t>(part.bytes()));
      if (rank == workers_.rank()) session.Write(variable, part);
    }
  }
}

void CutVariables::Gather(const Session& session) {
  std::vector<NamedTensor> gathered;
  for (const Output& variable : cut_) {
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
    gathered.push_back({variable.name(), workers_.leads() ? whole : mine});
  }
  gathered_ = std::move(gathered);
}

}  // namespace sluice
