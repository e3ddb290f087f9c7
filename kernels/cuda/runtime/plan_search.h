// The search for the fastest of a library's suggestions for a kernel: which are
// tried, in what order, and for how long. Each trial makes a plan, which may be
// compiled for that (0.3 to 1.7 s), and times it.
#ifndef SLUICE_KERNELS_CUDA_RUNTIME_PLAN_SEARCH_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_PLAN_SEARCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "engine/thread_annotations.h"

namespace sluice::cuda {

// The time that the searches of a model share. How many there will be is not
// known when one begins, so each may take a thirtieth of what is left: the
// first 3 s of 90, ResNet-50's 65th still 0.3. A search that begins a minute
// after the last one belongs to another model. Thread-safe.
class SearchBudget {
 public:
  using Clock = std::function<double()>;  // seconds since some time

  SearchBudget(double seconds, Clock clock);
  // The process's, of 90 s by the steady clock.
  static SearchBudget& Global();

  double Now() const { return clock_(); }
  // Seconds that a search which begins now may take; 0: nothing is left.
  double Allowance() EXCLUDES(mutex_);
  // Accounts for a search that began at `begin` (Now()) and has ended.
  void Spent(double begin) EXCLUDES(mutex_);
  // Seconds that the last trial of this engine took: some are compiled for each
  // plan, others come with the library. 0: not known.
  double CostOf(int64_t engine) const EXCLUDES(mutex_);
  void NoteCost(int64_t engine, double seconds) EXCLUDES(mutex_);

 private:
  const double seconds_;
  const Clock clock_;
  mutable Mutex mutex_;
  double left_ GUARDED_BY(mutex_);
  std::map<int64_t, double> costs_ GUARDED_BY(mutex_);
  std::optional<double> last_end_ GUARDED_BY(mutex_);
};

// The first suggestion of each engine, in the order of the suggestions, then
// the others, in the same order: those of one engine differ in its knobs alone.
// `engines` has the engine of each suggestion.
std::vector<size_t> SearchOrder(const std::vector<int64_t>& engines);

struct Trial {
  // Whether there is a plan for this suggestion.
  std::function<bool(size_t suggestion)> make;
  // Seconds that the plan which was made last takes to run; infinity where it
  // does not.
  std::function<double(size_t suggestion)> time;
};

struct Fastest {
  size_t suggestion = 0;
  // Whether it was compared with others, or there is none: worth keeping.
  bool measured = false;
};

// The first suggestion in the library's own order that can be made and runs;
// compared with no other, so it is not `measured`. nullopt where there is none.
std::optional<Fastest> FirstThatRuns(size_t suggestions, const Trial& trial);

// Tries suggestions until all are tried or the search's part of the budget is
// used up, and passes those over which would take more than what is left of it;
// but until one has run it goes on. Nothing where no plan can be made, or none
// of them runs. Where nothing is left of the budget, the first that runs is
// taken.
std::optional<Fastest> SearchFastest(const std::vector<int64_t>& engines,
                                     const Trial& trial, SearchBudget& budget);

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_PLAN_SEARCH_H_
