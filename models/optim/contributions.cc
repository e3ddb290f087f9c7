#include "models/optim/contributions.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "graph/ops/array.h"
#include "graph/ops/control.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/shape.h"
#include "graph/ops/slice.h"
#include "graph/ops/state.h"
#include "models/optim/beside.h"

namespace sluice {
namespace {

constexpr char kScope[] = "contributions";
// "<variable>/contribution_2" is that of rank 2.
constexpr std::string_view kPlace = "/contribution_";

// The variable that one of such a name is for; null where there is none.
const Node* OwnerOf(const Output& contribution) {
  const std::string name = contribution.name();
  if (!IsContribution(name)) return nullptr;
  const Node* const owner =
      contribution.graph().Find(name.substr(0, name.rfind('/')));
  return owner != nullptr && owner->IsVariable() ? owner : nullptr;
}

}  // namespace

Contributions::Contributions(Graph& graph, int64_t workers)
    : graph_(graph), writes_(static_cast<size_t>(workers)) {
  for (const Output& variable : graph.Variables()) {
    const Node* const owner = OwnerOf(variable);
    if (owner == nullptr) continue;
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}' is the name of what a worker contributes to "
                            "'{}', where steps do not wait for all; give the "
                            "variable another ({})",
                            variable.name(), owner->name(),
                            variable.node().location()));
  }
  const NameScope names{Scope(graph, kScope)};
  const Output admitted =
      graph.Placeholder("admitted", DType::kFloat32, {workers});
  divisor_ = graph.Placeholder("weight", DType::kFloat32, {});
  for (int64_t rank = 0; rank < workers; ++rank) {
    admitted_.push_back(
        Greater(Reshape(Slice(admitted, {rank}, {1}), Shape{}), 0));
  }
}

Output Contributions::Mean(const Output& value, const Output& variable) {
  const NameScope names{Scope(graph_, variable.name())};
  const DeviceScope there(graph_, variable.node().device());
  Output sum;
  for (size_t rank = 0; rank < writes_.size(); ++rank) {
    const Output place = graph_.Variable(
        fmt::format("{}{}", kPlace.substr(1), rank),
        Zeros(variable.shape(), value.dtype()), BesideOptions(variable));
    writes_[rank].emplace_back(Assign(place, value));
    const Output part = Select(admitted_[rank], place, ZerosLike(place));
    sum = rank == 0 ? part : sum + part;
  }
  return sum / Cast(divisor_, value.dtype());
}

void Contributions::Finish() {
  const NameScope names{Scope(graph_, kScope)};
  for (size_t rank = 0; rank < writes_.size(); ++rank) {
    Group(graph_, writes_[rank], fmt::format("of_{}", rank));
  }
}

Output AdmittedWorkers(const Graph& graph) {
  return graph.Get(fmt::format("{}/admitted", kScope));
}

Output AdmittedWeight(const Graph& graph) {
  return graph.Get(fmt::format("{}/weight", kScope));
}

Operation ContributionOf(const Graph& graph, int rank) {
  Node* const node = graph.Find(fmt::format("{}/of_{}", kScope, rank));
  SLUICE_CHECK(node != nullptr);
  return Operation(node);
}

bool IsContribution(std::string_view name) {
  const size_t at = name.rfind('/');
  if (at == name.npos || !name.substr(at).starts_with(kPlace)) return false;
  const std::string_view rank = name.substr(at + kPlace.size());
  return !rank.empty() && rank.find_first_not_of("0123456789") == rank.npos;
}

std::vector<Output> WithoutContributions(std::vector<Output> variables) {
  std::erase_if(variables, [](const Output& variable) {
    return OwnerOf(variable) != nullptr;
  });
  return variables;
}

}  // namespace sluice
