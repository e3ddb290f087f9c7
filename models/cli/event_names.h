// What a program's models may not call their metrics and exports: the events of
// --json have fields of these names for something else. Internal to models/cli.
#ifndef SLUICE_MODELS_CLI_EVENT_NAMES_H_
#define SLUICE_MODELS_CLI_EVENT_NAMES_H_

#include <string>
#include <vector>

#include "models/train/run/model_spec.h"

namespace sluice {

// Throws Error(kInvalidArgument) for metrics, beside the loss, two of which
// have one name, or one of which that of another field of a "step" or
// "evaluation" event. (The "result" has them as test_NAME.)
void CheckMetricNames(const std::vector<std::string>& names);

// The same of exports and "prediction" events.
void CheckExportNames(const std::vector<std::string>& names);

// The spec whose models are refused so when they are built, with --json or
// without: who trains for days may want it only then.
TrainerSpec WithCheckedNames(TrainerSpec spec);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_EVENT_NAMES_H_
