#include "models/cli/commands.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "engine/text/json.h"
#include "engine/threads.h"
#include "models/cli/console.h"
#include "models/cli/interrupt.h"
#include "models/cli/results.h"
#include "models/train/run/memory_check.h"

namespace sluice::commands {
namespace {

using Launch = StepInfo::Launch;

// Of some launches, all of which a step makes.
struct Sum {
  int64_t launches = 0, bytes = 0, multiply_adds = 0;
  void Add(const Launch& launch) {
    ++launches;
    bytes += launch.bytes;
    multiply_adds += launch.multiply_adds;
  }
  void WriteTo(Json* json) const {
    (*json)["launches"] = launches;
    (*json)["bytes_moved"] = bytes;
    (*json)["multiply_adds"] = multiply_adds;
  }
};

// What a GPU's kernels are counted to do in a step: all of them, and by kind.
void AddLaunches(const std::vector<Launch>& launches, Json* json) {
  Sum all;
  std::map<std::string, Sum> by_kind;
  for (const Launch& launch : launches) {
    all.Add(launch);
    by_kind[launch.kind].Add(launch);
  }
  all.WriteTo(json);
  Json& kinds = (*json)["kinds"];
  for (const auto& [kind, sum] : by_kind) sum.WriteTo(&kinds[kind]);
}

// An object for each different launch of a plan.
void PrintLaunches(const std::vector<Launch>& launches) {
  std::map<std::tuple<std::string, std::string, int64_t, int64_t>, int> times;
  for (const Launch& l : launches) {
    ++times[{l.kind, l.kernel, l.bytes, l.multiply_adds}];
  }
  for (const auto& [launch, count] : times) {
    const auto& [kind, kernel, bytes, multiply_adds] = launch;
    console::Print(Json{{"event", "launch"},
                        {"kind", kind},
                        {"kernel", kernel},
                        {"times", count},
                        {"bytes", bytes},
                        {"multiply_adds", multiply_adds}}
                       .Text());
  }
}

}  // namespace

int Bench(const TrainerSpec& spec, const CommandLine& line) {
  const BenchmarkResult result =
      Benchmark(spec, line.run, line.training, line.benchmark);
  if (!result.interrupted.empty()) {
    console::Note("interrupted before all steps were run");
    return 128 + InterruptNamed(result.interrupted);
  }
  if (!Leads(line)) return 0;
  const double each = result.examples_per_second / result.workers;
  const std::string model = ModelName(spec, line.run);
  const char* mode = line.benchmark.inference ? "inference" : "training";
  if (line.json) {
    const std::vector<Launch>& launches = result.info.launches;
    if (IsPlanOnly(line.training.session)) PrintLaunches(launches);
    Json json = {{"event", "bench"},
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
                 {"peak_bytes", result.peak_bytes},
                 {"providers", result.info.ProviderCounts()},
                 {"refused", result.info.Refusals()},
                 {"why_not_captured", result.info.why_not_captured}};
    if (result.workers > 1) {
      json["workers"] = result.workers;
      json["examples_per_second_per_worker"] = each;
      json["exchange_wait_by_rank"] = result.exchange_waits;
    }
    if (!launches.empty()) AddLaunches(launches, &json);
    console::Print(json.Text());
    return 0;
  }
  console::Print(fmt::format(
      "{} {}, batch {}, {}{} threads: {:.2f} examples/s{}; a step takes "
      "{:.1f} ms (median {:.1f}, 90 % within {:.1f}; {} steps); memory: {} at "
      "most, arena {}, variables {}",
      model, mode, result.examples,
      result.workers > 1 ? fmt::format("{} processes of ", result.workers) : "",
      ComputeThreads().threads(), result.examples_per_second,
      result.workers > 1 ? fmt::format(" ({:.2f} per worker)", each) : "",
      1e3 * result.mean, 1e3 * result.median, 1e3 * result.p90,
      line.benchmark.steps, FormatBytes(result.peak_bytes),
      FormatBytes(result.info.arena_bytes),
      FormatBytes(result.variable_bytes)));
  return 0;
}

}  // namespace sluice::commands
