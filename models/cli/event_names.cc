#include "models/cli/event_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "engine/status.h"

namespace sluice {
namespace {

// All that JsonEvents may write beside metrics.
constexpr std::string_view kOfSteps[] = {"dropped",
                                         "epoch",
                                         "evaluated_on",
                                         "event",
                                         "examples",
                                         "examples_per_second",
                                         "examples_per_second_by_rank",
                                         "examples_per_second_per_worker",
                                         "exchange_wait",
                                         "exchange_wait_by_rank",
                                         "input_stage",
                                         "input_wait",
                                         "learning_rate",
                                         "loss",
                                         "loss_scale",
                                         "seconds",
                                         "staleness_max",
                                         "staleness_mean",
                                         "step"};
// And PredictionPrinter: an "error" is of an example that cannot be read.
constexpr std::string_view kOfPredictions[] = {"error", "event", "index"};

void CheckNames(const char* what, const char* event,
                std::span<const std::string_view> taken,
                const std::vector<std::string>& names) {
  std::set<std::string_view> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("two {}s of the model are called '{}': give one "
                              "another name",
                              what, name));
    }
    if (std::find(taken.begin(), taken.end(), name) == taken.end()) continue;
    throw Error(Code::kInvalidArgument,
                fmt::format("the model has a{} {} called '{}', a name that the "
                            "{} events of --json have for something else: "
                            "give it another",
                            what[0] == 'e' ? "n" : "", what, name, event));
  }
}

template <typename Named>
std::vector<std::string> NamesOf(const Named& named) {
  std::vector<std::string> names;
  for (const auto& [name, value] : named) names.push_back(name);
  return names;
}

}  // namespace

void CheckMetricNames(const std::vector<std::string>& names) {
  CheckNames("metric", "step and evaluation", kOfSteps, names);
}

void CheckExportNames(const std::vector<std::string>& names) {
  CheckNames("export", "prediction", kOfPredictions, names);
}

TrainerSpec WithCheckedNames(TrainerSpec spec) {
  spec.model = [build = std::move(spec.model)](Scope& scope, const Features& in,
                                               const RunContext& run) {
    ModelSpec model = build(scope, in, run);
    CheckMetricNames(NamesOf(model.metrics));
    CheckExportNames(NamesOf(model.exports));
    return model;
  };
  return spec;
}

}  // namespace sluice
