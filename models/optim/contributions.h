// What Minimize makes of gradients where each worker puts its own beside the
// variables on parameter servers, and one of the workers updates by the mean of
// those that are admitted (AllReduceOptions::contributed).
#ifndef SLUICE_MODELS_OPTIM_CONTRIBUTIONS_H_
#define SLUICE_MODELS_OPTIM_CONTRIBUTIONS_H_

#include <string_view>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_INTERNAL sluice {

// Of one graph, once.
class Contributions {
 public:
  // Throws Error(kInvalidArgument) where a variable has such a name already.
  Contributions(Graph& graph, int64_t workers);

  // Makes a variable beside `variable` for each worker's `value`, which is for
  // that one, and returns the mean of those admitted, added in the order of the
  // workers. What is not admitted may be NaN.
  Output Mean(const Output& value, const Output& variable);

  // Once all is there: makes what ContributionOf finds.
  void Finish();

 private:
  Graph& graph_;
  Output divisor_;
  std::vector<Output> admitted_;                // by worker, bool scalars
  std::vector<std::vector<Operation>> writes_;  // the same
};

// What a run of the training operation is fed then: a float32 for each worker,
// above 0 for those that are admitted, and the sum of their weights
// (AllReduceOptions).
Output AdmittedWorkers(const Graph& graph);
Output AdmittedWeight(const Graph& graph);

// The operation by which that worker puts its own there.
Operation ContributionOf(const Graph& graph, int rank);

// Whether that is the name of such a place, which is of no training beyond the
// step: beside a variable, of a graph that has Contributions. Elsewhere it is
// any variable's.
bool IsContribution(std::string_view name);
// Takes them out, of a graph that has Contributions.
std::vector<Output> WithoutContributions(std::vector<Output> variables);

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_CONTRIBUTIONS_H_
