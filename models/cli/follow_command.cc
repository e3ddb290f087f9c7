#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "io/checkpoints/checkpoint.h"
#include "io/files/file.h"
#include "io/summaries/event_file.h"
#include "models/cli/commands.h"
#include "models/cli/console.h"
#include "models/cli/interrupt.h"
#include "models/cli/results.h"
#include "models/cli/run_record.h"
#include "models/train/trainer.h"

namespace sluice::commands {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

std::optional<int64_t> NewestStep(const std::string& log_dir) {
  const auto steps =
      CheckpointManager::ForReading(log_dir).Steps().ValueOrThrow();
  if (steps.empty()) return std::nullopt;
  return steps.back();
}

// Null where there can be none.
std::unique_ptr<EventWriter> OpenEvents(const std::string& log_dir) {
  auto events = EventWriter::Open(JoinPath(log_dir, "evaluator"));
  if (events.status().code() == Code::kUnimplemented) return nullptr;
  return std::move(events).ValueOrThrow();
}

// Of one checkpoint; nullopt: it was cut short, or there is none of that step
// any more, as a newer one has taken its place.
std::optional<Evaluation> EvaluateStep(const TrainerSpec& spec,
                                       const CommandLine& line, int64_t step) {
  TrainingOptions options = line.training;
  options.weights.clear();  // where training began
  options.checkpoint = {.kind = CheckpointChoice::Kind::kStep, .step = step};
  try {
    return Trainer(spec, line.run, options).Evaluate();
  } catch (const Error& error) {
    const bool replaced =
        error.code() == Code::kNotFound && NewestStep(options.log_dir) != step;
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
  constexpr std::chrono::milliseconds kLook(200);
  constexpr seconds kNoteEvery(10);
  const std::unique_ptr<EventWriter> events = OpenEvents(log_dir);
  const Clock::time_point begin = Clock::now();
  Clock::time_point note = begin + kNoteEvery;
  int64_t evaluated = -1;
  while (InterruptSignal() == 0) {
    // Asked first: what is saved last is saved by then.
    const bool ended = HasEnded(log_dir);
    const std::optional<int64_t> newest = NewestStep(log_dir);
    if (newest && *newest != evaluated) {
      const auto evaluation = EvaluateStep(spec, line, *newest);
      if (!evaluation) continue;
      evaluated = *newest;
      console::ClearStatus();
      PrintResult(spec, line, *evaluation,
                  static_cast<double>(evaluation->examples) /
                      std::max(evaluation->seconds, 1e-9),
                  evaluation->seconds);
      if (events == nullptr) continue;
      for (const auto& [name, value] : evaluation->values) {
        ThrowIfError(events->Scalar(name, evaluated, value));
      }
      ThrowIfError(events->Flush());
      continue;
    }
    if (ended) return 0;
    const Clock::time_point now = Clock::now();
    if (evaluated < 0 && now >= note) {
      console::Note(fmt::format(
          "waiting for a checkpoint in '{}' ({} s)", log_dir,
          std::chrono::duration_cast<seconds>(now - begin).count()));
      note += kNoteEvery;
    }
    std::this_thread::sleep_for(kLook);
  }
  return 128 + InterruptSignal();
}

}  // namespace sluice::commands
