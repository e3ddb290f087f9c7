// Tables whose rows are on parameter servers and in no worker's memory, for
// checkpoints and evaluations. Internal to models/train.
#ifndef SLUICE_MODELS_TRAIN_RUN_SERVED_TABLES_H_
#define SLUICE_MODELS_TRAIN_RUN_SERVED_TABLES_H_

#include <string>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"
#include "graph/session/session.h"
#include "io/checkpoints/checkpoint.h"
#include "models/train/workers/meetings.h"

namespace SLUICE_INTERNAL sluice {

// One thread. Tables are the variables that the graph cuts by rows
// (graph/row_pieces.h) and uses by rows only. Other variables that are cut are
// whole in steps, and count as whole here.
class ServedTables {
 public:
  // No tables.
  ServedTables() = default;
  // The tables of a placed graph.
  explicit ServedTables(const Graph& graph);

  bool any() const { return !tables_.empty(); }
  bool Has(const std::string& variable) const;
  // `variables` without the tables.
  std::vector<Output> Others(std::vector<Output> variables) const;

  // The tables for a checkpoint, with the values at the time they are read. The
  // session must live as long.
  std::vector<RowsTensor> ToSave(const Session& session) const;
  // Returns an error unless the tensors that a checkpoint has by rows are
  // tables, with the tables' types; `source` is for messages.
  Status CheckFit(const std::vector<RowsTensor>& saved,
                  const std::string& source) const;
  // Writes saved rows to the tables. Requires CheckFit.
  Status Write(Session& session, const std::vector<RowsTensor>& saved) const;

 private:
  std::vector<Output> tables_;
};

// Makes `graph`, of the same model without training, and `session` for it, read
// the rows of these tables where the trained graph has them, and do all else on
// the session's device. Tables of which `graph` reads more than rows are left
// out.
void ReadFromServers(const Graph& trained, const TrainingServers& servers,
                     Graph& graph, SessionOptions& session);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_SERVED_TABLES_H_
