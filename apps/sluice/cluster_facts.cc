#include "apps/sluice/cluster_facts.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <set>

#include "engine/cpu_features.h"
#include "engine/machine_memory.h"
#include "engine/status.h"
#include "engine/text/json_object.h"
#include "kernels/cpu/simd/simd.h"

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

int64_t DaysLeft(const ProcessFacts& process) {
  constexpr double kDay = 24 * 3600;
  return std::lround(static_cast<double>(process.expires - std::time(nullptr)) /
                     kDay);
}

}  // namespace

std::string ProcessFacts::Name() const {
  return serves() ? fmt::format("ps {}", server) : fmt::format("rank {}", rank);
}

std::shared_ptr<const dist::Tls> TlsOf(const dist::LaunchInfo& info) {
  if (!info.credentials) return nullptr;
  return dist::Tls::Create(*info.credentials).ValueOrThrow();
}

Json OwnFacts(Json who, const dist::Tls* tls, int64_t ahead) {
  const MachineMemory memory = ReadMachineMemory();
  who.Update({{"host", HostName()},
              {"version", SLUICE_VERSION},
              {"cores", Cpu().cores},
              {"isa", Simd().isa},
              {"available_bytes", memory.available},
              {"certified", tls != nullptr},
              {"clock_ahead_seconds", ahead}});
  if (tls != nullptr) {
    who["certificate"] = dist::UriOf(tls->identity());
    who["certificate_expires"] =
        std::chrono::system_clock::to_time_t(tls->expires());
  }
  return who;
}

ProcessFacts ReadFacts(const std::string& text) {
  const JsonObject json = JsonObject::Parse(text).ValueOrThrow();
  ProcessFacts facts = {.text = text};
  if (json.Has("server")) {
    facts.server = json.Int("server").ValueOrThrow();
  } else {
    facts.rank = json.Int("rank").ValueOrThrow();
    facts.neighbours_by_memory =
        json.Int("neighbours_by_memory").ValueOrThrow();
  }
  facts.cores = json.Int("cores").ValueOrThrow();
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

std::string Certificate(const ProcessFacts& process) {
  if (!process.identity) return "no certificate";
  return fmt::format("certificate of {} of job {} until {:%Y-%m-%d %H:%M} UTC",
                     process.identity->Name(), process.identity->job,
                     fmt::gmtime(static_cast<std::time_t>(process.expires)));
}

std::vector<std::string> Warnings(const std::vector<ProcessFacts>& processes) {
  std::set<std::string> sets;
  std::vector<std::string> warnings;
  for (const ProcessFacts& process : processes) {
    sets.insert(process.isa);
    if (process.identity && DaysLeft(process) < kSoon) {
      warnings.push_back(fmt::format("the certificate of {} expires in {} days",
                                     process.Name(), DaysLeft(process)));
    }
    const int64_t ahead = process.clock_ahead;
    if (std::abs(ahead) <= kMostSkew) continue;
    warnings.push_back(fmt::format("the clock of {} is {} s {} rank 0's",
                                   process.Name(), std::abs(ahead),
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

}  // namespace sluice::tool
