// The tool: prints and rewrites saved graphs, lists what checkpoints and event
// files hold, compares checkpoints and trainings, lists the ops, looks at the
// machine, serves a cluster's masters, and makes and checks files of training
// data.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "apps/say_line.h"
#include "apps/sluice/commands.h"
#include "engine/note.h"
#include "engine/parse_number.h"
#include "engine/standard_streams.h"
#include "engine/status.h"
#include "engine/text/arguments.h"
#include "graph/text/dot.h"
#include "io/remote/register.h"

namespace sluice::tool {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;
// As cmp(1).
constexpr int kDifferent = 1;  // without a message
constexpr int kTrouble = 2;

struct Options {
  GraphOptions graph;
  std::string file, other_file, op;
  std::vector<std::string> log_dirs;
  std::string report = "report.html";
  bool quick = false;
  bool json = false;
  bool cluster = false;
  bool markdown = false;
  int exit_code = 0;  // of the command that ran
  int failure = kFailure;
};

void AddGraph(CLI::App& app, Options& options) {
  CLI::App* graph = app.add_subcommand("graph", "Prints a saved graph");
  graph->add_option("file", options.graph.path, "Text form of a graph")
      ->required();
  CLI::Option* pass = graph->add_option("--pass", options.graph.passes,
                                        "Pass to run first, several in order");
  pass->check(CLI::IsMember(PassNames()))->allow_extra_args(false);
  graph
      ->add_option("--device", options.graph.devices,
                   "Device to place on, several; the first is the default")
      ->allow_extra_args(false);
  graph
      ->add_option("--feed", options.graph.feeds,
                   "Shape of a placeholder, such as image=32,784")
      ->allow_extra_args(false);
  graph
      ->add_option("--keep", options.graph.keep,
                   "Node that pruning keeps, several")
      ->allow_extra_args(false);
  CLI::Option* dot = graph->add_flag(
      fmt::format("--dot{{{}}}", kOverviewBoxes), options.graph.dot,
      fmt::format("Print Graphviz: layers, their gradients and the optimizer "
                  "in about {} boxes; --dot=N in about N, --dot=full every "
                  "node",
                  kOverviewBoxes));
  dot->check(CLI::Validator(
      [](std::string& text) -> std::string {
        if (ParseWhole<int>(text).value_or(0) >= 1 || text == "full") return {};
        return fmt::format("--dot: wanted full or a number of boxes, got '{}'",
                           text);
      },
      "full|N"));
  CLI::Option* memory =
      graph->add_flag("--memory", options.graph.memory,
                      "Prepare it as a step and print what it keeps in memory");
  memory->excludes(dot)->excludes(pass);
  graph
      ->add_option("--precision", options.graph.precision,
                   "What that step computes in: fp32, tf32, fp16 or bf16")
      ->needs(memory);
  graph->add_flag("--json", options.json, "One object per node")->excludes(dot);
  graph->callback([&options] {
    options.graph.json = options.json;
    if (options.graph.devices.empty()) options.graph.devices = {"/cpu:0"};
    ShowGraph(options.graph);
  });
}

constexpr char kInspectHelp[] =
    "A checkpoint's checksum is verified. Of a damaged one the tensors are\n"
    "listed as far as the header can be read, and the exit code is 1.\n"
    "Of two checkpoints the differences are listed: the exit code is 0 if\n"
    "there are none, 1 if there are, 2 if one of them cannot be read. NaN\n"
    "equals NaN, and 0 equals -0.";

void AddInspect(CLI::App& app, Options& options) {
  CLI::App* inspect = app.add_subcommand(
      "inspect",
      "Lists the tensors of a checkpoint or the records of events, or compares "
      "two checkpoints");
  inspect->add_option("file", options.file, "Safetensors or event file")
      ->required();
  const CLI::Option* other = inspect->add_option(
      "other", options.other_file, "Safetensors file to compare it with");
  inspect->add_flag("--quick", options.quick,
                    "Read headers alone: no checksum, no values");
  inspect->add_flag("--json", options.json, "One object per line");
  inspect->footer(kInspectHelp);
  inspect->callback([&options, other] {
    if (other->empty()) {
      Inspect(options.file, options.quick, options.json);
      return;
    }
    options.failure = kTrouble;
    const bool equal =
        Compare(options.file, options.other_file, options.quick, options.json);
    if (!equal) options.exit_code = kDifferent;
  });
}

void AddReport(CLI::App& app, Options& options) {
  CLI::App* report = app.add_subcommand(
      "report", "Writes a page with the curves of one or more trainings");
  report
      ->add_option("log_dir", options.log_dirs,
                   "Folder of a training, several: its --log-dir")
      ->required();
  report->add_option("--output", options.report, "The page, HTML")
      ->capture_default_str();
  report->callback(
      [&options] { WriteReport(options.log_dirs, options.report); });
}

constexpr char kSpeedupHelp[] =
    "A run's speed is the median of the examples/s that its folder has of\n"
    "steps after the 100th since it has as many processes and devices, a\n"
    "row's the median of its runs. The speed-up is that over the row of the\n"
    "fewest devices, times their number.";

void AddSpeedup(CLI::App& app, Options& options) {
  CLI::App* speedup = app.add_subcommand(
      "speedup", "Compares the speeds of trainings by several processes");
  speedup
      ->add_option("log_dir", options.log_dirs,
                   "Folder of a training, several: its --log-dir")
      ->required();
  speedup->add_flag("--json", options.json, "One object per row");
  speedup->footer(kSpeedupHelp);
  speedup->callback([&options] { Speedup(options.log_dirs, options.json); });
}

void AddOps(CLI::App& app, Options& options) {
  CLI::App* ops = app.add_subcommand("ops", "Lists every op, or one in detail");
  CLI::Option* name = ops->add_option("name", options.op, "Such as MatMul");
  CLI::Option* json =
      ops->add_flag("--json", options.json, "One object per op");
  ops->add_flag("--markdown", options.markdown, "The page docs/ops.md")
      ->excludes(name)
      ->excludes(json);
  ops->callback([&] {
    if (options.markdown) {
      fmt::print("{}", OpsPage());
    } else {
      ListOps(options.op, options.json);
    }
  });
}

void AddDoctor(CLI::App& app, Options& options) {
  CLI::App* doctor =
      app.add_subcommand("doctor", "Says what this machine and build have");
  doctor->add_flag("--json", options.json, "One object, or several");
  doctor->add_flag("--cluster", options.cluster,
                   "Of the processes that sluicerun has started, or another "
                   "launcher: who they are and how fast they exchange");
  doctor->callback([&] {
    options.cluster ? DoctorOfCluster(options.json) : Doctor(options.json);
  });
}

std::string OneLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

int Usage(const std::string& message) {
  SayLine(fmt::format("sluice: {}; sluice --help says more", OneLine(message)));
  return kUsage;
}

// What is wrong with the word in the place of a command of `data`, of which
// CLI11 would not say what it is and which there are; empty: nothing.
std::string WrongDataCommand(const CLI::App& data, int argc, char** argv) {
  if (argc < 2 || argv[1] != data.get_name()) return {};
  const std::string word = argc > 2 ? argv[2] : "";
  // One before a command is none of its own, as CLI11 says.
  const bool flag = data.get_option_no_throw(word) != nullptr;  // --help
  if (word.starts_with('-') && (flag || argc > 3)) return {};
  if (NestedCommand(data, word) != nullptr) return {};
  return fmt::format(
      "data: wanted make, copy, show, check, stats or bench, got {}",
      argc > 2 ? "'" + word + "'" : "nothing");
}

int Run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Looks at Sluice's graphs, checkpoints, events, trainings, ops and data",
      "sluice");
  app.require_subcommand(1);
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  AddGraph(app, options);
  AddInspect(app, options);
  AddReport(app, options);
  AddSpeedup(app, options);
  AddOps(app, options);
  AddDoctor(app, options);
  AddWorker(app);
  AddData(app, options.exit_code);
  const std::vector<CLI::App*> commands =
      app.get_subcommands([](CLI::App*) { return true; });
  if (argc > 1 && argv[1][0] != '-' &&
      std::none_of(commands.begin(), commands.end(), [&](const CLI::App* c) {
        return c->get_name() == argv[1];
      })) {
    return Usage(fmt::format(
        "unknown command '{}'; there are graph, inspect, report, speedup, ops, "
        "doctor, worker, data",
        argv[1]));
  }
  if (const std::string wrong =
          WrongDataCommand(*app.get_subcommand("data"), argc, argv);
      !wrong.empty()) {
    return Usage(wrong);
  }
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  if (const std::string empty = EmptySwitch(app, arguments); !empty.empty()) {
    return Usage(empty + " has no value");
  }
  try {
    arguments = WithBracketsInPaths(app, WithEmptyValues(arguments));
    std::reverse(arguments.begin(), arguments.end());
    app.parse(std::move(arguments));  // CLI11 takes the last one first
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw Error(Code::kUnavailable,
                  "the results cannot be printed: " +
                      std::generic_category().message(errno));
    }
    return options.exit_code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return Usage(error.what());
  } catch (const std::exception& error) {
    std::fflush(stdout);
    SayLine("sluice: " + OneLine(error.what()));
    return options.failure;
  }
}

int Main(int argc, char** argv) {
  OpenStandardStreams();
  try {
    SetNotes(SayLine);
    RegisterRemoteFiles();
    return Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sluice: %s\n", error.what());
    return kFailure;
  }
}

}  // namespace
}  // namespace sluice::tool

int main(int argc, char** argv) {
  return sluice::tool::Main(argc, argv);
}
