// When a training evaluates: every so many epochs, as
// TrainingOptions::evaluate_every says, as far as epochs are known. Internal to
// models/train.
#ifndef SLUICE_MODELS_TRAIN_RUN_EVALUATION_TIMES_H_
#define SLUICE_MODELS_TRAIN_RUN_EVALUATION_TIMES_H_

#include <cstdint>

#include "models/train/run/training_run.h"

namespace sluice {

// Where epochs end with the input: whether one of those up to now, but not of
// the `epochs` before, is one to evaluate after.
bool EvaluationFalls(const TrainingRun& run, double epochs);

// Else: the first step after `step` at which to evaluate, at the latest the
// last one. INT64_MAX where epochs end with the input.
int64_t NextEvaluation(const TrainingRun& run, int64_t step);

// Tells the reporter when evaluations are where they cannot be as was asked.
void NoteEvaluations(const TrainingRun& run);

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RUN_EVALUATION_TIMES_H_
