// How predictions are printed. Internal to models/cli/main.cc.
#ifndef SLUICE_MODELS_CLI_PREDICTIONS_H_
#define SLUICE_MODELS_CLI_PREDICTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "io/example.h"
#include "io/pipeline/bad_examples.h"

namespace sluice {

struct PredictionOptions {
  bool json = false;
  bool csv = false;   // the most probable classes, whatever else is exported
  int64_t count = 0;  // examples; 0: all
  // The files the examples come from: then the five most probable classes of
  // each are printed, else all that the model exports.
  std::vector<std::string> files = {};
  std::vector<std::string> class_names = {};  // empty: none are known
  // The bad examples that were skipped, by position; not owned.
  const BadExamples* bad = nullptr;
};

// Prints to stdout: for people, or one JSON object per line.
class PredictionPrinter {
 public:
  explicit PredictionPrinter(PredictionOptions options);

  // The exports of a batch, and the bad examples before and within it. False
  // when enough examples are printed. As JSON, where all exports are printed,
  // throws Error(kInvalidArgument) for names that CheckExportNames refuses: an
  // exported model may be of another program.
  bool Print(const Example& exports);
  // The bad ones among the next examples, up to the next good one; after the
  // last batch, those that are left.
  void PrintBad();
  // How many bad ones were printed.
  int64_t bad() const { return bad_; }

 private:
  bool Enough() const { return options_.count > 0 && next_ >= options_.count; }
  // The file or, without files, the number of the next example.
  std::string Source() const;
  void PrintExports(const Example& exports, int64_t row) const;
  void PrintClasses(const Example& exports, int64_t row) const;
  std::string ClassName(int64_t number) const;  // may be empty

  PredictionOptions options_;
  int64_t next_ = 0;
  int64_t bad_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_PREDICTIONS_H_
