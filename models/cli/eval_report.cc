#include "models/cli/eval_report.h"

#include <fmt/format.h>

#include "engine/text/thousands.h"
#include "io/files/file.h"
#include "io/files/without_query.h"
#include "io/images/png.h"
#include "models/cli/console.h"
#include "models/cli/progress.h"
#include "models/cli/results.h"
#include "models/report/evaluation_page.h"
#include "models/report/runs_page.h"
#include "models/train/hooks/scalar_log.h"

namespace sluice {
namespace {

constexpr size_t kWorst = 48;

// The first tensor of a batch that can be shown; null: there is none.
const Tensor* PicturesOf(const Example& batch) {
  for (const auto& [name, tensor] : batch) {
    const Shape& shape = tensor.shape();
    const bool shown =
        tensor.dtype() == DType::kUInt8 || tensor.dtype() == DType::kFloat32;
    if (shown && shape.rank() == 4 && IsPngSize(shape[1], shape[2]) &&
        (shape[3] == 1 || shape[3] == 3)) {
      return &tensor;
    }
  }
  return nullptr;
}

// Without what training left there: no charts, which is said.
std::vector<report::Chart> CurvesOf(const std::string& log_dir) {
  if (log_dir.empty()) return {};
  Result<std::vector<ScalarRow>> rows = ReadScalars(log_dir);
  if (!rows.ok()) {
    console::Note("the report has no curves: " + rows.status().message());
    return {};
  }
  return report::ChartsOf({{.name = log_dir, .rows = *std::move(rows)}});
}

}  // namespace

EvalReport::EvalReport(const TrainerSpec& spec, const CommandLine& line,
                       const RunContext& run)
    : spec_(spec),
      line_(line),
      names_(spec.example_names ? spec.example_names(run)
                                : std::vector<std::string>()),
      classes_(
          spec.class_names ? spec.class_names(run) : std::vector<std::string>(),
          kWorst) {
  CheckPage("--report", line.report);
}

void EvalReport::Add(const Example& batch, const Example& exports) {
  if (!batch.contains("label") || !exports.contains("probabilities")) {
    throw Error(Code::kInvalidArgument,
                "--report is for classifiers: the model has no feature 'label' "
                "and export 'probabilities'");
  }
  classes_.Add(batch["label"], exports["probabilities"], PicturesOf(batch));
}

void EvalReport::Write(const Evaluation& evaluation) const {
  const std::string model = ModelName(spec_, line_.run);
  report::EvaluationFacts page;
  page.title =
      fmt::format("{} {} on {} data", spec_.name, model, evaluation.set);
  page.facts = {
      {"model", model},
      {"data", DatasetName(spec_, line_.run)},
      {"evaluated on", fmt::format("{} data, {} examples", evaluation.set,
                                   WithThousands(evaluation.examples))},
      {"variables", evaluation.checkpoint.empty()
                        ? WithoutQuery(line_.training.weights)
                        : evaluation.checkpoint}};
  if (!evaluation.checkpoint.empty()) {
    page.facts.emplace_back("steps trained", WithThousands(evaluation.step));
  }
  page.facts.emplace_back("figures", Describe(evaluation.values));
  page.facts.emplace_back("Sluice", SLUICE_VERSION);
  // Those that were passed over have no place among what was evaluated.
  for (size_t i = 0; i < names_.size(); ++i) {
    if (line_.run.bad_examples->At(static_cast<int64_t>(i)).empty()) {
      page.example_names.push_back(names_[i]);
    }
  }
  // Other weights were trained elsewhere.
  if (!evaluation.checkpoint.empty()) {
    page.charts = CurvesOf(line_.training.log_dir);
  }
  ThrowIfError(FileSystem::Default().WriteAtomically(
      line_.report, report::EvaluationPage(page, classes_)));
  console::Note("wrote " + line_.report);
}

}  // namespace sluice
