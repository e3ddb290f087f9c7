// What `eval --report` writes. Internal to models/cli.
#ifndef SLUICE_MODELS_CLI_EVAL_REPORT_H_
#define SLUICE_MODELS_CLI_EVAL_REPORT_H_

#include <string>
#include <vector>

#include "models/cli/command_line.h"
#include "models/report/classification.h"
#include "models/train/run/inference.h"

namespace sluice {

// Looks at the batches of an evaluation of a classifier: a feature "label" and
// an export "probabilities"; the first feature that is of pictures is shown.
class EvalReport {
 public:
  // `run` is as the evaluation has it: with the training's class names. Throws
  // Error where the page cannot be written.
  EvalReport(const TrainerSpec& spec, const CommandLine& line,
             const RunContext& run);

  // Throws Error(kInvalidArgument) where the model is no such classifier.
  void Add(const Example& batch, const Example& exports);
  // Writes the page; its curves are those of --log-dir. Throws Error.
  void Write(const Evaluation& evaluation) const;

 private:
  const TrainerSpec& spec_;
  const CommandLine& line_;
  std::vector<std::string> names_;  // of the examples, bad ones too
  report::Classification classes_;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_EVAL_REPORT_H_
