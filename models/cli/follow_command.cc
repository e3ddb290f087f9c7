#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "io/checkpoints/checkpoint.h"
#include "io/checkpoints/safetensors.h"
#include "io/files/file.h"
#include "io/summaries/event_file.h"
#include "models/cli/commands.h"
#include "models/cli/console.h"
#include "models/cli/interrupt.h"
#include "models/cli/polling.h"
#include "models/cli/results.h"
#include "models/cli/run_record.h"
#include "models/train/trainer.h"

namespace sluice::commands {
namespace {

// A training that begins anew saves others of the same steps.
struct SavedStep {
  int64_t step = -1;
  // Of its content: what a copy or new rights leave as it is.
  std::optional<std::string> checksum;

  bool operator==(const SavedStep&) const = default;
};

// nullopt: there is none yet, or another has just taken its place.
std::optional<SavedStep> NewestSaved(const std::string& log_dir) {
  const auto saved = CheckpointManager::ForReading(log_dir);
  const auto steps = saved.Steps().ValueOrThrow();
  if (steps.empty()) return std::nullopt;
  Result<SafetensorsHeader> header = saved.HeaderOf(steps.back());
  if (header.status().code() == Code::kNotFound) return std::nullopt;
  return SavedStep{steps.back(), std::move(header).ValueOrThrow().checksum};
}

// Of what is evaluated, for TensorBoard.
class Events {
 public:
  explicit Events(const std::string& log_dir)
      : folder_(JoinPath(log_dir, "evaluator")) {}

  void Add(const Evaluation& evaluation) {
    // Where a training begins anew, what there was is set aside.
    if (writer_ == nullptr ||
        !FileSystem::Default().Exists(writer_->path()).ValueOrThrow()) {
      auto writer = EventWriter::Open(folder_);
      if (writer.status().code() == Code::kUnimplemented) return;
      writer_ = std::move(writer).ValueOrThrow();
    }
    for (const auto& [name, value] : evaluation.values) {
      ThrowIfError(writer_->Scalar(name, evaluation.step, value));
    }
    ThrowIfError(writer_->Flush());
  }

 private:
  const std::string folder_;
  std::unique_ptr<EventWriter> writer_;
};

// Of one checkpoint; nullopt: it was cut short, or it is there no more, as a
// newer one has taken its place.
std::optional<Evaluation> EvaluateSaved(const TrainerSpec& spec,
                                        const CommandLine& line,
                                        const SavedStep& saved) {
  TrainingOptions options = line.training;
  options.weights.clear();  // where training began
  options.checkpoint = {.kind = CheckpointChoice::Kind::kStep,
                        .step = saved.step};
  try {
    return Trainer(spec, line.run, options).Evaluate();
  } catch (const Error& error) {
    const bool replaced = error.code() == Code::kNotFound &&
                          NewestSaved(options.log_dir) != saved;
    if (!replaced) throw;
    return std::nullopt;
  }
}

}  // namespace

int Follow(const TrainerSpec& spec, const CommandLine& line) {
  const std::string& log_dir = line.training.log_dir;
  if (log_dir.empty()) {
    throw Error(Code::kInvalidArgument,
                "who evaluates what a training saves wants its --log-dir");
  }
  const BadReport bad(*line.run.bad_examples);  // at the end, whatever that is
  Events events(log_dir);
  Polling polling(fmt::format("a checkpoint in '{}'", log_dir));
  std::optional<SavedStep> evaluated;
  // What a training that begins anew sets aside once all its processes have
  // come together.
  std::optional<SavedStep> old;
  if (line.training.restart) old = NewestSaved(log_dir);
  // Whether it has been seen to train: what has ended is no earlier training.
  bool goes_on = false;
  while (InterruptSignal() == 0) {
    // Asked first: what is saved last is saved by then.
    const bool ended = HasEnded(log_dir);
    goes_on = goes_on || !ended;
    // And this before it is read: what takes its place is another.
    const std::optional<SavedStep> newest = NewestSaved(log_dir);
    if (old && newest != old) {
      // From here on all is the one training's, be it the same once more.
      old.reset();
      goes_on = true;
      continue;
    }
    const bool over =
        ended && (goes_on || polling.elapsed() >= line.await_training);
    // What nothing has taken the place of may be that training's own, of which
    // this has come late.
    if (newest && newest != evaluated && (!old || over)) {
      const auto evaluation = EvaluateSaved(spec, line, *newest);
      if (!evaluation) continue;
      goes_on = goes_on || evaluated;  // as it has saved another
      evaluated = newest;
      console::ClearStatus();
      PrintResult(spec, line, *evaluation,
                  static_cast<double>(evaluation->examples) /
                      std::max(evaluation->seconds, 1e-9),
                  evaluation->seconds);
      events.Add(*evaluation);
      continue;
    }
    if (over && newest == evaluated) return 0;
    polling.Wait(/*quiet=*/evaluated.has_value());
  }
  return 128 + InterruptSignal();
}

}  // namespace sluice::commands
