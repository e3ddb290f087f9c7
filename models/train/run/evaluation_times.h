// When a training evaluates: every so many epochs, as
// TrainingOptions::evaluate_every says, as far as epochs are known. Internal to
// models/train.
#ifndef SLUICE_MODELS_TRAIN_RUN_EVALUATION_TIMES_H_
#define SLUICE_MODELS_TRAIN_RUN_EVALUATION_TIMES_H_

#include "models/train/run/training_run.h"

namespace sluice {

// Before workers begin together: what a restored state does not say of
// TrainingRun::evaluations is taken from where it stands.
void CountEarlierEvaluations(TrainingRun& run);

// Whether one is due that was not done, as after the last step, too.
bool EvaluationIsDue(const TrainingRun& run);

// All that are due up to now were done.
void CountEvaluations(TrainingRun& run);

// Tells the reporter when evaluations are where they cannot be as was asked.
void NoteEvaluations(const TrainingRun& run);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_EVALUATION_TIMES_H_
