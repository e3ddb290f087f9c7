// The variables of a training of which each worker has a part
// (VariableOptions::part_of), and how checkpoints and files of weights, which
// have them as wholes, come by these. Internal to models/train.
#ifndef SLUICE_MODELS_TRAIN_RUN_CUT_VARIABLES_H_
#define SLUICE_MODELS_TRAIN_RUN_CUT_VARIABLES_H_

#include <map>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"
#include "graph/session/session.h"
#include "io/checkpoints/safetensors.h"
#include "models/train/values/weights_file.h"
#include "models/train/workers/workers.h"

namespace SLUICE_INTERNAL sluice {

// One thread of a worker; all workers have the same graph. What says that it
// waits for the others is called by all of them.
class CutVariables {
 public:
  // `workers` is not copied. Throws Error where variables are cut for another
  // number of workers.
  CutVariables(const Graph& graph, const Workers& workers);

  bool any() const { return !cut_.empty(); }
  // The graph's variables that are not cut.
  const std::vector<Output>& others() const { return others_; }

  // Takes all parts out of `tensors`, which are others().
  std::vector<NamedTensor> TakeOut(std::vector<NamedTensor>* tensors) const;
  // In place of a whole its part, of this worker, which keeps the whole for
  // HandOut. What is of another shape stays as it is.
  void TakeMine(std::vector<NamedTensor>* tensors);
  // LoadWeightsWith, of the whole ones, too.
  Result<LoadedWeights> Load(Session& session,
                             const std::vector<Output>& variables,
                             const std::string& path,
                             const WeightsOptions& options);
  // Gives the others their parts of what rank 0 has of wholes. Waits.
  void HandOut(Session& session);
  // Has rank 0 know the wholes as they are now. Waits.
  void Gather(const Session& session);
  // What it got by that; of another rank its own parts. In the order of the
  // graph's variables.
  const std::vector<NamedTensor>& gathered() const { return gathered_; }

 private:
  const Workers& workers_;
  std::vector<Output> cut_, others_;
  std::map<std::string, Tensor> wholes_;  // of rank 0, until HandOut
  std::vector<NamedTensor> gathered_;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_CUT_VARIABLES_H_
