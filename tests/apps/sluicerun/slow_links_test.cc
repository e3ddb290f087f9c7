// Jobs over hosts, network name spaces, whose links are slow: what waits for a
// link is not lost, however short the peer timeout, and the training has the
// bits, or the examples, of one on this host. SLUICE_TEST_SLOW_LINKS says how
// many, SLUICE_TEST_SEED from which on.
#include <doctest/doctest.h>

#include <iterator>
#include <random>

#include "dist/net/tls.h"
#include "tests/apps/sluicerun/hosts_job.h"
#include "tests/apps/sluicerun/struck_job.h"
#include "tests/apps/sluicerun/struck_results.h"

namespace sluice {
namespace {

using testing::HostsJob;
using testing::Process;
using testing::StruckJob;
using testing::TemporaryFolder;

constexpr int kNet = 224;

StruckJob RandomSlowJob(unsigned number, std::mt19937& random) {
  using Strategy = StruckJob::Strategy;
  constexpr Strategy kTurns[] = {Strategy::kRing,     Strategy::kSync,
                                 Strategy::kPipeline, Strategy::kElasticVirtual,
                                 Strategy::kBounded,  Strategy::kVirtual,
                                 Strategy::kAsync};
  StruckJob job;
  job.strategy = kTurns[number % std::size(kTurns)];
  job.size = 2 + static_cast<int>(random() % 2);
  // Of workers with steps of their own in whole rounds of two and of three.
  job.epochs = job.apart() ? 3 : 2;
  if (job.strategy == Strategy::kElasticVirtual) job.least = job.size;
  if (job.strategy == Strategy::kPipeline) job.stages = job.size;
  if (job.strategy == Strategy::kSync || job.apart()) {
    job.servers = job.size + 1;
  }
  return job;
}

TEST_CASE("a slow link is waited for") {
  if (!dist::HasTls()) return;
  const int count = testing::Number("SLUICE_TEST_SLOW_LINKS", 2);
  const int first = testing::Number("SLUICE_TEST_SEED", 1);
  for (int seed = first; seed < first + count; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(static_cast<unsigned>(seed));
    const StruckJob job = RandomSlowJob(static_cast<unsigned>(seed), random);
    CAPTURE(job.Text());
    const HostsJob over(kNet, job);
    if (!over.made()) return;
    // One host or all, in kilobits a second.
    constexpr int kRates[] = {128, 256, 1000};
    const int rate = kRates[random() % std::size(kRates)];
    const int only = static_cast<int>(random() % 2);
    for (int host = 0; host < over.count(); ++host) {
      if (only == 0 || host == seed % over.count()) {
        REQUIRE(over.hosts().Limit(host, rate));
      }
    }
    CAPTURE(rate);
    const TemporaryFolder folder;
    const Process process(testing::kLauncher, over.Command(folder / "log", ""));
    const int code = testing::CodeOf(process);
    CAPTURE(testing::Said(process));
    REQUIRE(code == 0);
    testing::CheckWhole(job, testing::NewestTensors(folder / "log"));
  }
}

}  // namespace
}  // namespace sluice
