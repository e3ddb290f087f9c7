#include "models/optim/find_gradients.h"

#include <fmt/format.h>

#include "graph/ops/index.h"

namespace sluice {

FoundGradients FindGradients(const Operand& loss,
                             const std::vector<Output>& wanted,
                             const std::vector<Output>& tables,
                             const std::vector<Output>& seeds,
                             const GradientOptions& options) {
  const std::vector<Output> variables =
      wanted.empty() ? loss.graph().TrainableVariables() : wanted;
  const std::vector<RowsGradient> gradients =
      GradientsByRows({loss.output()}, variables, tables, seeds, options);
  FoundGradients found;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (gradients[i].valid()) {
      found.pairs.push_back({gradients[i].values, variables[i]});
      if (gradients[i].rows.valid()) {
        found.rows[variables[i]] = gradients[i].rows;
      }
    } else if (!wanted.empty()) {
      throw Error(
          Code::kInvalidArgument,
          fmt::format("Minimize: the loss '{}' does not depend on '{}' ({})",
                      loss.output().name(), variables[i].name(),
                      FormatLocation(loss.location())));
    }
  }
  if (found.pairs.empty()) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("Minimize: the loss '{}' depends on no trainable "
                    "variable ({})",
                    loss.output().name(), FormatLocation(loss.location())));
  }
  return found;
}

void SumSlices(FoundGradients& gradients) {
  for (GradientAndVariable& pair : gradients.pairs) {
    const auto rows = gradients.rows.find(pair.variable);
    if (rows == gradients.rows.end()) continue;
    DeviceScope there(pair.variable.graph(), pair.variable.node().device());
    const SumRowsOutputs sums =
        SumRows(rows->second, pair.gradient, pair.variable.shape()[0]);
    rows->second = sums.rows;
    pair.gradient = sums.sums;
  }
}

}  // namespace sluice
