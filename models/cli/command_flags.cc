#include "models/cli/command_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdlib>

#include "engine/device.h"
#include "models/cli/flag_checks.h"
#include "models/cli/flag_values.h"
#include "models/cli/job_flags.h"
#include "models/train/hooks/plateau.h"

namespace sluice {
namespace {

constexpr double kMostEpochs = 1e6;

class Commands {
 public:
  Commands(const TrainerSpec& spec, CLI::App& app, CommandLine& line,
           GivenFlags& given)
      : spec_(spec), app_(app), line_(line), given_(given) {}

  void AddAll() {
    AddTrain();
    AddEval();
    AddPredict();
    AddExport();
    AddBench();
  }

 private:
  // `example` is what may follow the command's name.
  CLI::App* Add(CommandLine::Command command, const char* name,
                const char* help, const char* example) {
    CLI::App* sub = app_.add_subcommand(name, help);
    sub->footer(fmt::format("\nExample: {} {} {}", spec_.name, name, example));
    sub->callback([&line = line_, command] { line.command = command; });
    sub->add_option("--data-dir", line_.run.data_dir,
                    "Folder of the data (default: synthetic data, where the "
                    "program has some)");
    sub->add_option("--log-dir", line_.training.log_dir,
                    "Folder of checkpoints and TensorBoard events (default: "
                    "nothing is saved)");
    for (const Flag& flag : spec_.flags) {
      std::string& value = line_.run.flags[flag.name];
      if (flag.kind == Flag::Kind::kSwitch) {
        sub->add_flag("--" + flag.name, value, flag.help)
            ->check(CLI::IsMember({"true", "false"}));
        continue;
      }
      CLI::Option* option = sub->add_option("--" + flag.name, value, flag.help);
      option->capture_default_str();
      if (flag.kind == Flag::Kind::kText && !flag.choices.empty()) {
        option->check(CLI::IsMember(flag.choices));
      }
    }
    sub->add_option("--weights", line_.training.weights,
                    "Safetensors or PyTorch's .pth file to take the model's "
                    "variables from");
    sub->add_option("--batch-size", given_.batch_size,
                    "Examples in a step (default: the program's for the "
                    "model and the data)")
        ->check(Between(1, kLargest));
    sub->add_option("--seed", line_.run.seed, "Of all randomness")
        ->check(Between(0, kLargest))
        ->capture_default_str();
    sub->add_flag("--deterministic", line_.training.session.deterministic,
                  "The same bits for any number of threads");
    sub->add_flag("!--no-fuse", line_.training.session.fuse,
                  "Run every node by itself, to compare");
    sub->add_flag("--fuse-statistics", line_.training.session.fuse_statistics,
                  "On a GPU, with --precision fp16, convolutions sum what they "
                  "make for the batch normalisation behind them");
    sub->add_option("--threads", line_.threads, "0: one per core")
        ->check(Between(0, 1024))
        ->capture_default_str();
    sub->add_option_function<std::string>(
           "--input-threads",
           [&line = line_](const std::string& text) {
             line.input_threads = ParseInputThreads(text);
           },
           "To read and decode examples on; 0: as many as --threads leaves "
           "cores, all but one on a GPU, at least 1; auto: as many as help, "
           "measured meanwhile")
        ->check(Parses("NUMBER|auto", ParseInputThreads))
        ->default_str("0");
    sub->add_option_function<std::string>(
           "--input-memory",
           [&run = line_.run](const std::string& text) {
             run.input_bytes = ParseBytes(text);
           },
           "The most that examples may take which are ready before they are "
           "needed, such as 500M or 2G (default: a quarter of the memory that "
           "is free, shared with the job's other processes of this host)")
        ->check(Parses("BYTES", ParseBytes));
    sub->add_option("--device", given_.device,
                    "Such as /gpu:0; /gpu is the first, and of several "
                    "processes each has its own (default: /cpu:0)")
        ->check(Parses("DEVICE", [command](const std::string& text) {
          if (text == kGpuOfProcess) return;
          const DeviceName device = ParseDeviceName(text).ValueOrThrow();
          if (device.type == DeviceType::kNull &&
              command != CommandLine::Command::kBench) {
            throw Error(Code::kInvalidArgument,
                        text + " computes nothing: only bench can plan for it");
          }
        }));
    sub->add_flag("--soft-placement", line_.training.session.soft_placement,
                  "What --device has no kernel for runs on the CPU");
    sub->add_option(
           "--precision", given_.precision,
           "fp32, tf32 (on a CPU the same), fp16 or bf16: what the "
           "model computes in; its variables stay fp32 (default: fp32)")
        ->check(Parses("PRECISION", [](const std::string& text) {
          ParsePrecision(text).ValueOrThrow();
        }));
    if (command == CommandLine::Command::kEval ||
        command == CommandLine::Command::kPredict ||
        command == CommandLine::Command::kExport) {
      AddCheckpoint(sub);
    }
    sub->add_flag("--json", line_.json,
                  "Results as JSON, one object per line, on stdout");
    sub->add_option("--config", given_.config,
                    "JSON file of flags, {\"epochs\": 3}, or a run.json; those "
                    "given here come first");
    return sub;
  }

  // Examples that cannot be read end training and evaluation, unless some may.
  void AddSkipBad(CLI::App* sub) {
    sub->add_option_function<int64_t>(
           "--skip-bad",
           [&line = line_](int64_t most) {
             line.run.bad_examples = std::make_shared<BadExamples>(most);
           },
           "Pass over up to this many examples that cannot be read; they are "
           "listed at the end (default: 0)")
        ->check(Between(0, kLargest));
  }

  void AddCheckpoint(CLI::App* sub) {
    sub->add_option_function<std::string>(
           "--checkpoint",
           [&line = line_](const std::string& which) {
             line.training.checkpoint = ParseCheckpointChoice(which);
           },
           "Which one in --log-dir: newest, best or the number of a step "
           "(default: the best where --early-stopping ended the training, "
           "else the newest)")
        ->check(Parses("WHICH", ParseCheckpointChoice));
  }

  void AddRecompute(CLI::App* sub) {
    sub->add_option_function<std::string>(
           "--recompute",
           [&line = line_](const std::string& which) {
             line.training.recompute =
                 which == "norm" ? Recompute::kNorms : Recompute::kAll;
           },
           "Compute activations again when the gradient needs them: norm, what "
           "batch normalisations leave; all (also without a value), all but a "
           "few. Less memory, more time, the same result (to rounding; to the "
           "bit with --deterministic --no-fuse)")
        ->expected(0, 1)
        ->check(CLI::IsMember({"", "norm", "all"}));
  }

  void AddTrain() {
    CLI::App* sub =
        Add(CommandLine::Command::kTrain, "train",
            "Train, or go on training what --log-dir holds",
            "--log-dir runs/first --epochs 5\nCheckpoints are written to "
            "--log-dir after each evaluation, as "
            "--save-every says,\nand at the end: of all steps, or by "
            "Ctrl-C, SIGTERM, a closed terminal or an error that\nleaves the "
            "variables sound. The same command goes on from there.");
    sub->add_option("--epochs", given_.epochs,
                    "Passes over the data in all (default: the program's)")
        ->check(Between(0, kMostEpochs))
        ->excludes(sub->add_option("--steps", line_.run.steps,
                                   "Steps in all, in place of --epochs")
                       ->check(Between(1, kLargest)));
    sub->add_option("--optimizer", line_.optimizing.optimizer,
                    "sgd, momentum, nesterov, rmsprop, adagrad, adam, adamw, "
                    "lars or lamb, with a constant rate of its own unless one "
                    "is given (default: the program's)")
        ->check(Parses(
            "NAME", [](const std::string& text) { optimizers::ByName(text); }));
    sub->add_option("--learning-rate", line_.optimizing.learning_rate,
                    "A number or a schedule in epochs such as "
                    "5:0.1->0.4,15:0.4,20:0.04 (default: the optimizer's)")
        ->check(Parses("RATE",
                       [](const std::string& text) { Schedule(text, 1.0); }));
    sub->add_option_function<std::string>(
           "--learning-rate-for",
           [&line = line_](const std::string& text) {
             line.optimizing.rate_factors = ParseRateFactors(text);
           },
           "PATTERN=FACTOR, several with commas between them: the rate of "
           "these variables is so many times the others', such as conv*=0.1")
        ->check(Parses("PATTERN=FACTOR", ParseRateFactors));
    sub->add_option("--freeze", line_.training.freeze,
                    "Variables to leave as they are, such as 'conv*,layer1/*'; "
                    "batch normalisation with frozen running statistics "
                    "normalises by these");
    sub->add_option("--plateau", line_.optimizing.plateau,
                    "Lower the learning rate after more than this many "
                    "evaluations without a better one")
        ->check(Between(0, kLargest));
    sub->add_option("--plateau-factor", line_.optimizing.plateau_factor,
                    "What --plateau multiplies the rate by")
        ->check(Parses("FACTOR",
                       [](const std::string& text) {
                         ReduceOnPlateau(
                             {.factor = std::strtod(text.c_str(), nullptr)});
                       }))
        ->capture_default_str();
    sub->add_option("--clip", line_.optimizing.clip,
                    "Greatest norm of all gradients together; 0: any")
        ->check(Between(0, kLargest))
        ->capture_default_str();
    sub->add_option("--accumulate", line_.optimizing.accumulate,
                    "Batches whose mean gradient makes one update")
        ->check(Between(1, kLargest))
        ->capture_default_str();
    sub->add_option("--max-steps", line_.max_steps,
                    "Stop at this step and save; schedules still reckon with "
                    "--epochs")
        ->check(Between(0, kLargest));
    sub->add_option("--evaluate-every", line_.training.evaluate_every,
                    "Epochs between evaluations; 0: only at the end")
        ->check(Between(0, kMostEpochs))
        ->capture_default_str();
    sub->add_option("--early-stopping", line_.patience,
                    "Stop after this many evaluations without a better one")
        ->check(Between(1, kLargest));
    sub->add_option("--log-every", line_.training.log_every,
                    "Steps between reports")
        ->check(Between(1, kLargest))
        ->capture_default_str();
    sub->add_option_function<std::string>(
           "--save-every",
           [&line = line_](const std::string& text) {
             line.training.save_every = ParseSaveEvery(text);
           },
           "Steps or time (500, 10m, 2h) after which to save, beside each "
           "evaluation; 0: never (default: 10m)")
        ->check(Parses("STEPS|TIME", ParseSaveEvery));
    sub->add_option("--keep", line_.training.keep_checkpoints,
                    "Checkpoints to keep, beside the best")
        ->check(Between(1, kLargest))
        ->capture_default_str();
    AddSkipBad(sub);
    AddRecompute(sub);
    sub->add_option("--profile", given_.profile,
                    "steps=FIRST:LAST: write a Chrome trace of these steps")
        ->check(Parses("STEPS", ParseSteps));
    sub->add_option("--reset", line_.training.reset,
                    "Variables to leave at their first values, such as "
                    "'fc/*' for a head of another size; patterns, separated by "
                    "commas");
    AddTrials(sub);
    AddJobFlags(sub, line_, given_);
    sub->add_flag("--summary", line_.summary,
                  "Show the model's layers, parameters and multiply-adds");
    sub->add_flag("--verbose", line_.verbose,
                  "Say what each pass over the step's graph took and left");
    sub->add_flag("--restart", line_.training.restart,
                  "Set the training in --log-dir aside and begin anew");
  }

  // What is tried before a training.
  void AddTrials(CLI::App* sub) {
    sub->add_option("--overfit-batches", line_.overfit_batches,
                    "Train and evaluate on the first so many batches alone: a "
                    "model that is right learns them by heart; 0: all")
        ->check(Between(0, kLargest))
        ->capture_default_str();
    CLI::Option* fast = sub->add_flag(
        "--fast-dev-run", line_.fast_dev_run,
        "Try everything once, in a folder that goes afterwards: steps, "
        "evaluation, checkpoint, resume, prediction, export");
    sub->add_option_function<std::string>(
           "--find-rate",
           [&line = line_](const std::string& path) {
             line.find_rate = path.empty() ? "find_rate.html" : path;
           },
           "Raise the learning rate over 100 steps, say where the loss falls "
           "fastest and draw it (into find_rate.html, or the file that is "
           "named); nothing is saved")
        ->expected(0, 1)
        ->excludes(fast);
  }

  void AddEval() {
    CLI::App* sub =
        Add(CommandLine::Command::kEval, "eval", "Measure on the test data",
            "--log-dir runs/first --report report.html");
    CLI::Option* report = sub->add_option(
        "--report", line_.report,
        "HTML file to write: training curves, confusion matrix, "
        "figures of each class, the worst mistakes with pictures");
    sub->add_flag("--follow", line_.follow,
                  "Measure each checkpoint that a training saves meanwhile, "
                  "until it has ended")
        ->excludes("--checkpoint")
        ->excludes("--weights")
        ->excludes(report);
    AddSkipBad(sub);
    AddGroupFlags(sub, line_);
  }

  void AddPredict() {
    CLI::App* sub = Add(CommandLine::Command::kPredict, "predict",
                        "Print what the model makes of the test data; code 1 "
                        "where some cannot be read",
                        "--log-dir runs/first --count 10");
    sub->add_option("--from", line_.exported,
                    "Folder that export wrote, to run instead of a checkpoint");
    sub->add_flag("--csv", line_.csv,
                  "The most probable classes as lines of CSV: file, rank, "
                  "class, name, probability, error")
        ->excludes("--json");
    sub->add_option("--count", line_.count, "Examples; 0: all")
        ->check(Between(0, kLargest))
        ->capture_default_str();
    if (!spec_.files.empty()) {
      sub->add_option("files", line_.run.files,
                      spec_.files +
                          ", or folders of them (default: the "
                          "test data)");
    }
  }

  void AddBench() {
    CLI::App* sub =
        Add(CommandLine::Command::kBench, "bench",
            "Time training steps on one batch", "--batch-size 16 --inference");
    BenchmarkOptions& options = line_.benchmark;
    sub->add_flag("--inference", options.inference,
                  "Time predictions in place of training steps");
    sub->add_option("--steps", options.steps, "Steps to time")
        ->check(Between(1, kLargest))
        ->capture_default_str();
    sub->add_option("--warm-up", options.warm_up,
                    "Steps before these, not counted")
        ->check(Between(0, kLargest))
        ->capture_default_str();
    AddRecompute(sub);
    AddStepFlags(sub, line_, given_);
  }

  void AddExport() {
    Add(CommandLine::Command::kExport, "export",
        "Write the inference graph and its weights",
        "--log-dir runs/first --output model")
        ->add_option("--output", line_.output,
                     "Folder to write (default: <log-dir>/export)");
  }

  const TrainerSpec& spec_;
  CLI::App& app_;
  CommandLine& line_;
  GivenFlags& given_;
};

}  // namespace

void AddCommands(const TrainerSpec& spec, CLI::App& app, CommandLine& line,
                 GivenFlags& given) {
  // Which goes: the options' callbacks hold on to the line alone.
  Commands(spec, app, line, given).AddAll();
}

}  // namespace sluice
