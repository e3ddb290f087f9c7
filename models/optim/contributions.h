// How Minimize builds a training in which each worker puts its gradients beside
// the variables on parameter servers, and one worker updates by the mean of
// those that are admitted (AllReduceOptions::contributed).
#ifndef SLUICE_MODELS_OPTIM_CONTRIBUTIONS_H_
#define SLUICE_MODELS_OPTIM_CONTRIBUTIONS_H_

#include <string_view>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_INTERNAL sluice {

// The contributions of one graph; to be made once for each.
class Contributions {
 public:
  // Throws Error(kInvalidArgument) if a variable has the name of a contribution
  // already.
  Contributions(Graph& graph, int64_t workers);

  // Makes a variable beside `variable` for each worker's `value`, such as its
  // gradient, and returns the mean of the admitted ones, added in the order of
  // the workers. Those not admitted may be NaN.
  Output Mean(const Output& value, const Output& variable);

  // Makes the operations that ContributionOf finds. Call it after the last
  // Mean.
  void Finish();

 private:
  Graph& graph_;
  Output divisor_;
  std::vector<Output> admitted_;                // by worker, bool scalars
  std::vector<std::vector<Operation>> writes_;  // the same
};

// The feeds of a run of such a training operation: a float32 for each worker,
// above 0 for the admitted ones; and the sum of their weights
// (AllReduceOptions).
Output AdmittedWorkers(const Graph& graph);
Output AdmittedWeight(const Graph& graph);

// The operation by which worker `rank` writes its contribution.
Operation ContributionOf(const Graph& graph, int rank);

// Whether `name` is that of a contribution, which no state beyond the step
// depends on. Only meaningful for a name beside a variable, in a graph that has
// Contributions; elsewhere any variable may have it.
bool IsContribution(std::string_view name);
// `variables` without the contributions, for a graph that has Contributions.
std::vector<Output> WithoutContributions(std::vector<Output> variables);

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_CONTRIBUTIONS_H_
