// What a trained model is asked for: to be evaluated, to predict, to be
// exported.
#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "graph/text/text.h"
#include "io/files/without_query.h"
#include "models/train/export.h"
#include "models/train/trainer.h"

namespace sluice {
namespace {

void TellOfTraining(const TrainingState& state, RunContext* run) {
  run->class_names = state.class_names;
  run->trained_on = state.dataset_position;
}

// What rank 0 has chosen, for all workers: the state as far as they need it,
// and the path, which is empty with other weights.
void TakeFromFirst(const Workers& workers, TrainingState* state,
                   std::string* path) {
  if (!workers.several()) return;
  std::string text = PrintTrainingState(*state);
  workers.TakeFromFirst("state", &text);
  workers.TakeFromFirst("checkpoint", path);
  *state = ParseTrainingState(text).ValueOrThrow();
}

// What makes them compute the same is to be known before they exchange it.
void CheckSame(const Workers& workers, const Inference& inference,
               const SessionOptions& session) {
  if (!workers.several()) return;
  const DeviceName device = ParseDeviceName(session.devices[0]).ValueOrThrow();
  workers.RequireSame("kind of device", NameOf(device.type));
  workers.RequireSame("precision", NameOf(session.precision));
  workers.RequireSame("evaluation input",
                      inference.input().MakeIterator().SavePosition());
  workers.RequireSame("graph", PrintGraph(inference.graph()));
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

Trainer::TrainedModel Trainer::Trained(Mode mode, const SessionOptions& session,
                                       const Workers& workers) {
  RunContext context = workers.WithRank(run_);
  context.mode = mode;
  const auto chosen = workers.leads() ? Chosen() : std::nullopt;
  TrainedModel model;
  TrainingState told;
  if (chosen) {
    const auto& [checkpoint, path, warnings] = chosen->restored;
    for (const std::string& warning : warnings) options_.Note(warning);
    told.step = checkpoint.state.step;
    told.class_names = checkpoint.state.class_names;
    told.dataset_position = checkpoint.state.dataset_position;
    model.checkpoint = path;
  }
  TakeFromFirst(workers, &told, &model.checkpoint);
  if (!model.checkpoint.empty()) TellOfTraining(told, &context);
  model.step = told.step;
  model.inference = std::make_unique<Inference>(spec_, context, session,
                                                workers, /*devices=*/nullptr);
  CheckSame(workers, *model.inference, session);
  if (chosen) {
    model.inference->SetVariables(chosen->restored.checkpoint.tensors,
                                  model.checkpoint);
    options_.Note(fmt::format("using {}, {}", model.checkpoint, chosen->why));
  } else if (workers.leads()) {
    model.inference->LoadWeights(options_.weights);
    options_.Note("using " + WithoutQuery(options_.weights));
  }
  model.inference->HandOut();
  return model;
}

std::optional<Evaluation> Trainer::Evaluate(const OnBatch& each) {
  const Workers workers(options_.session.collective.get());
  if (each && workers.several()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("batches of an evaluation are looked at by one "
                            "worker alone, there are {}",
                            workers.size()));
  }
  const TrainedModel model = Trained(Mode::kEval, options_.session, workers);
  model.inference->Freeze();
  const Agreement agreement(workers, options_.stop);
  std::optional<Evaluation> evaluation = model.inference->Evaluate(
      {.stop = &agreement, .reporter = options_.reporter, .each = each});
  interrupted_ = agreement.agreed();
  if (evaluation) {
    evaluation->step = model.step;
    evaluation->checkpoint = model.checkpoint;
  }
  return evaluation;
}

Trainer::TrainedModel Trainer::TrainedAlone(const SessionOptions& session) {
  SessionOptions alone = session;
  alone.collective = nullptr;
  return Trained(Mode::kPredict, alone, Workers(nullptr));
}

void Trainer::Predict(const OnBatch& fn) {
  const TrainedModel model = TrainedAlone(options_.session);
  model.inference->Freeze();
  model.inference->Predict(fn, options_.stop);
}

void Trainer::Export(const std::string& directory) {
  // The same model, whatever it is going to run on.
  SessionOptions session = options_.session;
  session.devices = {"/cpu:0"};
  const TrainedModel model = TrainedAlone(session);
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
