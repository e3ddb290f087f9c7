#include "models/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "engine/device.h"
#include "graph/near_misses.h"
#include "models/cli/flag_values.h"
#include "models/cli/run_record.h"

namespace sluice {
namespace {

// Runs a parser of ours as a CLI11 check: its Error becomes a usage error.
template <typename Parse>
CLI::Validator Parses(const char* type, Parse parse) {
  return {[parse](std::string& text) -> std::string {
            try {
              parse(text);
              return {};
            } catch (const Error& error) {
              return error.what();
            }
          },
          type};
}

// A number in [least, most].
CLI::Validator Between(double least, double most) {
  return Parses("NUMBER", [=](const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(value >= least && value <= most)) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("wanted a number from {} to {}, got '{}'", least,
                              most, text));
    }
  });
}
// Whole numbers up to 2^53, which a double tells apart.
constexpr double kLargest = 9007199254740992;
constexpr double kMostEpochs = 1e6;

std::string OneLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// What a flag was set to, over the spec's default.
struct Given {
  std::optional<double> epochs;
  std::optional<int64_t> batch_size;
  std::string profile, device, precision, config;
};

class Reader {
 public:
  explicit Reader(const TrainerSpec& spec)
      : spec_(spec), app_("Trains and runs the model " + spec.name) {
    app_.name(spec.name);
    app_.require_subcommand(1);
    app_.set_version_flag("--version",
                          fmt::format("{} {}", spec.name, SLUICE_VERSION));
    for (const Flag& flag : spec.flags) line_.run.flags[flag.name] = flag.value;
    AddTrain();
    AddEval();
    AddPredict();
    AddExport();
    AddBench();
  }

  // Reads the arguments; an exit code where that ends it.
  std::optional<int> Read(const std::vector<std::string>& arguments) {
    try {
      std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
      app_.parse(std::move(reversed));  // CLI11 takes the last one first
      return std::nullopt;
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) {  // --help, --version
        return app_.exit(error);
      }
      if (app_.get_subcommands().empty() && !arguments.empty() &&
          arguments[0][0] != '-') {
        return Usage(fmt::format(
            "unknown command '{}', there are train, eval, predict, export and "
            "bench{}",
            arguments[0],
            NearMisses(arguments[0],
                       {"train", "eval", "predict", "export", "bench"})));
      }
      return Usage(OneLine(error.what()) + Suggestion(arguments));
    }
  }

  // What --config and the record of the training in --log-dir add to arguments
  // that were read, as further ones. Throws Error.
  std::vector<std::string> Further() {
    CommandFlags flags = Flags();
    FlagValues values;
    if (!given_.config.empty()) values = FromConfig(given_.config, flags);
    for (const auto& [name, value] : values) flags.Give(name, value);
    const std::string log_dir = flags.values["log-dir"].value_or("");
    const bool restart = flags.values["restart"].has_value();
    if (!log_dir.empty() && !restart &&
        line_.command != CommandLine::Command::kBench) {
      values.merge(FromRecord(log_dir, flags, spec_, &line_.notes));
    }
    std::vector<std::string> further;
    for (const auto& [name, value] : values) {
      further.push_back(fmt::format("--{}={}", name, value));
    }
    return further;
  }

  const std::vector<std::string>& notes() const { return line_.notes; }

  // The rest, once all arguments were read; `notes` are the line's.
  ParsedCommandLine Finish(std::vector<std::string> notes) {
    line_.notes = std::move(notes);
    line_.record = Record();
    try {
      if (spec_.defaults) spec_.defaults(line_.run);
    } catch (const Error& error) {
      return {{}, Usage(error.what())};
    }
    if (given_.epochs) line_.run.epochs = *given_.epochs;
    if (given_.batch_size) line_.run.batch_size = *given_.batch_size;
    if (!given_.profile.empty()) line_.profile = ParseSteps(given_.profile);
    if (!given_.device.empty())
      line_.training.session.devices = {given_.device};
    if (!given_.precision.empty()) {
      line_.training.session.precision =
          ParsePrecision(given_.precision).ValueOrThrow();
    }
    line_.training.session.seed = line_.run.seed;
    if (line_.command == CommandLine::Command::kPredict) {
      line_.run.bad_examples = std::make_shared<BadExamples>(INT64_MAX);
    }
    const bool trained = line_.command != CommandLine::Command::kTrain &&
                         line_.command != CommandLine::Command::kBench;
    if (trained && line_.training.log_dir.empty() &&
        line_.training.weights.empty() && line_.exported.empty()) {
      return {{},
              Usage("no trained model: give --log-dir, the folder it was "
                    "trained in, or --weights FILE")};
    }
    if (!line_.training.reset.empty() && line_.training.weights.empty()) {
      return {{}, Usage("--reset needs --weights")};
    }
    if (line_.output.empty()) {
      if (line_.command == CommandLine::Command::kExport &&
          line_.training.log_dir.empty()) {
        return {{}, Usage("give --output, the folder to write")};
      }
      line_.output = JoinPath(line_.training.log_dir, "export");
    }
    return {std::move(line_), std::nullopt};
  }

 private:
  int Usage(const std::string& message) {
    fmt::print(stderr, "{}: {}; {} --help says more\n", spec_.name, message,
               spec_.name);
    return 2;
  }

  // For the first flag that the command does not have.
  std::string Suggestion(const std::vector<std::string>& arguments) const {
    const auto commands = app_.get_subcommands();
    if (commands.empty()) return "";
    std::vector<std::string> names;
    for (const CLI::Option* option : commands[0]->get_options()) {
      names.push_back(option->get_name());
    }
    for (const std::string& argument : arguments) {
      const std::string name = argument.substr(0, argument.find('='));
      if (name.starts_with("--") &&
          std::find(names.begin(), names.end(), name) == names.end()) {
        return NearMisses(name, {names.begin(), names.end()});
      }
    }
    return "";
  }

  // Those of the command that was read.
  CommandFlags Flags() const {
    CommandFlags flags;
    flags.train = line_.command == CommandLine::Command::kTrain;
    for (const CLI::App* command :
         app_.get_subcommands([](const CLI::App*) { return true; })) {
      for (const CLI::Option* option : command->get_options()) {
        const std::string name = option->get_single_name();
        flags.known.insert(name);
        if (command != app_.get_subcommands()[0]) continue;
        flags.values[name] = std::nullopt;
        for (const CLI::Option* other : option->get_excludes()) {
          flags.excludes.emplace(name, other->get_single_name());
        }
      }
    }
    for (const CLI::Option* option : app_.get_subcommands()[0]->get_options()) {
      if (option->count() > 0) {
        flags.Give(option->get_single_name(), option->results().back());
      }
    }
    return flags;
  }

  // Of a training with these arguments: each flag that was given, and the
  // program's own whether given or not.
  RunRecord Record() const {
    RunRecord record;
    record.program = spec_.name;
    record.version = SLUICE_VERSION;
    for (const auto& [name, value] : Flags().values) {
      if (value && IsRecorded(name, spec_, /*train=*/true)) {
        record.flags[name] = *value;
      }
    }
    for (const auto& [name, value] : line_.run.flags) {
      if (!value.empty()) record.flags[name] = value;
    }
    record.flags = WithAbsolutePaths(std::move(record.flags), spec_);
    return record;
  }

  // `example` is what may follow the command's name.
  CLI::App* Add(CommandLine::Command command, const char* name,
                const char* help, const char* example) {
    CLI::App* sub = app_.add_subcommand(name, help);
    sub->footer(fmt::format("\nExample: {} {} {}", spec_.name, name, example));
    sub->callback([this, command] { line_.command = command; });
    sub->add_option("--data-dir", line_.run.data_dir,
                    "Folder of the data (default: synthetic data, where the "
                    "program has some)");
    sub->add_option("--log-dir", line_.training.log_dir,
                    "Folder of checkpoints and TensorBoard events (default: "
                    "nothing is saved)");
    for (const Flag& flag : spec_.flags) {
      std::string& value = line_.run.flags[flag.name];
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
    sub->add_option("--threads", line_.threads, "0: one per core")
        ->check(Between(0, 1024))
        ->capture_default_str();
    sub->add_option("--device", given_.device,
                    "Such as /gpu:0 (default: /cpu:0)")
        ->check(Parses("DEVICE", [command](const std::string& text) {
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
           [this](int64_t most) {
             line_.run.bad_examples = std::make_shared<BadExamples>(most);
           },
           "Pass over up to this many examples that cannot be read; they are "
           "listed at the end (default: 0)")
        ->check(Between(0, kLargest));
  }

  void AddCheckpoint(CLI::App* sub) {
    sub->add_option_function<std::string>(
           "--checkpoint",
           [this](const std::string& which) {
             line_.training.checkpoint = ParseCheckpointChoice(which);
           },
           "Which one in --log-dir: newest, best or the number of a step "
           "(default: the best where --early-stopping ended the training, "
           "else the newest)")
        ->check(Parses("WHICH", ParseCheckpointChoice));
  }

  void AddRecompute(CLI::App* sub) {
    sub->add_option_function<std::string>(
           "--recompute",
           [this](const std::string& which) {
             line_.training.recompute =
                 which == "norm" ? Recompute::kNorms : Recompute::kAll;
           },
           "Compute activations again when the gradient needs them: norm, what "
           "batch normalisations leave; all (also without a value), all but a "
           "few. Less memory, more time, the same result (all in half "
           "precision: to rounding)")
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
                    "sgd, momentum, nesterov, rmsprop, adagrad, adam or adamw "
                    "(default: the program's)")
        ->check(Parses(
            "NAME", [](const std::string& text) { optimizers::ByName(text); }));
    sub->add_option("--learning-rate", line_.optimizing.learning_rate,
                    "A number or a schedule in epochs such as "
                    "5:0.1->0.4,15:0.4,20:0.04 (default: the optimizer's)")
        ->check(Parses("RATE",
                       [](const std::string& text) { Schedule(text, 1.0); }));
    sub->add_option_function<std::string>(
           "--learning-rate-for",
           [this](const std::string& text) {
             line_.optimizing.rate_factors = ParseRateFactors(text);
           },
           "PATTERN=FACTOR, several with commas between them: the rate of "
           "these variables is so many times the others', such as conv*=0.1")
        ->check(Parses("PATTERN=FACTOR", ParseRateFactors));
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
           [this](const std::string& text) {
             line_.training.save_every = ParseSaveEvery(text);
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
    sub->add_flag("--summary", line_.summary,
                  "Show the model's layers, parameters and multiply-adds");
    sub->add_flag("--verbose", line_.verbose,
                  "Say what each pass over the step's graph took and left");
    sub->add_flag("--restart", line_.training.restart,
                  "Set the training in --log-dir aside and begin anew");
  }

  void AddEval() {
    AddSkipBad(Add(CommandLine::Command::kEval, "eval",
                   "Measure on the test data", "--log-dir runs/first --json"));
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
  }

  void AddExport() {
    Add(CommandLine::Command::kExport, "export",
        "Write the inference graph and its weights",
        "--log-dir runs/first --output model")
        ->add_option("--output", line_.output,
                     "Folder to write (default: <log-dir>/export)");
  }

  const TrainerSpec& spec_;
  CLI::App app_;
  CommandLine line_;
  Given given_;
};

}  // namespace

ParsedCommandLine ParseCommandLine(int argc, const char* const* argv,
                                   const TrainerSpec& spec) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  Reader reader(spec);
  if (const auto code = reader.Read(arguments)) return {{}, code};
  const std::vector<std::string> further = reader.Further();
  if (further.empty()) return reader.Finish(reader.notes());
  arguments.insert(arguments.end(), further.begin(), further.end());
  Reader completed(spec);
  if (const auto code = completed.Read(arguments)) return {{}, code};
  return completed.Finish(reader.notes());
}

}  // namespace sluice
