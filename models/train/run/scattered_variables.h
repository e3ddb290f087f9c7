// Variables of a training that are scattered over the workers: each has a part
// of them (VariableOptions::part_of), or only those of its stage
// (PipelineStages). Gathers and hands them out for checkpoints and files of
// weights, which have all of them whole. Internal to models/train.
#ifndef SLUICE_MODELS_TRAIN_RUN_SCATTERED_VARIABLES_H_
#define SLUICE_MODELS_TRAIN_RUN_SCATTERED_VARIABLES_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"
#include "graph/session/session.h"
#include "io/checkpoints/safetensors.h"
#include "models/train/values/weights_file.h"
#include "models/train/workers/workers.h"

namespace SLUICE_INTERNAL sluice {

// One thread of a worker; all workers have the same graph. Functions whose
// comment says that they wait must be called by all workers.
class ScatteredVariables {
 public:
  // `workers` is not copied. Throws Error if variables are cut for another
  // number of workers.
  static std::unique_ptr<ScatteredVariables> Make(const Graph& graph,
                                                  const Workers& workers);
  virtual ~ScatteredVariables() = default;

  bool any() const { return !scattered_.empty(); }
  // The graph's other variables, which every worker has whole.
  const std::vector<Output>& others() const { return others_; }

  // Removes the tensors of scattered variables from `tensors`, which leaves
  // those of others(), and returns them.
  std::vector<NamedTensor> TakeOut(std::vector<NamedTensor>* tensors) const;
  // Replaces whole tensors of scattered variables by this worker's parts, and
  // keeps the wholes for HandOut. Tensors of another shape stay as they are.
  void TakeMine(std::vector<NamedTensor>* tensors);
  // LoadWeightsWith for the whole values of scattered variables, too.
  Result<LoadedWeights> Load(Session& session,
                             const std::vector<Output>& variables,
                             const std::string& path,
                             const WeightsOptions& options);
  // Gives the other workers their parts of the wholes that rank 0 has. Waits.
  void HandOut(Session& session);
  // Gathers the present whole values on rank 0. Waits.
  void Gather(const Session& session);
  // On rank 0 the wholes from the last Gather, on other ranks their own parts,
  // in the order of the graph's variables. Variables that this worker has whole
  // have their present values.
  std::vector<NamedTensor> Gathered(const Session& session) const;
  // The gathered value of one variable; null if there is none.
  const Tensor* FindGathered(const std::string& variable) const;
  // Those of `variables` that this worker has all or a part of; ranks other
  // than 0 write only these.
  virtual std::vector<Output> Mine(std::vector<Output> variables) const {
    return variables;
  }
  // Whether this worker has the whole of a scattered variable.
  virtual bool HasWhole(const Output& variable) const = 0;
  // The present value of one of the graph's variables, on all workers. Waits if
  // it is a scattered one.
  virtual Tensor ReadForAll(const Session& session,
                            const Output& variable) const {
    return session.Read(variable);
  }

 protected:
  ScatteredVariables(const Graph& graph, const Workers& workers,
                     bool (*scattered)(const Output& variable));

  virtual Shape WholeShapeOf(const Output& variable) const = 0;
  virtual Tensor MineOf(const Tensor& whole) const = 0;
  // `whole` is rank 0's.
  virtual void HandOutOne(Session& session, const Output& variable,
                          const Tensor& whole) = 0;
  // The whole on rank 0, else what this worker has, if anything.
  virtual std::optional<Tensor> GatherOne(const Session& session,
                                          const Output& variable) = 0;

  const Workers& workers_;
  std::vector<Output> scattered_;

 private:
  std::vector<Output> others_;
  std::map<std::string, Tensor> wholes_;  // of rank 0, until HandOut
  std::vector<NamedTensor> gathered_;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_SCATTERED_VARIABLES_H_
