// What a trained model is asked for: to be evaluated, to predict, to be
// exported.
#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "io/files/without_query.h"
#include "models/train/export.h"
#include "models/train/trainer.h"

namespace sluice {
namespace {

void TellOfTraining(const TrainingState& state, RunContext* run) {
  run->class_names = state.class_names;
  run->trained_on = state.dataset_position;
}

}  // namespace

std::optional<ChosenCheckpoint> Trainer::Chosen() {
  if (!options_.weights.empty()) return std::nullopt;
  if (told_of_) return std::exchange(told_of_, std::nullopt);
  if (options_.log_dir.empty()) {
    throw Error(Code::kNotFound,
                "no trained model: give --log-dir, the folder it was trained "
                "in, or --weights");
  }
  auto chosen = ChooseCheckpoint(options_.log_dir, options_.checkpoint);
  if (chosen) return chosen;
  throw Error(Code::kNotFound,
              fmt::format("no checkpoint in '{}': train first, or give "
                          "--weights",
                          options_.log_dir));
}

RunContext Trainer::ToldOfTraining(RunContext run) {
  told_of_ = Chosen();
  if (told_of_) TellOfTraining(told_of_->restored.checkpoint.state, &run);
  return run;
}

Trainer::TrainedModel Trainer::Trained(Mode mode,
                                       const SessionOptions& session) {
  RunContext context = run_;
  context.mode = mode;
  const auto chosen = Chosen();
  TrainedModel model;
  if (chosen) {
    const auto& [checkpoint, path, warnings] = chosen->restored;
    for (const std::string& warning : warnings) options_.Note(warning);
    TellOfTraining(checkpoint.state, &context);
    model.step = checkpoint.state.step;
    model.checkpoint = path;
  }
  SessionOptions alone = session;
  alone.collective = nullptr;
  model.inference = std::make_unique<Inference>(spec_, context, alone);
  if (chosen) {
    model.inference->SetVariables(chosen->restored.checkpoint.tensors,
                                  model.checkpoint);
    options_.Note(fmt::format("using {}, {}", model.checkpoint, chosen->why));
  } else {
    model.inference->LoadWeights(options_.weights);
    options_.Note("using " + WithoutQuery(options_.weights));
  }
  return model;
}

std::optional<Evaluation> Trainer::Evaluate(const OnBatch& each) {
  const TrainedModel model = Trained(Mode::kEval, options_.session);
  model.inference->Freeze();
  std::optional<Evaluation> evaluation = model.inference->Evaluate(
      {.stop = options_.stop, .reporter = options_.reporter, .each = each});
  if (evaluation) {
    evaluation->step = model.step;
    evaluation->checkpoint = model.checkpoint;
  }
  return evaluation;
}

void Trainer::Predict(const OnBatch& fn) {
  const TrainedModel model = Trained(Mode::kPredict, options_.session);
  model.inference->Freeze();
  model.inference->Predict(fn, options_.stop);
}

void Trainer::Export(const std::string& directory) {
  // The same model, whatever it is going to run on.
  SessionOptions session = options_.session;
  session.devices = {"/cpu:0"};
  const TrainedModel model = Trained(Mode::kPredict, session);
  std::map<std::string, std::string> flags;
  for (const Flag& flag : spec_.flags) {
    if (flag.of_reading) flags[flag.name] = run_.flag(flag.name);
  }
  ExportModel(*model.inference,
              {.program = spec_.name,
               .step = model.step,
               .class_names = model.inference->class_names(),
               .flags = std::move(flags)},
              directory);
}

}  // namespace sluice
