// Tables whose rows are on parameter servers and in no worker's memory: how
// checkpoints have them, and evaluations. Internal to models/train.
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

// One thread. What is a table says the graph (graph/row_pieces.h): of what is
// cut what is used by rows alone. Other variables that are cut are wholes in
// steps, and so for all that is here.
class ServedTables {
 public:
  // There are none.
  ServedTables() = default;
  // Of a graph that is placed.
  explicit ServedTables(const Graph& graph);

  bool any() const { return !tables_.empty(); }
  bool Has(const std::string& variable) const;
  // Takes them out.
  std::vector<Output> Others(std::vector<Output> variables) const;

  // As they are while they are read. The session must live as long.
  std::vector<RowsTensor> ToSave(const Session& session) const;
  // That those which a checkpoint has by rows are tables and of their types;
  // `source` is for messages.
  Status CheckFit(const std::vector<RowsTensor>& saved,
                  const std::string& source) const;
  // Wants that they fit.
  Status Write(Session& session, const std::vector<RowsTensor>& saved) const;

 private:
  std::vector<Output> tables_;
};

// Has the graph of the same model, which is not trained, and a session for it
// read the rows of these tables where the trained graph has them, and do all
// else on the session's device. Not those of which it reads more than rows.
void ReadFromServers(const Graph& trained, const TrainingServers& servers,
                     Graph& graph, SessionOptions& session);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_SERVED_TABLES_H_
