#include "bench/kernel_bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/kernel_bench/machine.h"
#include "engine/cpu_features.h"
#include "engine/threads.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::bench {
namespace {

using Json = nlohmann::json;

// Slower than the peer by more than what measurements vary.
constexpr double kSlower = 0.95;

struct Row {
  Timing ours, theirs;  // theirs.seconds is 0 where there is no peer
  std::string provider, peer;
  double error = 0;
  double bound = 0;  // seconds, by the roofline
  std::string verdict;

  double ratio() const { return theirs.seconds / ours.seconds; }
};

// Both sides' first runs are checked before any is timed.
Row Measure(const Case& c, const Options& options, const Machine& machine) {
  Row row;
  Subject ours = c.make(options.provider);
  if (!ours.run) return row;
  row.provider = ours.provider;
  Subject theirs;
  if (c.make_peer) theirs = c.make_peer(ours);
  row.peer = theirs.provider;
  ours.run();
  row.error = ErrorOf(c, ours, ours.inputs);
  row.bound = machine.Bound(c.flops, c.bytes);
  if (!(row.error <= c.tolerance)) {
    row.verdict = "WRONG";
  } else if (theirs.run) {
    theirs.run();
    const double error = ErrorOf(c, theirs, ours.inputs);
    // A peer may be less exact, but it must compute the same.
    if (!(error <= 50 * c.tolerance)) row.verdict = "PEER WRONG";
  }
  std::vector<std::function<void()>> sides = {ours.run};
  if (theirs.run) sides.push_back(theirs.run);
  const std::vector<Timing> timings = TimeInTurns(sides, options.seconds);
  row.ours = timings[0];
  if (theirs.run) row.theirs = timings[1];
  if (row.verdict.empty()) {
    row.verdict = theirs.run && row.ratio() < kSlower ? "slower" : "ok";
  }
  return row;
}

Json ToJson(const Case& c, const Row& row) {
  const double seconds = row.ours.seconds;
  Json json = {{"bench", "kernel"},
               {"suite", c.suite},
               {"op", c.op},
               {"shape", c.shape},
               {"pass", c.pass},
               {"provider", row.provider},
               {"isa", Simd().isa},
               {"threads", ComputeThreads().threads()},
               {"seconds", seconds},
               {"variation", row.ours.variation},
               {"gflops", c.flops / seconds * 1e-9},
               {"gbs", c.bytes / seconds * 1e-9},
               {"roofline", row.bound / seconds},
               {"tolerance", c.tolerance},
               {"verdict", row.verdict}};
  // JSON has no infinity.
  json["error"] = std::isfinite(row.error) ? Json(row.error) : Json("inf");
  if (row.theirs.seconds > 0) {
    json["peer"] = row.peer;
    json["peer_seconds"] = row.theirs.seconds;
    json["ratio"] = row.ratio();
  }
  return json;
}

std::string ToText(const Case& c, const Row& row) {
  const double seconds = row.ours.seconds;
  std::string line = fmt::format(
      "{:<28} {:<30} {:<9} {:<9} {:>9.3f} {:>4.0f}% {:>7.1f} {:>6.1f} {:>5.0f}%"
      " {:>8.1e} ",
      c.op, c.shape, c.pass, row.provider, seconds * 1e3,
      row.ours.variation * 100, c.flops / seconds * 1e-9,
      c.bytes / seconds * 1e-9, row.bound / seconds * 100, row.error);
  line += row.theirs.seconds > 0
              ? fmt::format("{:>6.2f} {:<6}  {}", row.ratio(), row.verdict,
                            row.peer)
              : fmt::format("{:>6} {:<6}", "", row.verdict);
  return line;
}

void PrintHead(const Machine& machine, const Options& options,
               std::ostream& out) {
  const double gflops = machine.flops * 1e-9;
  if (options.json) {
    Json memory = Json::array();
    for (const Machine::Memory& level : machine.memory) {
      memory.push_back({{"bytes", level.bytes},
                        {"copy_gbs", level.copy * 1e-9},
                        {"best_gbs", level.best * 1e-9}});
    }
    out << Json{{"bench", "machine"}, {"cpu", Cpu().model},
                {"isa", Simd().isa},  {"threads", ComputeThreads().threads()},
                {"gflops", gflops},   {"memory", memory}}
               .dump()
        << std::endl;
    return;
  }
  out << fmt::format(
      "{} ({}), {} threads: {:.0f} GFLOP/s; copy, update GB/s:", Cpu().model,
      Simd().isa, ComputeThreads().threads(), gflops);
  for (const Machine::Memory& level : machine.memory) {
    out << fmt::format(" {:.0f}, {:.0f} ({} KiB)", level.copy * 1e-9,
                       level.best * 1e-9,
                       static_cast<int64_t>(level.bytes) >> 10);
  }
  out << fmt::format(
             "\n{:<28} {:<30} {:<9} {:<9} {:>9} {:>5} {:>7} {:>6} {:>6} {:>8} "
             "{:>6}",
             "op", "shape", "pass", "provider", "ms", "+-", "GFLOP/s", "GB/s",
             "roof", "error", "ratio")
      << std::endl;
}

}  // namespace

bool Wanted(const Case& c, const Options& options) {
  const auto& suites = options.suites;
  return (suites.empty() ||
          std::find(suites.begin(), suites.end(), c.suite) != suites.end()) &&
         c.Name().find(options.filter) != std::string::npos;
}

int RunCases(const std::vector<Case>& cases, const Options& options,
             std::ostream& out) {
  SetComputeThreads(options.threads);
  const Machine& machine = MeasuredMachine();
  PrintHead(machine, options, out);
  int rows = 0, wrong = 0;
  for (const Case& c : cases) {
    if (!Wanted(c, options)) continue;
    const Row row = Measure(c, options, machine);
    if (row.provider.empty()) continue;
    out << (options.json ? ToJson(c, row).dump() : ToText(c, row)) << std::endl;
    ++rows;
    if (row.verdict.ends_with("WRONG")) ++wrong;
  }
  if (rows == 0) throw Error(Code::kInvalidArgument, "no row was asked for");
  return wrong;
}

}  // namespace sluice::bench
