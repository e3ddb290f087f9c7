#include <algorithm>
#include <utility>

#include "models/cli/commands.h"
#include "models/cli/console.h"
#include "models/cli/eval_report.h"
#include "models/cli/interrupt.h"
#include "models/cli/results.h"
#include "models/train/trainer.h"

namespace sluice::commands {

int Evaluate(const TrainerSpec& spec, const CommandLine& line) {
  Trainer trainer(spec, line.run, line.training);
  std::optional<EvalReport> report;
  OnBatch each;
  if (!line.report.empty()) {
    RunContext named = line.run;
    named.mode = Mode::kEval;
    report.emplace(spec, line, trainer.ToldOfTraining(std::move(named)));
    each = [&](const Example& batch, const Example& exports) {
      report->Add(batch, exports);
      return true;
    };
  }
  const BadReport bad(*line.run.bad_examples);
  const std::optional<Evaluation> evaluation = trainer.Evaluate(each);
  console::ClearStatus();
  bad.Print();
  if (!evaluation) return 128 + InterruptNamed(trainer.interrupted());
  if (!Leads(line)) return 0;
  PrintResult(spec, line, *evaluation,
              static_cast<double>(evaluation->examples) /
                  std::max(evaluation->seconds, 1e-9),
              evaluation->seconds);
  if (report) report->Write(*evaluation);
  return 0;
}

}  // namespace sluice::commands
