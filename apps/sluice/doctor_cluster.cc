#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/say_line.h"
#include "apps/sluice/cluster_facts.h"
#include "apps/sluice/cluster_servers.h"
#include "apps/sluice/commands.h"
#include "apps/sluice/json.h"
#include "apps/sluice/median.h"
#include "apps/sluice/pairs.h"
#include "apps/sluice/seconds_of.h"
#include "dist/collective/group.h"
#include "dist/launch_info.h"
#include "dist/net/tls.h"
#include "dist/servers/server.h"
#include "engine/descriptor_limit.h"
#include "engine/status.h"
#include "engine/text/json.h"
#include "models/train/workers/workers.h"

namespace sluice::tool {
namespace {

struct Measured {
  int64_t bytes = 0;
  double seconds = 0;  // the median of several
};

// Of an all-reduce, as a training's: all connections carry at once.
Measured Measure(dist::Group& group, int64_t bytes, int times) {
  Tensor tensor =
      Tensor::Full(DType::kFloat32, {bytes / int64_t{sizeof(float)}}, 0);
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) {
    ThrowIfError(group.Barrier("measure"));
    seconds.push_back(SecondsOf([&] {
      ThrowIfError(group.AllReduce("measured", &tensor, Reduction::kSum));
    }));
  }
  return {bytes, Median(std::move(seconds))};
}

// Through each connection, each way.
double BytesPerSecond(const Measured& measured, int size) {
  return static_cast<double>(measured.bytes) * 2 * (size - 1) / size /
         measured.seconds;
}

// What a rank says of the pair that it was in last.
struct OfPair {
  double latency = 0;  // seconds, one way
  double sent = 0;     // bytes per second to the other
};

// A message there and one back at once, as a ring of two sends them; then each
// way by itself, until who sends has heard that all of it has come.
OfPair MeasurePair(dist::Group& pair) {
  constexpr int64_t kSmall = 8, kLarge = 4 << 20;
  OfPair measured;
  measured.latency = Measure(pair, kSmall, 201).seconds / 2;
  std::vector<char> data(kLarge);
  for (int root = 0; root < 2; ++root) {
    std::vector<double> seconds;
    for (int i = 0; i < 4; ++i) {
      ThrowIfError(pair.Barrier("measure"));
      seconds.push_back(SecondsOf([&] {
        ThrowIfError(pair.Broadcast("measured", data.data(), kLarge, root));
        ThrowIfError(pair.Barrier("received"));
      }));
    }
    if (root != pair.rank()) continue;
    seconds.erase(seconds.begin());  // until windows are open
    measured.sent = kLarge / Median(std::move(seconds));
  }
  return measured;
}

// All pairs of ranks, one after another: two at a time might share a wire or a
// core, and either would look slow.
std::vector<PairRow> MeasurePairs(dist::Group& group, const Workers& workers,
                                  const std::vector<ProcessFacts>& ranks) {
  std::vector<PairRow> rows;
  if (!workers.several()) return rows;
  int number = 0;
  for (const std::vector<Pair>& round : Rounds(group.size())) {
    const auto mine =
        std::find_if(round.begin(), round.end(), [&](const Pair& pair) {
          return pair.a == group.rank() || pair.b == group.rank();
        });
    const std::string name = fmt::format("pairs {}", ++number);
    ThrowIfError(group.Split(
        name,
        mine == round.end() ? -1 : static_cast<int>(mine - round.begin())));
    OfPair measured;
    for (auto pair = round.begin(); pair != round.end(); ++pair) {
      if (pair == mine) measured = MeasurePair(*group.Subgroup(name));
      workers.Barrier("pair");
    }
    const std::vector<OfPair> all = workers.GatherEach("pair", measured);
    for (const Pair& pair : round) {
      const auto a = static_cast<size_t>(pair.a);
      const auto b = static_cast<size_t>(pair.b);
      rows.push_back({pair, ranks[a].host == ranks[b].host,
                      (all[a].latency + all[b].latency) / 2, all[a].sent,
                      all[b].sent});
    }
  }
  std::sort(rows.begin(), rows.end(), [](const PairRow& x, const PairRow& y) {
    return std::pair(x.pair.a, x.pair.b) < std::pair(y.pair.a, y.pair.b);
  });
  return rows;
}

// Of all-reduces; one process has none.
std::vector<Measured> MeasureAllReduces(dist::Group& group) {
  std::vector<Measured> rows;
  if (group.size() == 1) return rows;
  (void)Measure(group, 1 << 20, 5);  // until windows are open
  for (const auto& [bytes, times] :
       {std::pair(8, 1001), std::pair(1 << 20, 51), std::pair(64 << 20, 11)}) {
    rows.push_back(Measure(group, bytes, times));
  }
  return rows;
}

// Whether all ranks reach all servers. Of rank 0, which says who does not,
// throws Error.
bool AllReach(const Workers& workers, const Status& mine) {
  const std::vector<std::string> troubles =
      workers.Gather("servers", mine.ok() ? "" : mine.message());
  std::vector<std::string> lines;
  for (size_t rank = 0; rank < troubles.size(); ++rank) {
    if (troubles[rank].empty()) continue;
    lines.push_back(fmt::format("rank {}: {}", rank, troubles[rank]));
  }
  if (lines.empty() || !workers.leads()) return lines.empty();
  throw Error(Code::kUnavailable,
              fmt::format("not all ranks reach all parameter servers: {}",
                          fmt::join(lines, "; ")));
}

// All that was found.
struct Found {
  std::vector<ProcessFacts> processes;  // the ranks, then the servers
  std::vector<Measured> all_reduces;
  std::vector<PairRow> pairs;

  const ProcessFacts& A(const PairRow& row) const {
    return processes[static_cast<size_t>(row.pair.a)];
  }
  const ProcessFacts& B(const PairRow& row) const {
    return processes[static_cast<size_t>(row.pair.b)];
  }
  int ranks() const {
    return static_cast<int>(
        std::count_if(processes.begin(), processes.end(),
                      [](const ProcessFacts& one) { return !one.serves(); }));
  }
};

std::vector<std::string> SlowOnes(const Found& found) {
  std::vector<std::string> lines;
  for (const PairRow& row : SlowPairs(found.pairs)) {
    const ProcessFacts &a = found.A(row), &b = found.B(row);
    lines.push_back(fmt::format(
        "{} ({}) and {} ({}) are much slower than others {}: {:.1f} us, "
        "{:.2f} and {:.2f} GB/s",
        a.Name(), a.host, b.Name(), b.host,
        row.one_host ? "on one host" : "on two hosts", row.latency * 1e6,
        row.there / 1e9, row.back / 1e9));
  }
  return lines;
}

std::string PayloadSize(int64_t bytes) {
  if (bytes < 1 << 20) return fmt::format("{} bytes", bytes);
  return fmt::format("{} MiB", bytes >> 20);
}

void PrintText(const Found& found) {
  const int size = found.ranks();
  for (const ProcessFacts& process : found.processes) {
    const std::string neighbours =
        process.serves() || size == 1
            ? ""
            : fmt::format("{} of 2 neighbours by shared memory, ",
                          process.neighbours_by_memory);
    fmt::print(
        "{:<9} {}: Sluice {}, {} cores with {}, {:.1f} GiB available, {}{}\n",
        process.Name(), process.host, process.version, process.cores,
        process.isa, process.available_bytes / (1 << 30), neighbours,
        Certificate(process));
  }
  for (const Measured& row : found.all_reduces) {
    fmt::print("all-reduce of {:<9} {:10.1f} us", PayloadSize(row.bytes),
               row.seconds * 1e6);
    if (row.bytes >= 1 << 20) {
      fmt::print("  {:6.2f} GB/s", BytesPerSecond(row, size) / 1e9);
    }
    fmt::print("\n");
  }
  fmt::print("{:>9} {:>13} {:>11} {:>11}\n", "ranks", "one way, us",
             "there, GB/s", "back, GB/s");
  for (const PairRow& row : found.pairs) {
    const std::string other =
        row.served ? found.B(row).Name() : std::to_string(row.pair.b);
    fmt::print("{:>4} {:>4} {:>13.1f} {:>11.2f} {:>11.2f}\n", row.pair.a, other,
               row.latency * 1e6, row.there / 1e9, row.back / 1e9);
  }
  for (const auto& lines : {Warnings(found.processes), SlowOnes(found)}) {
    for (const std::string& line : lines) fmt::print("warning: {}\n", line);
  }
}

void PrintObjects(const Found& found) {
  for (const ProcessFacts& process : found.processes) {
    fmt::print("{}\n", process.text);
  }
  for (const Measured& row : found.all_reduces) {
    PrintJson({{"bytes", row.bytes},
               {"seconds", row.seconds},
               {"bytes_per_second", BytesPerSecond(row, found.ranks())}});
  }
  for (const PairRow& row : found.pairs) {
    Json pair = Json::Array({row.pair.a});
    pair.Add(row.served ? Json(found.B(row).Name()) : Json(row.pair.b));
    PrintJson({{"pair", pair},
               {"one_host", row.one_host},
               {"latency_seconds", row.latency},
               {"bytes_per_second_there", row.there},
               {"bytes_per_second_back", row.back}});
  }
  PrintJson({{"warnings", Warnings(found.processes)},
             {"slow_pairs", SlowOnes(found)}});
}

}  // namespace

void DoctorOfCluster(bool json) {
  RaiseDescriptorLimit();
  const std::optional<dist::LaunchInfo> info =
      dist::ReadLaunchInfo().ValueOrThrow();
  if (info && info->server >= 0) return ServeDoctor(*info);
  if (!info || (info->size < 2 && info->servers.empty())) {
    throw Error(Code::kFailedPrecondition,
                "--cluster looks at several processes: sluicerun -H a,b sluice "
                "doctor --cluster");
  }
  const std::shared_ptr<const dist::Tls> tls = TlsOf(*info);
  dist::GroupOptions options;
  options.note = [](std::string_view line) {
    SayLine(fmt::format("sluice: {}", line));
  };
  const auto group = dist::Group::Join(*info, options).ValueOrThrow();
  const Workers workers(group.get());

  const auto clocks = workers.GatherEach("clocks", int64_t{std::time(nullptr)});
  const int64_t ahead = clocks[static_cast<size_t>(group->rank())] - clocks[0];
  Json own = OwnFacts({{"rank", group->rank()}}, tls.get(), ahead);
  own["neighbours_by_memory"] = group->shared_links();
  Found found;
  for (const std::string& text : workers.Gather("facts", own.LenientText())) {
    found.processes.push_back(ReadFacts(text));
  }
  const Result<Servers> servers = ReachServers(*info, ahead);
  if (!AllReach(workers, servers.status())) return;
  for (const ProcessFacts& server : servers->facts) {
    found.processes.push_back(server);
  }

  found.all_reduces = MeasureAllReduces(*group);
  found.pairs = MeasurePairs(*group, workers, found.processes);
  for (const PairRow& row :
       MeasureServers(workers, *servers, found.processes)) {
    found.pairs.push_back(row);
  }
  if (workers.leads()) {
    json ? PrintObjects(found) : PrintText(found);
    // Before others go: servers would miss them.
    if (info->ends_servers) {
      dist::EndServers(*servers->job.cluster,
                       static_cast<int>(servers->facts.size()));
    }
  }
  workers.Barrier("printed");
}

}  // namespace sluice::tool
