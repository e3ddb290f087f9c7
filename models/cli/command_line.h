// Reads a training program's command line. Internal to models/cli/main.cc.
#ifndef SLUICE_MODELS_CLI_COMMAND_LINE_H_
#define SLUICE_MODELS_CLI_COMMAND_LINE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/cli/benchmark.h"
#include "models/cli/job.h"
#include "models/cli/recorded_flags.h"
#include "models/train/run/model_spec.h"
#include "models/train/run/training_run.h"

namespace sluice {

// Changes that flags make to the spec's optimizer.
struct OptimizerFlags {
  std::string optimizer;      // empty: the spec's
  std::string learning_rate;  // empty: the optimizer's
  bool keeps_rate = false;    // `optimizer` has the rate of the spec's
  double rate_scale = 1;      // what either is multiplied with
  std::vector<std::pair<std::string, double>> rate_factors;  // by patterns
  int64_t accumulate = 1;  // batches to an update
  double clip = 0;         // the gradients' greatest norm; 0: any
  // Evaluations without a better one before the rate is lowered.
  std::optional<int> plateau;
  double plateau_factor = 0.1;
};

// --input-threads auto: as many as help.
inline constexpr int kAutomatic = -1;

struct CommandLine {
  enum class Command { kTrain, kEval, kPredict, kExport, kBench };
  Command command = Command::kTrain;
  RunContext run;
  TrainingOptions training;
  bool json = false;
  bool verbose = false;   // train: what preparing the step took
  bool summary = false;   // train: the model's layers
  int threads = 0;        // 0: one per core
  int input_threads = 0;  // 0: what those leave; or kAutomatic
  OptimizerFlags optimizing;
  // Whether --device was /gpu, which in a job is that of the process's number
  // on its host; /gpu:0 until that is known.
  bool gpu_of_process = false;
  JobFlags job;                          // train
  int64_t overfit_batches = 0;           // train: 0 for all
  bool fast_dev_run = false;             // train
  std::optional<std::string> find_rate;  // train: a page to write
  std::optional<int64_t> max_steps;
  std::optional<int> patience;  // evaluations, of early stopping
  std::optional<std::pair<int64_t, int64_t>> profile;  // first and last step
  std::string report;                                  // eval: a page to write
  bool follow = false;  // eval: what a training saves, until it has ended
  // eval: how long a training that has ended before may take to go on.
  std::chrono::duration<double> await_training{0};
  bool csv = false;      // predict
  std::string exported;  // predict: a folder that export wrote
  int64_t count = 0;     // predict: examples, 0 for all
  std::string output;    // export: the folder to write
  BenchmarkOptions benchmark;
  RunRecord record;                // train: for the folder, but for the model
  std::function<int64_t()> nodes;  // train: RunRecord::nodes, at any time
  std::vector<std::string> notes;  // for people, before it runs
};

// The result of parsing: a command to run, or an exit code after --help,
// --version or an error, all of which have been printed.
struct ParsedCommandLine {
  CommandLine line;
  std::optional<int> exit_code;
};

// Takes what is not given from --config and, where --log-dir holds a training,
// from its record. Throws Error for a file of these that cannot be used.
ParsedCommandLine ParseCommandLine(int argc, const char* const* argv,
                                   const TrainerSpec& spec);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_COMMAND_LINE_H_
