// Keeps, in a training's checkpoints, which bad examples were passed over.
#ifndef SLUICE_MODELS_TRAIN_HOOKS_KEEP_BAD_EXAMPLES_H_
#define SLUICE_MODELS_TRAIN_HOOKS_KEEP_BAD_EXAMPLES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/pipeline/bad_examples.h"
#include "models/run_context.h"
#include "models/train/hooks/hook.h"
#include "models/train/run/model_spec.h"

namespace sluice {

// The bad examples that may be passed over are the whole training's: one that
// is resumed does not begin to count anew. It may be told where its data are in
// other words, as by a relative path first and the record's afterwards, and may
// find them elsewhere: a file is then the same.
//
// The state is a JSON array of BadExamples::messages(), the first of them where
// they are many. In the place of a path that a flag names (--data-dir, or one
// of the spec's) it has the flag's name between two NULs, which no path has.
class KeepBadExamples : public Hook {
 public:
  KeepBadExamples(std::shared_ptr<BadExamples> bad, const TrainerSpec& spec,
                  const RunContext& run);
  std::string StateName() const override { return "bad_examples"; }
  std::string SaveState() const override;
  void RestoreState(const std::string& state) override;

 private:
  std::string WithNames(const std::string& message) const;
  std::string WithPaths(const std::string& message) const;

  const std::shared_ptr<BadExamples> bad_;
  // Paths and the flags that name them; the longest first, as one may lie below
  // another.
  std::vector<std::pair<std::string, std::string>> places_;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_HOOKS_KEEP_BAD_EXAMPLES_H_
