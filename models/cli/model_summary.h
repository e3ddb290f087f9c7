// The network that a run trains, as a table: `train --summary`.
#ifndef SLUICE_MODELS_CLI_MODEL_SUMMARY_H_
#define SLUICE_MODELS_CLI_MODEL_SUMMARY_H_

#include <string>

#include "engine/visibility.h"
#include "models/train/run/training_run.h"

namespace SLUICE_INTERNAL sluice {

// For people, in lines of at most 100 characters, the last without its end:
//
//   layer     op       output           parameters  multiply-adds
//   conv1     Conv2D   [100,28,28,32]          832        627,200
//   max_pool  MaxPool  [100,14,14,32]            -              -
//   ...
//
//   parameters     3,274,634: 3,274,634 trainable, 0 not
//   multiply-adds  13,883,904 for one example, forward
//   memory         arena 43.2 MB (step of 100 examples), variables 39.3 MB ...
//
// A layer is a name scope with variables in it, or a variable that is in none.
// Among them stand the operations of no layer that change the shape of what
// flows through them, or multiply; behind what the model exports, which is the
// loss, the latter alone. All is in the order in which the model was built.
//
// The op is the one that multiplies most, or the first; the output is the last
// one, of a full batch or, as the step whose arena that is, of this process's
// share of one, or a virtual worker's. A layer that the loss does without has
// neither. Parameters are the elements of floating-point variables, those of
// running statistics included. Multiply-adds are of products and convolutions
// alone; a window on padding counts in full, as it does in the figures that
// papers and torchvision give.
std::string SummaryOf(const TrainingRun& run);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_MODEL_SUMMARY_H_
