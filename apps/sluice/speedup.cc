#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "apps/sluice/commands.h"
#include "apps/sluice/json.h"
#include "apps/sluice/median.h"
#include "apps/sluice/without_repeats.h"
#include "engine/status.h"
#include "engine/text/json_object.h"
#include "io/files/file.h"
#include "models/train/hooks/scalar_log.h"

namespace sluice::tool {
namespace {

// Steps in which memory is taken, caches fill and clocks settle.
constexpr int64_t kWarmUp = 100;

struct LoggedRun {
  int64_t nodes = 1, workers = 1, devices = 1;
  int64_t since = 0;  // the step after which it is by these
  double rate = 0;    // examples/s
};

// A row's rate is of all steps since the row before.
double RateOf(const std::string& log_dir, int64_t since) {
  const int64_t warm = since + kWarmUp;
  std::vector<double> rates;
  int64_t before = 0;  // the step of that
  for (const ScalarRow& row : ReadScalars(log_dir).ValueOrThrow()) {
    if (row.set != "train" || row.name != "examples_per_second") continue;
    if (std::exchange(before, row.step) >= warm) rates.push_back(row.value);
  }
  if (rates.empty()) {
    throw Error(
        Code::kFailedPrecondition,
        fmt::format("'{}' has no examples/s of a step after the {}th that "
                    "is not of earlier ones, too (--log-every){}",
                    log_dir, warm,
                    since == 0 ? ""
                               : fmt::format("; the first {} steps were "
                                             "another number of processes'",
                                             since)));
  }
  return Median(std::move(rates));
}

// What the training's folder says of it (models/cli/run_record.h).
LoggedRun ReadRun(const std::string& log_dir) {
  const std::string path = JoinPath(log_dir, "run.json");
  const std::string text = FileSystem::Default().Read(path).ValueOrThrow();
  LoggedRun run;
  const auto read = [&]() -> Status {
    SLUICE_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::Parse(text));
    SLUICE_ASSIGN_OR_RETURN(run.nodes, json.Int("nodes"));
    SLUICE_ASSIGN_OR_RETURN(run.workers, json.Int("workers"));
    run.devices = run.workers;
    if (json.Has("devices")) {
      SLUICE_ASSIGN_OR_RETURN(run.devices, json.Int("devices"));
    }
    if (json.Has("since")) {
      SLUICE_ASSIGN_OR_RETURN(run.since, json.Int("since"));
    }
    return {};
  };
  if (const Status status = read(); !status.ok()) {
    throw Error(Code::kDataLoss,
                fmt::format("'{}': {}", path, status.message()));
  }
  if (run.nodes < 1 || run.workers < run.nodes) {
    throw Error(Code::kDataLoss, fmt::format("'{}' says {} workers on {} nodes",
                                             path, run.workers, run.nodes));
  }
  if (run.devices < run.workers || run.since < 0) {
    throw Error(Code::kDataLoss,
                fmt::format("'{}' says {} devices of {} workers since step {}",
                            path, run.devices, run.workers, run.since));
  }
  run.rate = RateOf(log_dir, run.since);
  return run;
}

}  // namespace

void Speedup(const std::vector<std::string>& log_dirs, bool json) {
  // By devices first, so that the first row is the one of the fewest.
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::vector<double>> rows;
  bool mirrored = false;  // of some, one process has several devices
  for (const std::string& log_dir : WithoutRepeats(log_dirs)) {
    const LoggedRun run = ReadRun(log_dir);
    rows[{run.devices, run.workers, run.nodes}].push_back(run.rate);
    mirrored |= run.devices > run.workers;
  }
  const auto& [fewest, first] = *rows.begin();
  const double of_one =
      Median(first) / static_cast<double>(std::get<0>(fewest));
  if (!json) {
    fmt::print("{:>5} {:>7} {}{:>4} {:>12} {:>8} {:>12}\n", "nodes", "workers",
               mirrored ? "devices " : "", "runs", "examples/s", "speed-up",
               "per node");
  }
  for (const auto& [where, rates] : rows) {
    const auto [devices, workers, nodes] = where;
    const double rate = Median(rates);
    const double speedup = rate / of_one;
    const double per_node = rate / static_cast<double>(nodes);
    if (json) {
      PrintJson({{"nodes", nodes},
                 {"workers", workers},
                 {"devices", devices},
                 {"runs", rates.size()},
                 {"examples_per_second", rate},
                 {"speedup", speedup},
                 {"per_node", per_node}});
    } else {
      fmt::print("{:>5} {:>7} {}{:>4} {:>12.1f} {:>8.2f} {:>12.1f}\n", nodes,
                 workers, mirrored ? fmt::format("{:>7} ", devices) : "",
                 rates.size(), rate, speedup, per_node);
    }
  }
}

}  // namespace sluice::tool
