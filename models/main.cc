#include "models/main.h"

#include <fmt/format.h>

#include <cmath>
#include <new>
#include <nlohmann/json.hpp>

#include "engine/threads.h"
#include "models/command_line.h"
#include "models/console.h"
#include "models/export.h"
#include "models/hooks.h"
#include "models/interrupt.h"
#include "models/progress.h"
#include "models/trainer.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

void PrintLine(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

std::string ModelName(const TrainerSpec& spec, const RunContext& run) {
  return spec.model_name ? spec.model_name(run) : spec.name;
}

std::string DatasetName(const TrainerSpec& spec, const RunContext& run) {
  if (spec.dataset_name) return spec.dataset_name(run);
  return run.data_dir.empty() ? "synthetic" : run.data_dir;
}

// The spec with the optimizer and learning rate that flags ask for.
TrainerSpec WithFlags(const TrainerSpec& spec, const CommandLine& line) {
  TrainerSpec out = spec;
  if (line.optimizer.empty() && line.learning_rate.empty()) return out;
  out.optimizer = [given = spec.optimizer, optimizer = line.optimizer,
                   rate = line.learning_rate](const RunContext& run) {
    const Optimizer base = !optimizer.empty() ? optimizers::ByName(optimizer)
                           : given            ? given(run)
                                              : optimizers::Adam();
    return rate.empty() ? base : base.WithLearningRate(Schedule(rate, run));
  };
  return out;
}

void PrintResult(const TrainerSpec& spec, const CommandLine& line,
                 const Evaluation& evaluation, double images_per_second,
                 double seconds) {
  const std::string model = ModelName(spec, line.run);
  const std::string dataset = DatasetName(spec, line.run);
  if (!line.json) {
    PrintLine(fmt::format(
        "{} on {}: test {} ({} examples) after {} steps; {} images/s, {:.1f} s",
        model, dataset, Describe(evaluation.values),
        console::WithThousands(evaluation.examples), evaluation.step,
        console::WithThousands(std::llround(images_per_second)), seconds));
    return;
  }
  Json result = {{"event", "result"},
                 {"model", model},
                 {"dataset", dataset},
                 {"steps", evaluation.step}};
  // Without metrics, the loss.
  const size_t first = evaluation.values.size() > 1 ? 1 : 0;
  for (size_t i = first; i < evaluation.values.size(); ++i) {
    result["test_" + evaluation.values[i].first] = evaluation.values[i].second;
  }
  result["images_per_second"] = images_per_second;
  result["seconds"] = seconds;
  PrintLine(result.dump());
}

int ReportInterrupt(const CommandLine& line, int64_t step,
                    const std::string& checkpoint) {
  const int signal = InterruptSignal();
  if (line.json) {
    PrintLine(Json{{"event", "interrupted"},
                   {"signal", InterruptName(signal)},
                   {"steps", step},
                   {"checkpoint", checkpoint}}
                  .dump());
  }
  console::Note(checkpoint.empty()
                    ? fmt::format("{} at step {}: nothing was saved, there is "
                                  "no --log-dir",
                                  InterruptName(signal), step)
                    : fmt::format("{} at step {}: saved {}",
                                  InterruptName(signal), step, checkpoint));
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
  trainer.AddHook(std::make_unique<Progress>(options.log_every));
  if (line.json) {
    trainer.AddHook(std::make_unique<JsonEvents>(options.log_every));
  }
  if (options.log_dir.empty()) {
    console::Note("nothing will be saved: there is no --log-dir");
  }
  const TrainingResult result = trainer.Train();
  if (InterruptSignal() != 0) {
    return ReportInterrupt(line, result.steps, result.checkpoint);
  }
  if (!result.stop_reason.empty()) {
    console::Note("stopped early: " + result.stop_reason);
  }
  PrintResult(spec, line, *result.evaluation, result.images_per_second,
              result.seconds);
  return 0;
}

int Evaluate(const TrainerSpec& spec, const CommandLine& line) {
  Trainer trainer(spec, line.run, line.training);
  const std::optional<Evaluation> evaluation = trainer.Evaluate();
  if (!evaluation) return 128 + InterruptSignal();
  PrintResult(spec, line, *evaluation,
              static_cast<double>(evaluation->examples) /
                  std::max(evaluation->seconds, 1e-9),
              evaluation->seconds);
  return 0;
}

// One row of a tensor as JSON.
Json RowOf(const Tensor& tensor, int64_t row) {
  const Tensor values = tensor.Rows(row, row + 1);
  const auto at = [&](int64_t i) {
    return IsFloating(values.dtype()) ? Json(values.At(i))
                                      : Json(values.IntAt(i));
  };
  if (values.shape().rank() == 1) return at(0);
  Json row_values = Json::array();
  for (int64_t i = 0; i < values.elements(); ++i) row_values.push_back(at(i));
  return row_values;
}

// "probabilities 7 (0.998)": the largest element and where it is.
std::string LargestOf(const std::string& name, const Tensor& tensor,
                      int64_t row) {
  const Tensor values = tensor.Rows(row, row + 1);
  int64_t best = 0;
  for (int64_t i = 1; i < values.elements(); ++i) {
    if (values.At(i) > values.At(best)) best = i;
  }
  return values.elements() == 1
             ? fmt::format("{} {:.4g}", name, values.At(0))
             : fmt::format("{} {} ({:.4f})", name, best, values.At(best));
}

class PredictionPrinter {
 public:
  PredictionPrinter(bool json, int64_t count) : json_(json), count_(count) {}

  // False when enough examples are printed.
  bool Print(const Example& exports) {
    for (int64_t row = 0; row < RowsOf(exports); ++row) {
      if (count_ > 0 && next_ == count_) return false;
      if (json_) {
        Json event = {{"event", "prediction"}, {"index", next_}};
        for (const auto& [name, tensor] : exports) {
          event[name] = RowOf(tensor, row);
        }
        fmt::print("{}\n", event.dump());
      } else {
        std::string text = fmt::format("{}:", next_);
        for (const auto& [name, tensor] : exports) {
          text += " " + LargestOf(name, tensor, row);
        }
        fmt::print("{}\n", text);
      }
      ++next_;
    }
    return true;
  }

 private:
  bool json_;
  int64_t count_;
  int64_t next_ = 0;
};

int Predict(const TrainerSpec& spec, const CommandLine& line) {
  PredictionPrinter printer(line.json, line.count);
  if (line.exported.empty()) {
    Trainer trainer(spec, line.run, line.training);
    trainer.Predict([&](const Example&, const Example& exports) {
      return printer.Print(exports);
    });
    return 0;
  }
  const auto model = LoadExported(line.exported, line.training.session);
  RunContext run = line.run;
  run.mode = Mode::kPredict;
  Iterator batches = spec.input(run).MakeIterator();
  Example batch;
  while (InterruptSignal() == 0 && batches.Next(&batch).ValueOrThrow() &&
         printer.Print(model->Predict(batch))) {
  }
  return 0;
}

int Export(const TrainerSpec& spec, const CommandLine& line) {
  Trainer trainer(spec, line.run, line.training);
  trainer.Export(line.output);
  if (line.json) {
    PrintLine(Json{{"event", "export"}, {"path", line.output}}.dump());
  } else {
    PrintLine(fmt::format("wrote {}", line.output));
  }
  return 0;
}

int Run(const TrainerSpec& spec, const CommandLine& line) {
  SetComputeThreads(line.threads);
  NoteInterrupts();
  switch (line.command) {
    case CommandLine::Command::kTrain:
      return Train(spec, line);
    case CommandLine::Command::kEval:
      return Evaluate(spec, line);
    case CommandLine::Command::kPredict:
      return Predict(spec, line);
    case CommandLine::Command::kExport:
      return Export(spec, line);
  }
  return 1;
}

}  // namespace

int Main(int argc, const char* const* argv, const TrainerSpec& spec) {
  const auto fail = [&](const char* message) {
    console::ClearStatus();
    console::Note(fmt::format("{}: {}", spec.name, message));
    return 1;
  };
  try {
    const ParsedCommandLine parsed = ParseCommandLine(argc, argv, spec);
    if (parsed.exit_code) return *parsed.exit_code;
    return Run(spec, parsed.line);
  } catch (const std::bad_alloc&) {
    return fail("out of memory: try a smaller --batch-size");
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}

}  // namespace sluice
