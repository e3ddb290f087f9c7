// Looks for a good learning rate: trains a little while the rate grows from
// much too small to much too large, and sees where the loss falls and where it
// diverges (Smith, "Cyclical Learning Rates for Training Neural Networks",
// 2017, section 3.3).
#ifndef SLUICE_MODELS_TRAIN_RATE_FINDER_H_
#define SLUICE_MODELS_TRAIN_RATE_FINDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "models/train/run/model_spec.h"
#include "models/train/run/training_run.h"

namespace SLUICE_PUBLIC sluice {

// Step i of them, from 0, has rate least * (most / least)^(i / (steps - 1)).
struct RateSweep {
  double least = 1e-7;
  double most = 10;
  int64_t steps = 100;
  // Batches in a step, or as many as the optimizer accumulates where these are
  // more: the rate is one for all of them, and the loss is their mean.
  int64_t batches = 1;
};

struct RateCurve {
  // For each step that was done its rate, the loss of its batches before the
  // step, and the exponential average of the losses so far.
  std::vector<double> rates;
  std::vector<double> losses;
  std::vector<double> smoothed;
  // The rate where the smoothed loss falls steepest below its least so far
  // against the logarithm of the rate: a loss that has jumped and comes back
  // falls, too. nullopt when it never falls.
  std::optional<double> suggested;
  // Whether the last loss, or the smoothed one, is not finite, or the smoothed
  // loss had become more than four times its least: what would have followed
  // was left out.
  bool diverged = false;
  // options.stop's reason, of any worker, that ended it early; empty: none did.
  std::string interrupted;
};

// Trains the spec's model with its optimizer, from its first values or those of
// options.weights; saves nothing. Several workers (SessionOptions::collective)
// each call it, and get the same curve; rank 0 alone uses the weights. They may
// not have parameter servers. Ends early where the loss diverges, at the
// end of the input, and when options.stop says so. Throws Error:
// kInvalidArgument for a sweep that is not of 0 < least < most, both normal
// float32 numbers, or has fewer than two steps or no batch in one.
RateCurve FindRate(const TrainerSpec& spec, const RunContext& run,
                   const TrainingOptions& options, const RateSweep& sweep = {});

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_RATE_FINDER_H_
