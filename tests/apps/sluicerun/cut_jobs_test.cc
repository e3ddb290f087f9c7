// Jobs over hosts, network name spaces, of which one is cut off from all others
// at a scripted point: survivors name who is there, elastic jobs go on, and
// what is trained in the end has the bits, or the examples, of what nothing
// befell. SLUICE_TEST_CUT_FAULTS says how many, SLUICE_TEST_SEED from which on
// (scripts/faults.sh).
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "dist/net/tls.h"
#include "tests/apps/sluicerun/hosts_job.h"
#include "tests/apps/sluicerun/struck_job.h"
#include "tests/apps/sluicerun/struck_results.h"

namespace sluice {
namespace {

using testing::Has;
using testing::HostsJob;
using testing::NetHosts;
using testing::Process;
using testing::Said;
using testing::Strike;
using testing::StruckJob;
using testing::TemporaryFolder;

constexpr int kNet = 223;
constexpr std::chrono::seconds kHangs(150);

// The strike tells when to cut off whose host.
StruckJob RandomCutJob(unsigned number) {
  using Strategy = StruckJob::Strategy;
  using Phase = Strike::Phase;
  constexpr Strategy kTurns[] = {Strategy::kRing,    Strategy::kElasticVirtual,
                                 Strategy::kSync,    Strategy::kVirtual,
                                 Strategy::kElastic, Strategy::kAsync,
                                 Strategy::kPipeline};
  std::mt19937 random(number);
  const auto below = [&random](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  StruckJob job;
  job.strategy = kTurns[number % std::size(kTurns)];
  job.size = 2 + below(2);
  if (job.strategy == Strategy::kElastic ||
      job.strategy == Strategy::kElasticVirtual) {
    job.least = 1;
  }
  if (job.strategy == Strategy::kPipeline) job.stages = job.size;
  if (job.strategy == Strategy::kSync || job.apart()) {
    job.servers = job.size + 1;
  }
  Strike strike;
  strike.harm = Strike::Harm::kTell;
  strike.server = job.servers > 0 && below(2) == 0;
  strike.number = strike.server ? job.size : below(job.size);
  constexpr Phase kPhases[] = {Phase::kReading, Phase::kSending,
                               Phase::kEvaluating, Phase::kSaving};
  strike.phase = strike.server ? Phase::kSending : kPhases[below(4)];
  if (strike.phase == Phase::kSaving) strike.number = 0;
  const int batches = job.steps() / (job.apart() ? job.size : 1);
  strike.at = strike.server                        ? 0
              : strike.phase == Phase::kEvaluating ? 1 + below(4)
              : strike.phase == Phase::kSaving     ? 1 + below(4)
                                                   : 2 + below(batches - 2);
  strike.then = strike.server                     ? 20 + below(200)
                : strike.phase == Phase::kSending ? 1 + below(3)
                                                  : 0;
  job.strikes = {strike};
  return job;
}

// Whether its host was cut off: where a step has fewer sends than the strike
// waits for, as when several leave together, nothing befalls it. nullopt: there
// are no hosts.
std::optional<bool> Run(const StruckJob& job) {
  const HostsJob over(kNet, job);
  if (!over.made()) return std::nullopt;
  const NetHosts& hosts = over.hosts();
  const TemporaryFolder folder, marks;
  const auto command = [&](const std::string& strikes) {
    return over.Command(folder / "log", strikes);
  };
  const Strike& strike = job.strikes[0];
  std::vector<Strike> struck = {strike};
  if (job.servers > 0 && !strike.server) {  // one beside it
    struck.push_back(strike);
    struck[1].server = true;
  }
  int code = 0;
  bool came = false;
  {
    const Process process(testing::kLauncher, command(marks.path()));
    CAPTURE(Said(process));
    testing::AwaitTrue([&] {
      const bool ended = !testing::Runs(process.pid());
      came = access((marks / "0").c_str(), F_OK) == 0;
      return came || ended;
    });
    if (came) REQUIRE(hosts.CutOff(strike.number));
    const std::optional<int> end = process.EndWithin(kHangs);
    const std::string said = Said(process);
    CAPTURE(said);
    REQUIRE_MESSAGE(end.has_value(), "the job hangs");
    code = *end;
    if (!came) {
      CHECK(code == 0);
    } else if (job.elastic()) {
      CHECK(code == 0);
      CHECK(Has(said, fmt::format("rank {} on {}", strike.number,
                                  hosts.AddressOf(strike.number))));
    } else {
      CHECK(code == 1);
      CHECK(testing::CheckNamed(struck, job.size, said) > 0);
    }
  }
  if (came) REQUIRE(hosts.Connect(strike.number));
  // What was left there may have the folder for a moment.
  std::string said;
  for (int i = 0; i < 100 && code != 0; ++i) {
    const Process rest(testing::kLauncher, command(""));
    const std::optional<int> end = rest.EndWithin(kHangs);
    REQUIRE_MESSAGE(end.has_value(), "the job hangs when it goes on");
    code = *end;
    said = Said(rest);
    if (code != 0 && !Has(said, "training that is under way")) break;
    usleep(200'000);
  }
  CAPTURE(said);
  REQUIRE(code == 0);
  testing::CheckWhole(job, testing::NewestTensors(folder / "log"));
  return came;
}

TEST_CASE("jobs whose host is cut off") {
  if (!dist::HasTls()) return;
  const int count = testing::Number("SLUICE_TEST_CUT_FAULTS", 1);
  const int first = testing::Number("SLUICE_TEST_SEED", 1);
  int cut = 0;
  for (int seed = first; seed < first + count; ++seed) {
    CAPTURE(seed);
    const StruckJob job = RandomCutJob(static_cast<unsigned>(seed));
    CAPTURE(job.Text());
    const std::optional<bool> came = Run(job);
    if (!came) return;
    cut += *came ? 1 : 0;
  }
  CHECK(2 * cut > count);
}

}  // namespace
}  // namespace sluice
