// Scripted faults of jobs of every strategy: processes killed and stopped in
// every phase of their lives. No job hangs, who is lost is named by all, and
// nobody else is; and what is trained in the end is what nothing befell, bit
// for bit or, where bits hang on who is there, example by example.
// SLUICE_TEST_JOB_FAULTS says how many, else each strategy has its turns, and
// SLUICE_TEST_SEED from which on (scripts/faults.sh).
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/apps/sluicerun/struck_job.h"
#include "tests/apps/sluicerun/struck_results.h"
#include "tests/support/sanitizers.h"

namespace sluice {
namespace {

using testing::Has;
using testing::Joining;
using testing::kLauncher;
using testing::NewestTensors;
using testing::Number;
using testing::Process;
using testing::Said;
using testing::Strike;
using testing::StruckJob;
using testing::TemporaryFolder;

constexpr std::chrono::seconds kHangs(120);

bool StoppedAtTheEnd(const Strike& strike) {
  return strike.phase == Strike::Phase::kEnd && !strike.server &&
         strike.harm == Strike::Harm::kStop;
}

void CheckNamedAtTheEnd(const Strike& strike, const std::string& err) {
  CHECK(Has(err, strike.Name() + ", of a job that others have ended, has "
                                 "stood still"));
}

void CheckNames(const StruckJob& job, const Strike& strike,
                const std::string& err) {
  if (StoppedAtTheEnd(strike)) CheckNamedAtTheEnd(strike, err);
  if (strike.phase == Strike::Phase::kEnd) return;
  const int named = testing::CheckNamed({strike}, job.size, err);
  // One that is killed is said to be so by the launcher, which ends the others.
  if (strike.harm == Strike::Harm::kStop) {
    CHECK(named > 0);
  } else {
    CHECK(Has(err, fmt::format("{} {} ended by SIGKILL",
                               strike.server ? "parameter server" : "rank",
                               strike.number)));
  }
}

void CheckNamesOfElastic(const StruckJob& job, const std::vector<Strike>& came,
                         const std::string& err) {
  std::map<int, bool> lost;
  for (const Strike& strike : came) {
    lost[strike.number] = true;
    if (StoppedAtTheEnd(strike)) CheckNamedAtTheEnd(strike, err);
    // Those who are done with it do not mind.
    if (strike.phase == Strike::Phase::kEnd) continue;
    const std::string name = strike.Name();
    if (strike.harm == Strike::Harm::kKill) {
      CHECK(Has(err, name + " ended by SIGKILL"));
    } else if (!Joining(strike)) {
      CHECK(Has(err, name + " shows no sign of life"));
    }
  }
  for (int rank = 0; rank < job.size; ++rank) {
    if (lost.count(rank) > 0) continue;
    CHECK(!Has(err, fmt::format("rank {} ended by", rank)));
    CHECK(!Has(err, fmt::format("rank {} shows no sign", rank)));
  }
}

// The launcher's code.
void CheckCode(const StruckJob& job, const std::vector<Strike>& came,
               int code) {
  // Those whose loss is one.
  int lost = 0, never_came = 0;
  for (const Strike& strike : came) {
    const bool after = strike.phase == Strike::Phase::kEnd;
    if (after && (strike.server || job.elastic())) continue;
    // Nobody knows whether one that has not come yet is only slow, nor we
    // whether one that comes had.
    const bool slow =
        job.elastic() && strike.harm == Strike::Harm::kStop && Joining(strike);
    ++(slow ? never_came : lost);
  }
  if (lost + never_came == 0) {
    CHECK(code == 0);
  } else if (job.elastic()) {
    // Another takes its place, of one or, where too few are left, of all.
    const int left = job.size - never_came - std::max(0, lost - job.restarts);
    const int most = job.size - std::max(0, never_came + lost - job.restarts);
    if (left >= job.least) CHECK(code == 0);
    if (most < job.least) CHECK(code != 0);
  } else if (job.restarts > 0) {
    CHECK(code == 0);
  } else {
    const bool killed = came[0].harm == Strike::Harm::kKill ||
                        came[0].phase == Strike::Phase::kEnd;
    CHECK(code == (killed ? 128 + SIGKILL : 1));
  }
}

void Run(const StruckJob& job) {
  const TemporaryFolder folder, marks;
  int code = 0;
  {
    const Process process(kLauncher, job.Command(folder / "log", marks.path()));
    const std::optional<int> end = process.EndWithin(kHangs);
    const std::string said = Said(process);
    CAPTURE(said);
    REQUIRE_MESSAGE(end.has_value(), "the job hangs");
    code = *end;
    const std::vector<Strike> came =
        testing::StrikesThatCame(job, marks.path());
    CheckCode(job, came, code);
    if (job.elastic()) {
      CheckNamesOfElastic(job, came, said);
    } else if (!came.empty()) {
      CheckNames(job, came[0], said);
    }
  }
  if (code != 0) {
    const Process rest(kLauncher, job.Command(folder / "log", ""));
    const std::optional<int> end = rest.EndWithin(kHangs);
    const std::string said = Said(rest);
    CAPTURE(said);
    REQUIRE_MESSAGE(end.has_value(), "the job hangs when it goes on");
    REQUIRE(*end == 0);
  }
  testing::CheckWhole(job, NewestTensors(folder / "log"));
}

TEST_CASE("struck jobs end, name who is lost, and train the same") {
  const int count = Number(
      "SLUICE_TEST_JOB_FAULTS",
      testing::Rounds(static_cast<int>(std::size(testing::kStruckTurns))));
  const int first = Number("SLUICE_TEST_SEED", 1);
  for (int seed = first; seed < first + count; ++seed) {
    CAPTURE(seed);
    const StruckJob job = testing::RandomStruckJob(static_cast<unsigned>(seed));
    CAPTURE(job.Text());
    Run(job);
  }
}

// Of an elastic job that others have ended: it has told the launcher all there
// is, and closed its end of that.
TEST_CASE("a rank that stands still behind its end is killed") {
  const StruckJob job = testing::RandomStruckJob(13);
  CAPTURE(job.Text());
  REQUIRE(job.elastic());
  REQUIRE(job.Text().find("stop end") != std::string::npos);
  Run(job);
}

}  // namespace
}  // namespace sluice
