// Several trainings' scalars in one page: a table of the trainings, and a chart
// for each scalar in which their curves lie over each other.
#ifndef SLUICE_MODELS_REPORT_RUNS_PAGE_H_
#define SLUICE_MODELS_REPORT_RUNS_PAGE_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "models/report/line_chart.h"
#include "models/train/hooks/scalar_log.h"

namespace SLUICE_INTERNAL sluice {
namespace report {

// Facts about a training beside its scalars; all of it may be missing.
struct RunFacts {
  std::string model = {};                         // for people
  std::map<std::string, std::string> flags = {};  // by name without "--"
  std::string note = {};  // such as what could not be read
  // Whether a higher value of the first metric is better, as the program says.
  std::optional<bool> higher_is_better = std::nullopt;
};

struct RunCurves {
  std::string name;
  std::vector<ScalarRow> rows;
  RunFacts facts = {};
};

// A chart for each name of a scalar, over steps: the loss first, then metrics
// and the model's own in the order of the rows, then learning_rate, loss_scale
// and examples_per_second. A series for each run and set that has the scalar,
// "NAME train" and "NAME eval", of a single run "train" and "eval". Of a step
// that was written twice the later row counts.
std::vector<Chart> ChartsOf(const std::vector<RunCurves>& runs);

// A whole page: of each run its model, steps, seconds of training and the
// evaluations' last and best figures, the flags in which the runs differ, and
// the charts. Which figures are best the program says of its first metric, and
// of others the name does where it is a usual one ("loss", "error",
// "perplexity", "accuracy", ...); of what is not known there is no best.
std::string RunsPage(const std::vector<RunCurves>& runs);

}  // namespace report
}  // namespace sluice

#endif  // SLUICE_MODELS_REPORT_RUNS_PAGE_H_
