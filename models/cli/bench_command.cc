#include "engine/json.h"
#include "models/cli/commands.h"

#include <fmt/format.h>

#include "engine/threads.h"
#include "models/cli/console.h"
#include "models/cli/results.h"
#include "models/train/memory_check.h"

namespace sluice::commands {
namespace {}  // namespace

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
                        {"peak_bytes", result.peak_bytes},
                        {"providers", result.info.ProviderCounts()},
                        {"refused", result.info.Refusals()}}
                       .Text());
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

}  // namespace sluice::commands
