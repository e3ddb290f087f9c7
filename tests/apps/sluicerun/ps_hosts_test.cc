// Parameter servers on other hosts, addresses of the loopback.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <vector>

#include "dist/net/tls.h"
#include "tests/apps/sluicerun/struck_job.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/sshd.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::Joined;
using testing::kLauncher;
using testing::NewestTensors;
using testing::Process;
using testing::Sshd;
using testing::Strike;
using testing::StruckJob;
using testing::TemporaryFolder;
using testing::Words;

TEST_CASE("servers of hosts train what one host's do, and come back") {
  const auto sshd = Sshd::Start({"127.0.0.1", "127.0.0.2"});
  if (!sshd || !dist::HasTls()) return;
  StruckJob job;
  job.strategy = StruckJob::Strategy::kSync;
  job.size = 2;
  job.servers = 3;
  job.restarts = 1;
  Strike strike;
  strike.server = true;
  strike.number = 1;
  strike.phase = Strike::Phase::kSending;
  strike.then = 150;
  job.strikes = {strike};
  const TemporaryFolder folder, marks;
  const testing::Outcome alone =
      testing::RunProgram(kLauncher, job.Undisturbed(folder / "alone"));
  CAPTURE(alone.err);
  REQUIRE(alone.code == 0);
  const Process process(
      kLauncher, Joined(Joined(sshd->Options(), {"-H", "127.0.0.1,127.0.0.2"}),
                        job.Command(folder / "log", marks.path())));
  const auto code = process.EndWithin(std::chrono::seconds(150));
  CAPTURE(process.err());
  REQUIRE(code.has_value());
  CHECK(*code == 0);
  REQUIRE(testing::StrikesThatCame(job, marks.path()).size() == 1);
  CHECK(Contains(process.err(),
                 "parameter server 1 on 127.0.0.2 ended by SIGKILL; "
                 "started again (restart 1 of 1)"));
  testing::CheckSameTensors(NewestTensors(folder / "log"),
                            NewestTensors(folder / "alone"));
}

TEST_CASE("servers of hosts are told who they are, and where others are") {
  const testing::Outcome outcome = testing::RunProgram(
      kLauncher, {"-H", "a:2,b", "--ps", "3", "--dry-run", "p"});
  CAPTURE(outcome.out);
  CHECK(outcome.code == 0);
  CHECK(testing::Lines(outcome.out) == 6);
  CHECK(Contains(outcome.out,
                 "SLUICE_SERVERS=a:PORT1,b:PORT2,a:PORT3 SLUICE_SERVER=1"));
}

}  // namespace
}  // namespace sluice
