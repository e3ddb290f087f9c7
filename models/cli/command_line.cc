#include "models/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/text/arguments.h"
#include "graph/near_misses.h"
#include "models/cli/command_flags.h"
#include "models/cli/console.h"
#include "models/cli/flag_values.h"
#include "models/cli/interrupt.h"
#include "models/cli/job_flags.h"
#include "models/cli/rate_flags.h"
#include "models/cli/run_record.h"
#include "models/train/run/batch_step.h"

namespace sluice {
namespace {

std::string OneLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

bool IsGiven(const std::string& name, const CommandFlags& flags) {
  const auto found = flags.values.find(name);
  return found != flags.values.end() && found->second.has_value();
}

// Whether a switch is on: not where it is given as --name=false.
bool IsSet(const std::string& name, const CommandFlags& flags) {
  bool on = false;
  return IsGiven(name, flags) &&
         CLI::detail::lexical_cast(*flags.values.at(name), on) && on;
}

class Reader {
 public:
  explicit Reader(const TrainerSpec& spec)
      : spec_(spec), app_("Trains and runs the model " + spec.name) {
    app_.name(spec.name);
    app_.require_subcommand(1);
    app_.set_version_flag("--version",
                          fmt::format("{} {}", spec.name, SLUICE_VERSION));
    for (const Flag& flag : spec.flags) line_.run.flags[flag.name] = flag.value;
    AddCommands(spec, app_, line_, given_);
  }

  // Reads the arguments; an exit code where that ends it.
  std::optional<int> Read(const std::vector<std::string>& arguments) {
    if (const std::string empty = EmptySwitch(app_, arguments);
        !empty.empty()) {
      return Usage(empty + " has no value");
    }
    try {
      std::vector<std::string> reversed =
          WithBracketsInPaths(app_, WithEmptyValues(arguments));
      std::reverse(reversed.begin(), reversed.end());
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
  // that were read, as further ones behind the command. --follow waits for that
  // training, or for a signal (AwaitTraining). Throws Error.
  std::vector<std::string> Further() {
    CommandFlags flags = Flags();
    FlagValues values;
    if (!given_.config.empty()) {
      values = FromConfig(given_.config, flags, spec_, &recorded_);
    }
    for (const auto& [name, value] : values) flags.Give(name, value);
    flags.tries = IsSet("fast-dev-run", flags) || IsGiven("find-rate", flags);
    if (const std::string model = flags.values["from"].value_or("");
        !model.empty()) {
      values.merge(FromExport(model, flags, spec_, &line_.notes));
    }
    const std::string log_dir = flags.values["log-dir"].value_or("");
    if (IsSet("follow", flags) && !log_dir.empty()) AwaitTraining(log_dir);
    const bool restart = IsSet("restart", flags);
    if (!log_dir.empty() && !restart &&
        line_.command != CommandLine::Command::kBench) {
      FlagValues of_training = FromRecord(log_dir, flags, spec_, &line_.notes);
      for (const auto& [name, value] : of_training) recorded_.insert(name);
      values.merge(of_training);
    }
    std::vector<std::string> further;
    for (const auto& [name, value] : values) {
      const CLI::Option* option =
          app_.get_subcommands()[0]->get_option("--" + name);
      // "true" stands for a flag without a value.
      const bool bare = value == "true" && option->get_expected_min() == 0;
      further.push_back(bare ? "--" + name
                             : fmt::format("--{}={}", name, value));
    }
    return further;
  }

  // The rest, once all arguments were read. `first` has read those that were
  // given, and may be this one.
  ParsedCommandLine Finish(const Reader& first) {
    line_.notes = first.line_.notes;
    recorded_ = first.recorded_;
    line_.record = Record();
    try {
      if (spec_.defaults) spec_.defaults(line_.run);
    } catch (const Error& error) {
      // Data that are not there, or that a server refuses, are no wrong flag.
      for (const Code code :
           {Code::kNotFound, Code::kUnavailable, Code::kFailedPrecondition}) {
        if (error.code() == code) throw;
      }
      return {{}, Usage(error.what())};
    }
    if (given_.epochs) line_.run.epochs = *given_.epochs;
    if (given_.batch_size) line_.run.batch_size = *given_.batch_size;
    line_.run.batch_size_given =
        given_.batch_size || line_.job.batch_size_per_worker > 0;
    if (!given_.profile.empty()) line_.profile = ParseSteps(given_.profile);
    line_.gpu_of_process = given_.device == kGpuOfProcess;
    if (line_.gpu_of_process) {
      line_.training.session.devices = {"/gpu:0"};
    } else if (!given_.device.empty()) {
      line_.training.session.devices = {given_.device};
    }
    if (!given_.precision.empty()) {
      line_.training.session.precision =
          ParsePrecision(given_.precision).ValueOrThrow();
    }
    if (!given_.compress.empty() && given_.compress != "none") {
      line_.training.gradients_between =
          *HalfTypeOf(ParsePrecision(given_.compress).ValueOrThrow());
    }
    line_.job.deterministic = line_.training.session.deterministic;
    if (const std::string wrong = WrongJobFlags(line_, given_);
        !wrong.empty()) {
      return {{}, Usage(wrong)};
    }
    if (MirroredDevices& mirrored = line_.training.mirrored; mirrored.any()) {
      line_.training.session.devices = {mirrored.devices[0]};
      mirrored.variables_on_each = given_.variables.empty()
                                       ? CopiesBatches(line_.training.session)
                                       : given_.variables == "gpu";
    }
    if (line_.job.strategy == "ps" && given_.variables == "gpu") {
      line_.job.variables = DeviceType::kCuda;
    }
    line_.training.session.seed = line_.run.seed;
    if (line_.command == CommandLine::Command::kPredict) {
      line_.run.bad_examples = std::make_shared<BadExamples>(INT64_MAX);
    }
    if (const std::string lacking = Lacking(); !lacking.empty()) {
      return {{}, Usage(lacking)};
    }
    if (OfTrained() && line_.training.log_dir.empty() &&
        line_.training.weights.empty() && line_.exported.empty()) {
      return {{},
              Usage("no trained model: give --log-dir, the folder it was "
                    "trained in, or --weights FILE")};
    }
    if (const std::string wrong =
            WrongRateFlags(spec_, Sources(), &line_.optimizing);
        !wrong.empty()) {
      return {{}, Usage(wrong)};
    }
    NoteUnevaluated();
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
  // Which flag is set without one that it needs; empty: none. Not CLI11's
  // needs(), which looks at what was given before --config and the record of a
  // training have been read.
  std::string Lacking() const {
    if (line_.follow && line_.training.log_dir.empty()) {
      return "--follow needs --log-dir";
    }
    if (!line_.training.reset.empty() && line_.training.weights.empty()) {
      return "--reset needs --weights";
    }
    if (IsGiven("plateau-factor", Flags()) && !line_.optimizing.plateau) {
      return "--plateau-factor needs --plateau";
    }
    return {};
  }

  int Usage(const std::string& message) {
    console::NoteError(fmt::format("{}: {}; {} --help says more", spec_.name,
                                   message, spec_.name));
    return 2;
  }

  // No errors: a training that was begun with them goes on.
  void NoteUnevaluated() {
    if (line_.training.evaluate_every > 0) return;
    for (const auto& [given, flag] :
         {std::pair(line_.patience.has_value(), "--early-stopping"),
          {line_.optimizing.plateau.has_value(), "--plateau"}}) {
      if (!given) continue;
      line_.notes.push_back(
          fmt::format("{} goes by evaluations, of which --evaluate-every 0 has "
                      "none before the end",
                      flag));
    }
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

  // Whether the command that was read is of what was trained.
  bool OfTrained() const {
    return line_.command != CommandLine::Command::kTrain &&
           line_.command != CommandLine::Command::kBench;
  }

  // Those of the command that was read.
  CommandFlags Flags() const {
    CommandFlags flags;
    flags.train = line_.command == CommandLine::Command::kTrain;
    flags.trained = OfTrained();
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

  // Of the flags that are set.
  std::map<std::string, FlagSource> Sources() const {
    std::map<std::string, FlagSource> sources;
    for (const auto& [name, value] : Flags().values) {
      if (value) sources[name] = FlagSource::kGiven;
    }
    for (const std::string& name : recorded_) {
      sources[name] = FlagSource::kRecorded;
    }
    for (const Flag& flag : spec_.flags) {
      if (recorded_.contains(flag.name) &&
          line_.run.flag(flag.name) == flag.value) {
        sources.erase(flag.name);
      }
    }
    return sources;
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

  const TrainerSpec& spec_;
  CLI::App app_;
  CommandLine line_;
  GivenFlags given_;
  std::set<std::string> recorded_;  // of what is set, by records
};

}  // namespace

ParsedCommandLine ParseCommandLine(int argc, const char* const* argv,
                                   const TrainerSpec& spec) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  Reader reader(spec);
  if (const auto code = reader.Read(arguments)) return {{}, code};
  const std::vector<std::string> further = reader.Further();
  if (const int signal = InterruptSignal()) return {{}, 128 + signal};
  if (further.empty()) return reader.Finish(reader);
  // Behind the command: those behind "--" are no flags.
  arguments.insert(arguments.begin() + 1, further.begin(), further.end());
  Reader completed(spec);
  if (const auto code = completed.Read(arguments)) return {{}, code};
  return completed.Finish(reader);
}

}  // namespace sluice
