#include "models/train/run/served_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/catch_errors.h"
#include "graph/row_division.h"
#include "graph/row_pieces.h"
#include "models/train/values/variable_values.h"

namespace sluice {
ServedTables::ServedTables(const Graph& graph) {
  for (const Output& variable : graph.Variables()) {
    const Node& node = variable.node();
    const bool table = SpreadsRows(node) && UsedByRowsAlone(graph, node);
    if (table) tables_.push_back(variable);
  }
}

bool ServedTables::Has(const std::string& variable) const {
  return std::any_of(tables_.begin(), tables_.end(), [&](const Output& table) {
    return table.name() == variable;
  });
}

std::vector<Output> ServedTables::Others(std::vector<Output> variables) const {
  std::erase_if(variables, [&](const Output& variable) {
    return std::find(tables_.begin(), tables_.end(), variable) != tables_.end();
  });
  return variables;
}

std::vector<RowsTensor> ServedTables::ToSave(const Session& session) const {
  std::vector<RowsTensor> saved;
  for (const Output& table : tables_) {
    saved.push_back({table.name(), table.dtype(), table.shape(),
                     [&session, table](int64_t begin, Tensor* rows) {
                       return CatchErrors(
                           [&] { session.ReadRows(table, begin, rows); });
                     }});
  }
  return saved;
}

Status ServedTables::CheckFit(const std::vector<RowsTensor>& saved,
                              const std::string& source) const {
  for (const RowsTensor& tensor : saved) {
    const auto table = std::find_if(
        tables_.begin(), tables_.end(),
        [&](const Output& one) { return one.name() == tensor.name; });
    SLUICE_CHECK(table != tables_.end());
    const TensorType type = {tensor.dtype, tensor.shape};
    if (type == table->type()) continue;
    return InvalidArgument(fmt::format(
        "'{}' does not fit this model; reshaped: '{}' is {} in the file, {} in "
        "the model",
        source, tensor.name, type.ToString(), table->type().ToString()));
  }
  return {};
}

Status ServedTables::Write(Session& session,
                           const std::vector<RowsTensor>& saved) const {
  for (const RowsTensor& tensor : saved) {
    const auto table = std::find_if(
        tables_.begin(), tables_.end(),
        [&](const Output& one) { return one.name() == tensor.name; });
    SLUICE_CHECK(table != tables_.end());
    SLUICE_RETURN_IF_ERROR(WriteByRows(session, *table, tensor));
  }
  return {};
}

void ReadFromServers(const Graph& trained, const TrainingServers& servers,
                     Graph& graph, SessionOptions& session) {
  bool any = false;
  for (const Output& variable : graph.Variables()) {
    const Node* const twin = trained.Find(variable.name());
    const bool reads = twin != nullptr && SpreadsRows(*twin) &&
                       twin->output_type(0) == variable.type() &&
                       UsedByRowsAlone(trained, *twin) &&
                       UsedByRowsAlone(graph, variable.node());
    if (!reads) continue;
    std::vector<std::string> devices;
    for (const RowPiece& piece : PiecesOf(*twin)) {
      devices.push_back(piece.device);
    }
    SpreadRows(variable.node(), devices);
    any = true;
  }
  if (!any) return;
  const std::string worker = session.devices[0];
  for (const auto& node : graph.nodes()) {
    if (node->device().empty() && !node->IsConstant() && node->mutates() == 0) {
      node->set_device(worker);
    }
  }
  servers.AddTo(&session);
}

}  // namespace sluice
