// The hook that lowers the learning rate when training makes no progress:
// PyTorch's ReduceLROnPlateau.
#ifndef SLUICE_MODELS_TRAIN_HOOKS_PLATEAU_H_
#define SLUICE_MODELS_TRAIN_HOOKS_PLATEAU_H_

#include <cstdint>
#include <limits>
#include <string>

#include "engine/visibility.h"
#include "models/train/hooks/hook.h"

namespace SLUICE_PUBLIC sluice {

struct PlateauOptions {
  int patience = 10;    // bad evaluations in a row that change nothing
  double factor = 0.1;  // in (0, 1)
  // In [0, 1): the least improvement, as a part of the best value.
  double threshold = 1e-4;
  int cooldown = 0;  // evaluations after a reduction that are not bad ones
  double least = 0;  // in [0, 1], of LearningRateFactor
};

// Multiplies LearningRateFactor by `factor` after patience + 1 bad evaluations
// in a row, beginning with the next step. An evaluation is good if its first
// metric (the loss, without metrics) is above best * (1 + threshold), or below
// best * (1 - threshold) where lower is better; NaN never is. As in PyTorch,
// what equals a negative best value, or is a little worse, is then good, too.
//
// PyTorch's rules but for two: `least` bounds the factor rather than the rate,
// and no reduction is too small (its `eps` is 0).
//
// In a resumed training it goes on counting where the earlier part left off. It
// counts no evaluation twice.
class ReduceOnPlateau : public Hook {
 public:
  // Throws Error(kInvalidArgument) for options outside the ranges above.
  explicit ReduceOnPlateau(const PlateauOptions& options = {});
  // Throws Error(kInvalidArgument) if the optimizer's learning rate is not a
  // schedules::Plateau.
  void Begin(TrainingRun& run) override;
  void AfterEvaluation(TrainingRun& run, const Evaluation& evaluation) override;
  std::string StateName() const override;
  std::string SaveState() const override;
  void RestoreState(const std::string& state) override;

 private:
  bool IsBetter(const TrainerSpec& spec, const Evaluation& evaluation) const;
  void Reduce(TrainingRun& run, int64_t step) const;

  const PlateauOptions options_;
  // The best JudgedBy (models/train/hooks/hooks.h); higher is better.
  double best_ = -std::numeric_limits<double>::infinity();
  int64_t bad_ = 0;           // evaluations in a row
  int64_t cooldown_ = 0;      // evaluations left of it
  int64_t judged_step_ = -1;  // of the newest evaluation
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_HOOKS_PLATEAU_H_
