// What the commands of a training program print when they are done. Internal to
// models/cli.
#ifndef SLUICE_MODELS_CLI_RESULTS_H_
#define SLUICE_MODELS_CLI_RESULTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/pipeline/bad_examples.h"
#include "models/cli/command_line.h"
#include "models/train/run/inference.h"

namespace sluice {

// For reports.
std::string ModelName(const TrainerSpec& spec, const RunContext& run);
std::string DatasetName(const TrainerSpec& spec, const RunContext& run);

// Throws Error where a page cannot be written to `path`, the value of `flag`,
// as far as can be seen before the work for it is done.
void CheckPage(std::string_view flag, const std::string& path);

// Prints to stdout what was reached; `dropped` is of TrainingResult.
void PrintResult(const TrainerSpec& spec, const CommandLine& line,
                 const Evaluation& evaluation, double examples_per_second,
                 double seconds, const std::vector<int64_t>& dropped = {});

// Lists what --skip-bad passed over, also when an error ends the run.
class BadReport {
 public:
  explicit BadReport(const BadExamples& bad) : bad_(bad) {}
  BadReport(const BadReport&) = delete;
  BadReport& operator=(const BadReport&) = delete;
  ~BadReport();
  void Print() const;

 private:
  const BadExamples& bad_;
  mutable bool printed_ = false;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_RESULTS_H_
