#include "models/cli/commands.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "engine/status.h"
#include "io/files/path_kind.h"
#include "io/pipeline/bad_examples.h"
#include "io/sources/image_list.h"
#include "models/cli/console.h"
#include "models/cli/interrupt.h"
#include "models/cli/predictions.h"
#include "models/train/export.h"
#include "models/train/trainer.h"

namespace sluice::commands {
namespace {

// Calls fn with the exports of each batch, of a checkpoint or of an exported
// model, until it returns false.
using OnExports = std::function<bool(const Example& exports)>;
void PredictAll(const TrainerSpec& spec, const RunContext& named,
                Trainer& trainer, ExportedModel* model, const OnExports& fn) {
  if (model == nullptr) {
    trainer.Predict(
        [&](const Example&, const Example& exports) { return fn(exports); });
    return;
  }
  Iterator batches = spec.input(named).MakeIterator();
  Example batch;
  while (InterruptSignal() == 0 && batches.Next(&batch).ValueOrThrow() &&
         fn(model->Predict(batch))) {
  }
}

// With the pictures below each folder in its place; one without any stays, and
// is told as a file that cannot be read.
std::vector<std::string> WithoutFolders(const std::vector<std::string>& files) {
  std::vector<std::string> out;
  for (const std::string& file : files) {
    std::vector<std::string> below;
    const Result<bool> folder = IsFolder(file);
    // One that is refused is told by whoever reads it; a server that is away
    // would be waited for at each.
    if (!BadExamples::IsOne(folder.status())) ThrowIfError(folder.status());
    if (folder.ok() && *folder) below = ImagesBelow(file);
    if (below.empty()) below = {file};
    out.insert(out.end(), below.begin(), below.end());
  }
  return out;
}

}  // namespace

int Predict(const TrainerSpec& spec, const CommandLine& line) {
  RunContext named = line.run;
  named.mode = Mode::kPredict;
  named.files = WithoutFolders(line.run.files);
  Trainer trainer(spec, named, line.training);
  std::unique_ptr<ExportedModel> model;
  if (!line.exported.empty()) {
    model = LoadExported(line.exported, line.training.session);
    named.class_names = model->info().class_names;
    for (const auto& [name, type] : model->inputs()) {
      named.exported_inputs[name] = type.shape;
    }
  } else if (spec.class_names) {  // it reads a checkpoint for them
    named = trainer.ToldOfTraining(std::move(named));
  }
  const BadExamples& bad = *line.run.bad_examples;
  PredictionPrinter printer({.json = line.json,
                             .csv = line.csv,
                             .count = line.count,
                             .files = named.files,
                             .class_names = spec.class_names
                                                ? spec.class_names(named)
                                                : std::vector<std::string>(),
                             .bad = &bad});
  try {
    PredictAll(spec, named, trainer, model.get(),
               [&](const Example& exports) { return printer.Print(exports); });
  } catch (const Error&) {
    printer.PrintBad();  // of what is all bad nothing else is said
    throw;
  }
  printer.PrintBad();
  if (printer.bad() > 0) {
    console::Note(fmt::format("{} that could not be read", printer.bad()));
  }
  if (InterruptSignal() != 0) return 128 + InterruptSignal();
  return printer.bad() > 0 ? 1 : 0;
}

}  // namespace sluice::commands
