#include "models/cli/main.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

#include "engine/threads.h"
#include "io/image_list.h"
#include "models/cli/command_line.h"
#include "models/cli/console.h"
#include "models/cli/interrupt.h"
#include "models/cli/predictions.h"
#include "models/cli/progress.h"
#include "models/train/export.h"
#include "models/train/hooks.h"
#include "models/train/memory_check.h"
#include "models/train/trainer.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

std::string ModelName(const TrainerSpec& spec, const RunContext& run) {
  return spec.model_name ? spec.model_name(run) : spec.name;
}

std::string DatasetName(const TrainerSpec& spec, const RunContext& run) {
  if (spec.dataset_name) return spec.dataset_name(run);
  return run.data_dir.empty() ? "synthetic" : run.data_dir;
}

// The spec with the optimizer that flags ask for.
TrainerSpec WithFlags(const TrainerSpec& spec, const CommandLine& line) {
  TrainerSpec out = spec;
  out.optimizer = [given = spec.optimizer,
                   flags = line.optimizing](const RunContext& run) {
    Optimizer optimizer = given ? given(run) : optimizers::Adam();
    if (!flags.optimizer.empty()) {
      optimizer = optimizers::ByName(flags.optimizer).WithExtrasOf(optimizer);
    }
    if (!flags.learning_rate.empty()) {
      optimizer =
          optimizer.WithLearningRate(Schedule(flags.learning_rate, run));
    }
    for (const auto& [patterns, factor] : flags.rate_factors) {
      optimizer = optimizer.WithRateFactor(patterns, factor);
    }
    if (flags.accumulate > 1) {
      optimizer = optimizer.With(gradients::Accumulate(flags.accumulate));
    }
    // What is clipped is the gradient that updates.
    if (flags.clip > 0) {
      optimizer = optimizer.With(gradients::ClipByGlobalNorm(flags.clip));
    }
    return optimizer;
  };
  return out;
}

void PrintResult(const TrainerSpec& spec, const CommandLine& line,
                 const Evaluation& evaluation, double examples_per_second,
                 double seconds) {
  const std::string model = ModelName(spec, line.run);
  const std::string dataset = DatasetName(spec, line.run);
  if (!line.json) {
    console::Print(fmt::format(
        "{} on {}: {} {} ({} examples) after {} steps; {} examples/s, "
        "{:.1f} s",
        model, dataset, evaluation.set, Describe(evaluation.values),
        console::WithThousands(evaluation.examples), evaluation.step,
        console::WithThousands(std::llround(examples_per_second)), seconds));
    return;
  }
  Json result = {{"event", "result"},
                 {"model", model},
                 {"dataset", dataset},
                 {"steps", evaluation.step},
                 {"evaluated_on", evaluation.set}};
  // Without metrics, the loss.
  const size_t first = evaluation.values.size() > 1 ? 1 : 0;
  for (size_t i = first; i < evaluation.values.size(); ++i) {
    const auto& [name, value] = evaluation.values[i];
    result[fmt::format("{}_{}", evaluation.set, name)] = value;
  }
  if (const int64_t bad = line.run.bad_examples->count(); bad > 0) {
    result["bad_examples"] = bad;
  }
  if (!evaluation.checkpoint.empty()) {
    result["checkpoint"] = evaluation.checkpoint;
  }
  result["examples_per_second"] = examples_per_second;
  result["seconds"] = seconds;
  console::Print(result.dump());
}

// Lists what --skip-bad passed over, also when an error ends the run.
class BadReport {
 public:
  explicit BadReport(const BadExamples& bad) : bad_(bad) {}
  BadReport(const BadReport&) = delete;
  BadReport& operator=(const BadReport&) = delete;
  ~BadReport() {
    if (printed_) return;
    try {
      Print();
    } catch (...) {
      // The error that is under way says more.
    }
  }
  void Print() const {
    printed_ = true;
    constexpr size_t kMost = 10;
    const std::vector<std::string> messages = bad_.messages();
    if (messages.empty()) return;
    console::Note(
        fmt::format("passed over as they cannot be read: {}", messages.size()));
    for (size_t i = 0; i < std::min(messages.size(), kMost); ++i) {
      console::Note("  " + messages[i]);
    }
    if (messages.size() > kMost) {
      console::Note(fmt::format("  and {} more", messages.size() - kMost));
    }
  }

 private:
  const BadExamples& bad_;
  mutable bool printed_ = false;
};

int ReportInterrupt(const CommandLine& line, int64_t step,
                    const std::string& checkpoint) {
  const int signal = InterruptSignal();
  if (line.json) {
    console::Print(Json{
        {"event", "interrupted"},
        {"signal", InterruptName(signal)},
        {"steps", step},
        {"checkpoint",
         checkpoint}}.dump());
  }
  std::string what = "saved " + checkpoint;
  if (checkpoint.empty()) {
    what = "nothing was saved";
    if (line.training.log_dir.empty()) what += ", there is no --log-dir";
  }
  console::Note(
      fmt::format("{} at step {}: {}", InterruptName(signal), step, what));
  return 128 + signal;
}

int Train(const TrainerSpec& spec, const CommandLine& line) {
  const TrainingOptions& options = line.training;
  Trainer trainer(WithFlags(spec, line), line.run, options);
  if (line.profile) {
    const auto [first, last] = *line.profile;
    const std::string name = fmt::format("trace-{}-{}.json", first, last);
    trainer.AddHook(std::make_unique<Profile>(
        first, last,
        options.log_dir.empty() ? name : JoinPath(options.log_dir, name)));
  }
  if (line.max_steps) {
    trainer.AddHook(std::make_unique<StopAtStep>(*line.max_steps));
  }
  if (line.patience) {
    trainer.AddHook(std::make_unique<EarlyStopping>(*line.patience));
  }
  if (line.summary) trainer.AddHook(std::make_unique<ShowSummary>());
  if (line.verbose) trainer.AddHook(std::make_unique<PassTimes>());
  trainer.AddHook(std::make_unique<Progress>(options.log_every));
  if (line.json) {
    trainer.AddHook(std::make_unique<JsonEvents>(options.log_every));
  }
  if (options.log_dir.empty()) {
    console::Note("nothing will be saved: there is no --log-dir");
  } else {
    RunRecord record = line.record;
    record.model = ModelName(spec, line.run);
    trainer.AddHook(std::make_unique<RecordRun>(std::move(record)));
  }
  const BadReport bad(*line.run.bad_examples);
  const TrainingResult result = trainer.Train();
  bad.Print();
  if (InterruptSignal() != 0) {
    return ReportInterrupt(line, result.steps, result.checkpoint);
  }
  if (!result.stop_reason.empty()) {
    console::Note("stopped early: " + result.stop_reason);
  }
  PrintResult(spec, line, *result.evaluation, result.examples_per_second,
              result.seconds);
  return 0;
}

int Evaluate(const TrainerSpec& spec, const CommandLine& line) {
  Trainer trainer(spec, line.run, line.training);
  const BadReport bad(*line.run.bad_examples);
  const std::optional<Evaluation> evaluation = trainer.Evaluate();
  bad.Print();
  if (!evaluation) return 128 + InterruptSignal();
  PrintResult(spec, line, *evaluation,
              static_cast<double>(evaluation->examples) /
                  std::max(evaluation->seconds, 1e-9),
              evaluation->seconds);
  return 0;
}

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
    std::error_code none;
    std::vector<std::string> below;
    if (std::filesystem::is_directory(file, none)) below = ImagesBelow(file);
    if (below.empty()) below = {file};
    out.insert(out.end(), below.begin(), below.end());
  }
  return out;
}

int Predict(const TrainerSpec& spec, const CommandLine& line) {
  RunContext named = line.run;
  named.mode = Mode::kPredict;
  named.files = WithoutFolders(line.run.files);
  Trainer trainer(spec, named, line.training);
  std::unique_ptr<ExportedModel> model;
  if (!line.exported.empty()) {
    model = LoadExported(line.exported, line.training.session);
    named.class_names = model->info().class_names;
  } else if (spec.class_names) {  // it reads a checkpoint for them
    named.class_names = trainer.ClassNames();
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

int Export(const TrainerSpec& spec, const CommandLine& line) {
  Trainer trainer(spec, line.run, line.training);
  trainer.Export(line.output);
  if (InterruptSignal() != 0) {
    console::Note("the export was complete already: " + line.output);
    return 128 + InterruptSignal();
  }
  if (line.json) {
    console::Print(Json{{"event", "export"}, {"path", line.output}}.dump());
  } else {
    console::Print(fmt::format("wrote {}", line.output));
  }
  return 0;
}

int Bench(const TrainerSpec& spec, const CommandLine& line) {
  const BenchmarkResult result =
      Benchmark(spec, line.run, line.training, line.benchmark);
  const std::string model = ModelName(spec, line.run);
  const char* mode = line.benchmark.inference ? "inference" : "training";
  if (line.json) {
    console::Print(Json{{"event", "bench"},
                        {"model", model},
                        {"mode", mode},
                        {"precision", NameOf(line.training.session.precision)},
                        {"batch", result.examples},
                        {"threads", ComputeThreads().threads()},
                        {"steps", line.benchmark.steps},
                        {"examples_per_second", result.examples_per_second},
                        {"seconds_mean", result.mean},
                        {"seconds_median", result.median},
                        {"seconds_p90", result.p90},
                        {"arena_bytes", result.info.arena_bytes},
                        {"variable_bytes", result.variable_bytes},
                        {"peak_bytes", result.peak_bytes}}
                       .dump());
    return 0;
  }
  console::Print(fmt::format(
      "{} {}, batch {}, {} threads: {:.2f} examples/s; a step takes {:.1f} ms "
      "(median {:.1f}, 90 % within {:.1f}; {} steps); memory: {} at most, "
      "arena {}, variables {}",
      model, mode, result.examples, ComputeThreads().threads(),
      result.examples_per_second, 1e3 * result.mean, 1e3 * result.median,
      1e3 * result.p90, line.benchmark.steps, FormatBytes(result.peak_bytes),
      FormatBytes(result.info.arena_bytes),
      FormatBytes(result.variable_bytes)));
  return 0;
}

// What the first signal does, for whom it is sent by.
const char* OnSignal(const CommandLine& line) {
  if (line.command != CommandLine::Command::kTrain) return "ending";
  return line.training.log_dir.empty()
             ? "ending after this step; there is no --log-dir to save in"
             : "saving after this step; once more ends at once, without saving";
}

int Run(const TrainerSpec& spec, CommandLine line) {
  console::Reporter reporter;
  const InterruptToken interrupted;
  line.training.reporter = &reporter;
  line.training.stop = &interrupted;
  for (const std::string& note : line.notes) console::Note(note);
  SetComputeThreads(line.threads);
  NoteInterrupts(OnSignal(line));
  switch (line.command) {
    case CommandLine::Command::kTrain:
      IgnoreClosedPipes();
      return Train(spec, line);
    case CommandLine::Command::kEval:
      return Evaluate(spec, line);
    case CommandLine::Command::kPredict:
      return Predict(spec, line);
    case CommandLine::Command::kExport:
      return Export(spec, line);
    case CommandLine::Command::kBench:
      return Bench(spec, line);
  }
  return 1;
}

}  // namespace

int Main(int argc, const char* const* argv, const TrainerSpec& spec) {
  const auto fail = [&](std::string message) {
    // More than is read says less.
    constexpr size_t kMost = 800;
    if (message.size() > kMost) message = message.substr(0, kMost - 4) + " ...";
    console::ClearStatus();
    console::Note(fmt::format("{}: {}", spec.name, message));
    return 1;
  };
  try {
    const ParsedCommandLine parsed = ParseCommandLine(argc, argv, spec);
    if (parsed.exit_code) return *parsed.exit_code;
    const int code = Run(spec, parsed.line);
    // A reader that has gone has had what it wanted.
    const int unprinted = console::OutputError();
    if (unprinted == 0 || unprinted == EPIPE || code != 0) return code;
    return fail(fmt::format("the results cannot be printed: {}",
                            std::generic_category().message(unprinted)));
  } catch (const std::bad_alloc&) {
    return fail("out of memory: try a smaller --batch-size");
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}

}  // namespace sluice
