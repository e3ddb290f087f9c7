// A rehearsal: whether a program gets through all that it may be asked for,
// before hours go by.
#ifndef SLUICE_MODELS_CLI_FAST_DEV_RUN_H_
#define SLUICE_MODELS_CLI_FAST_DEV_RUN_H_

#include <functional>
#include <string>

#include "engine/visibility.h"
#include "models/run_context.h"
#include "models/train/run/model_spec.h"
#include "models/train/trainer.h"

namespace SLUICE_INTERNAL sluice {

// Trains the steps of two updates and saves them, resumes for one more step,
// and evaluates the saved model on one batch; then, of a model that has
// exports, predicts for one batch, exports the model, loads it and compares its
// predictions. The length and the optimizer of the training as `run` has it are
// asked for first, so that what refuses these does so here, too. Notes each
// stage and its time. Uses a new folder below the system's temporary one, which
// is gone on return, in place of options.log_dir, and no other checkpoint.
// options.stop ends it early, which is noted; its reason is returned, else "".
// Several workers (SessionOptions::collective) each call it: they train and
// evaluate together, and rank 0, whose folder it is, does the rest.
// `add_hooks`, unless null, gets each of the two trainings. Throws Error that
// says in which stage.
std::string FastDevRun(
    const TrainerSpec& spec, const RunContext& run,
    const TrainingOptions& options,
    const std::function<void(Trainer&)>& add_hooks = nullptr);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_FAST_DEV_RUN_H_
