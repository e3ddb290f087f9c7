// The variables of a training that no worker has all of: of some each has a
// part (VariableOptions::part_of), or each has those of its stage
// (PipelineStages); and how checkpoints and files of weights, which have them
// all as wholes, come by them. Internal to models/train.
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

// One thread of a worker; all workers have the same graph. What says that it
// waits for the others is called by all of them.
class ScatteredVariables {
 public:
  // `workers` is not copied. Throws Error where variables are cut for another
  // number of workers.
  static std::unique_ptr<ScatteredVariables> Make(const Graph& graph,
                                                  const Workers& workers);
  virtual ~ScatteredVariables() = default;

  bool any() const { return !scattered_.empty(); }
  // The graph's variables that each worker has.
  const std::vector<Output>& others() const { return others_; }

  // Takes all of these out of `tensors`, which are others().
  std::vector<NamedTensor> TakeOut(std::vector<NamedTensor>* tensors) const;
  // In place of a whole what this worker has of it, which keeps the whole for
  // HandOut. What is of another shape stays as it is.
  void TakeMine(std::vector<NamedTensor>* tensors);
  // LoadWeightsWith, of the whole ones, too.
  Result<LoadedWeights> Load(Session& session,
                             const std::vector<Output>& variables,
                             const std::string& path,
                             const WeightsOptions& options);
  // Gives the others what is theirs of the wholes that rank 0 has. Waits.
  void HandOut(Session& session);
  // Has rank 0 know the wholes as they are now. Waits.
  void Gather(const Session& session);
  // What it got by that; of another rank its own. In the order of the graph's
  // variables. What this worker has by itself is of now.
  std::vector<NamedTensor> Gathered(const Session& session) const;
  // Of that a variable's; null: there was none.
  const Tensor* FindGathered(const std::string& variable) const;
  // Of `variables`, those that this worker has something of, which is all that
  // is written on ranks other than 0.
  virtual std::vector<Output> Mine(std::vector<Output> variables) const {
    return variables;
  }
  // Whether this worker has the whole of one of these.
  virtual bool HasWhole(const Output& variable) const = 0;
  // The present value of one of the graph's variables, for all. Waits, where
  // it is one of these.
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
