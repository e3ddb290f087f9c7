#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/sluice/commands.h"
#include "apps/sluice/json.h"
#include "apps/sluice/median.h"
#include "apps/sluice/pairs.h"
#include "dist/collective/group.h"
#include "dist/launch_info.h"
#include "dist/net/tls.h"
#include "engine/cpu_features.h"
#include "engine/machine_memory.h"
#include "engine/status.h"
#include "engine/text/json_object.h"
#include "kernels/cpu/simd/simd.h"
#include "models/train/workers/workers.h"

namespace sluice::tool {
namespace {

// Whoever has made a certificate wants to know by then. What sluicerun makes
// for a job is good for longer than that lasts.
constexpr int64_t kSoon = 7;  // days

// Clocks that differ by more make certificates and leases of stores invalid too
// early, or too late.
constexpr int64_t kMostSkew = 30;  // seconds

std::string HostName() {
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// What a rank says of itself. `tls` is null where it has no certificate;
// `ahead`: by how many seconds its clock is ahead of rank 0's.
Json Facts(const dist::Group& group, const dist::Tls* tls, int64_t ahead) {
  const MachineMemory memory = ReadMachineMemory();
  Json facts = {{"rank", group.rank()},
                {"host", HostName()},
                {"version", SLUICE_VERSION},
                {"cores", Cpu().cores},
                {"isa", Simd().isa},
                {"available_bytes", memory.available},
                {"neighbours_by_memory", group.shared_links()},
                {"certified", tls != nullptr},
                {"clock_ahead_seconds", ahead}};
  if (tls != nullptr) {
    facts["certificate"] = dist::UriOf(tls->identity());
    facts["certificate_expires"] =
        std::chrono::system_clock::to_time_t(tls->expires());
  }
  return facts;
}

// The same, as the others read it.
struct RankFacts {
  std::string text;
  int64_t rank = 0, cores = 0, neighbours_by_memory = 0, clock_ahead = 0;
  std::string host, version, isa;
  double available_bytes = 0;
  // Of its certificate, if it has one; seconds since 1970.
  std::optional<dist::Identity> identity;
  int64_t expires = 0;
};
RankFacts ReadFacts(const std::string& text) {
  const JsonObject json = JsonObject::Parse(text).ValueOrThrow();
  RankFacts facts = {.text = text};
  facts.rank = json.Int("rank").ValueOrThrow();
  facts.cores = json.Int("cores").ValueOrThrow();
  facts.neighbours_by_memory = json.Int("neighbours_by_memory").ValueOrThrow();
  facts.clock_ahead = json.Int("clock_ahead_seconds").ValueOrThrow();
  facts.host = json.String("host").ValueOrThrow();
  facts.version = json.String("version").ValueOrThrow();
  facts.isa = json.String("isa").ValueOrThrow();
  facts.available_bytes = json.Double("available_bytes").ValueOrThrow();
  if (json.Bool("certified").ValueOrThrow()) {
    facts.identity =
        dist::ParseIdentity(json.String("certificate").ValueOrThrow())
            .ValueOrThrow();
    facts.expires = json.Int("certificate_expires").ValueOrThrow();
  }
  return facts;
}

int64_t DaysLeft(const RankFacts& rank) {
  constexpr double kDay = 24 * 3600;
  return std::lround(static_cast<double>(rank.expires - std::time(nullptr)) /
                     kDay);
}

struct Measured {
  int64_t bytes = 0;
  double seconds = 0;  // the median of several
};

// Of an all-reduce, as a training's: all connections carry at once.
Measured Measure(dist::Group& group, int64_t bytes, int times) {
  using Clock = std::chrono::steady_clock;
  Tensor tensor =
      Tensor::Full(DType::kFloat32, {bytes / int64_t{sizeof(float)}}, 0);
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) {
    ThrowIfError(group.Barrier("measure"));
    const auto begin = Clock::now();
    ThrowIfError(group.AllReduce("measured", &tensor, Reduction::kSum));
    seconds.push_back(
        std::chrono::duration<double>(Clock::now() - begin).count());
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
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kSmall = 8, kLarge = 4 << 20;
  OfPair measured;
  measured.latency = Measure(pair, kSmall, 201).seconds / 2;
  std::vector<char> data(kLarge);
  for (int root = 0; root < 2; ++root) {
    std::vector<double> seconds;
    for (int i = 0; i < 4; ++i) {
      ThrowIfError(pair.Barrier("measure"));
      const auto begin = Clock::now();
      ThrowIfError(pair.Broadcast("measured", data.data(), kLarge, root));
      ThrowIfError(pair.Barrier("received"));
      seconds.push_back(
          std::chrono::duration<double>(Clock::now() - begin).count());
    }
    if (root != pair.rank()) continue;
    seconds.erase(seconds.begin());  // until windows are open
    measured.sent = kLarge / Median(std::move(seconds));
  }
  return measured;
}

// All pairs, one after another: two at a time might share a wire or a core, and
// either would look slow.
std::vector<PairRow> MeasurePairs(dist::Group& group, const Workers& workers,
                                  const std::vector<RankFacts>& ranks) {
  std::vector<PairRow> rows;
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

std::string Described(const PairRow& row, const std::vector<RankFacts>& ranks) {
  const auto [a, b] = row.pair;
  return fmt::format(
      "ranks {} ({}) and {} ({}) are much slower than others {}: {:.1f} us, "
      "{:.2f} and {:.2f} GB/s",
      a, ranks[static_cast<size_t>(a)].host, b,
      ranks[static_cast<size_t>(b)].host,
      row.one_host ? "on one host" : "on two hosts", row.latency * 1e6,
      row.there / 1e9, row.back / 1e9);
}

// What training with these ranks would suffer from. That they are of one
// version is seen to where they meet.
std::vector<std::string> Warnings(const std::vector<RankFacts>& ranks) {
  std::set<std::string> sets;
  std::vector<std::string> warnings;
  for (const RankFacts& rank : ranks) {
    sets.insert(rank.isa);
    if (rank.identity && DaysLeft(rank) < kSoon) {
      warnings.push_back(
          fmt::format("the certificate of rank {} expires in {} days",
                      rank.rank, DaysLeft(rank)));
    }
    const int64_t ahead = rank.clock_ahead;
    if (std::abs(ahead) <= kMostSkew) continue;
    warnings.push_back(fmt::format("the clock of rank {} is {} s {} rank 0's",
                                   rank.rank, std::abs(ahead),
                                   ahead > 0 ? "ahead of" : "behind"));
  }
  if (sets.size() > 1) {
    warnings.push_back(fmt::format(
        "different instruction sets, whose last bits differ: {}; SLUICE_ISA "
        "restrains all to one",
        fmt::join(sets, ", ")));
  }
  return warnings;
}

std::string Size(int64_t bytes) {
  if (bytes < 1 << 20) return fmt::format("{} bytes", bytes);
  return fmt::format("{} MiB", bytes >> 20);
}

std::string Certificate(const RankFacts& rank) {
  if (!rank.identity) return "no certificate";
  return fmt::format("certificate of {} of job {} until {:%Y-%m-%d %H:%M} UTC",
                     rank.identity->Name(), rank.identity->job,
                     fmt::gmtime(static_cast<std::time_t>(rank.expires)));
}

void Print(const std::vector<RankFacts>& ranks,
           const std::vector<Measured>& rows) {
  for (const RankFacts& rank : ranks) {
    fmt::print(
        "rank {:<4} {}: Sluice {}, {} cores with {}, {:.1f} GiB available, "
        "{} of 2 neighbours by shared memory, {}\n",
        rank.rank, rank.host, rank.version, rank.cores, rank.isa,
        rank.available_bytes / (1 << 30), rank.neighbours_by_memory,
        Certificate(rank));
  }
  const int size = static_cast<int>(ranks.size());
  for (const Measured& row : rows) {
    fmt::print("all-reduce of {:<9} {:10.1f} us", Size(row.bytes),
               row.seconds * 1e6);
    if (row.bytes >= 1 << 20) {
      fmt::print("  {:6.2f} GB/s", BytesPerSecond(row, size) / 1e9);
    }
    fmt::print("\n");
  }
}

void Print(const std::vector<PairRow>& pairs) {
  fmt::print("{:>9} {:>13} {:>11} {:>11}\n", "ranks", "one way, us",
             "there, GB/s", "back, GB/s");
  for (const PairRow& row : pairs) {
    fmt::print("{:>4} {:>4} {:>13.1f} {:>11.2f} {:>11.2f}\n", row.pair.a,
               row.pair.b, row.latency * 1e6, row.there / 1e9, row.back / 1e9);
  }
}

}  // namespace

void DoctorOfCluster(bool json) {
  std::optional<dist::LaunchInfo> info = dist::ReadLaunchInfo().ValueOrThrow();
  if (!info || info->size < 2) {
    throw Error(Code::kFailedPrecondition,
                "--cluster looks at several processes: sluicerun -H a,b sluice "
                "doctor --cluster");
  }
  std::shared_ptr<const dist::Tls> tls;
  if (info->credentials) {
    tls = dist::Tls::Create(*info->credentials).ValueOrThrow();
  }
  dist::GroupOptions options;
  options.note = [](std::string_view line) {
    fmt::print(stderr, "sluice: {}\n", line);
  };
  const auto group =
      dist::Group::Join(*std::move(info), options).ValueOrThrow();
  const Workers workers(group.get());

  const auto clocks = workers.GatherEach("clocks", int64_t{std::time(nullptr)});
  const int64_t ahead = clocks[static_cast<size_t>(group->rank())] - clocks[0];
  std::vector<RankFacts> ranks;
  for (const std::string& text :
       workers.Gather("facts", Facts(*group, tls.get(), ahead).LenientText())) {
    ranks.push_back(ReadFacts(text));
  }
  (void)Measure(*group, 1 << 20, 5);  // until windows are open
  std::vector<Measured> rows;
  for (const auto& [bytes, times] :
       {std::pair(8, 1001), std::pair(1 << 20, 51), std::pair(64 << 20, 11)}) {
    rows.push_back(Measure(*group, bytes, times));
  }
  const std::vector<PairRow> pairs = MeasurePairs(*group, workers, ranks);
  if (!workers.leads()) {
    workers.Barrier("printed");
    return;
  }
  std::vector<std::string> slow;
  for (const PairRow& row : SlowPairs(pairs)) {
    slow.push_back(Described(row, ranks));
  }
  const std::vector<std::string> warnings = Warnings(ranks);
  if (json) {
    for (const RankFacts& rank : ranks) fmt::print("{}\n", rank.text);
    for (const Measured& row : rows) {
      PrintJson({{"bytes", row.bytes},
                 {"seconds", row.seconds},
                 {"bytes_per_second",
                  BytesPerSecond(row, static_cast<int>(ranks.size()))}});
    }
    for (const PairRow& row : pairs) {
      PrintJson({{"pair", std::vector<int>{row.pair.a, row.pair.b}},
                 {"one_host", row.one_host},
                 {"latency_seconds", row.latency},
                 {"bytes_per_second_there", row.there},
                 {"bytes_per_second_back", row.back}});
    }
    PrintJson({{"warnings", warnings}, {"slow_pairs", slow}});
  } else {
    Print(ranks, rows);
    Print(pairs);
    for (const auto& lines : {warnings, slow}) {
      for (const std::string& line : lines) fmt::print("warning: {}\n", line);
    }
  }
  workers.Barrier("printed");
}

}  // namespace sluice::tool
