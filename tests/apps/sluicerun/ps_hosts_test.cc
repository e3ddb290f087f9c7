// Parameter servers on other hosts: addresses of the loopback, and network name
// spaces where the system lets us make them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "dist/net/socket.h"
#include "dist/net/tls.h"
#include "tests/apps/sluicerun/struck_job.h"
#include "tests/support/config_jobs.h"
#include "tests/support/net_hosts.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/required.h"
#include "tests/support/sshd.h"
#include "tests/support/stand_in_ssh.h"

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
  const testing::Outcome six = testing::RunProgram(
      kLauncher, {"-H", "a,[::1]", "--ps", "2", "--dry-run", "p"});
  CAPTURE(six.out);
  CHECK(Contains(six.out, "SLUICE_SERVERS='a:PORT1,[::1]:PORT2' "));
  const testing::Outcome plain = testing::RunProgram(
      kLauncher,
      {"-H", "a:2,b", "--ps", "3", "--dry-run", "--allow-plaintext", "p"});
  CAPTURE(plain.out);
  size_t told = 0;
  for (size_t at = 0; (at = plain.out.find("SLUICE_ALLOW_PLAINTEXT=1", at)) !=
                      std::string::npos;
       ++at) {
    ++told;
  }
  CHECK(told == 6);
}

// Servers behind the ranks of their host.
TEST_CASE("with --port all know where all listen before any has begun") {
  const testing::Outcome dry = testing::RunProgram(
      kLauncher, {"-H", "a:2,user@b,[::1]", "-n", "4", "--ps", "4", "--port",
                  "4000", "--dry-run", "p"});
  CAPTURE(dry.out);
  CHECK(dry.code == 0);
  const std::string servers = "a:4002,b:4001,[::1]:4001,a:4003";
  CHECK(Contains(dry.out, "SLUICE_SERVERS='" + servers + "' SLUICE_SERVER=3"));
  CHECK(
      Contains(dry.out,
               "SLUICE_RANK=1 SLUICE_LOCAL_SIZE=2 SLUICE_LOCAL_RANK=1 "
               "SLUICE_COORDINATOR=a:4000 SLUICE_FIRST_PORT=4000 SLUICE_JOB="));
  CHECK(
      Contains(dry.out,
               "SLUICE_RANK=3 SLUICE_LOCAL_SIZE=1 SLUICE_LOCAL_RANK=0 "
               "SLUICE_COORDINATOR=a:4000 SLUICE_FIRST_PORT=4000 SLUICE_JOB="));
  CHECK_FALSE(Contains(dry.out, "PORT1"));

  const TemporaryFolder servers_said;
  const testing::StandInSsh ssh("exec /bin/sh -c \"$2\"");
  int port = 0;
  do {  // a server's is the next one
    port = testing::FreePorts(1)[0];
  } while (!dist::Listener::Open("127.0.0.1", port + 1).ok());
  const testing::Outcome told = testing::RunProgram(
      kLauncher,
      Joined(ssh.Options(),
             {"-n", "2", "--ps", "2", "--port", std::to_string(port), "/bin/sh",
              "-c",
              "echo ${SLUICE_COORDINATOR-none} ${SLUICE_FIRST_PORT-none} "
              "$SLUICE_SERVERS; if [ -n \"$SLUICE_SERVER\" ]; then "
              ": >$1/$SLUICE_SERVER; exec sleep 1000; fi; until [ "
              "-e $1/0 ] && [ -e $1/1 ]; do sleep 0.05; done",
              "sh", servers_said.path()}));
  CAPTURE(told.out);
  CAPTURE(told.err);
  CHECK(told.code == 0);
  const std::string at = fmt::format("127.0.0.1:{0},127.0.0.2:{0}\n", port + 1);
  for (int i = 0; i < 2; ++i) {
    CHECK(Contains(told.out,
                   fmt::format("[{0}] 127.0.0.1:{1} {1} {2}", i, port, at)));
    CHECK(Contains(told.out, fmt::format("[ps {}] none none {}", i, at)));
  }
}

TEST_CASE("--port that makes no sense is one line") {
  for (const auto& [words, code, part] :
       {std::tuple(Words{"-n", "2"}, 2, "--port is for hosts and --emit"),
        std::tuple(Words{"-n", "2", "--make-certificates", "d"}, 2,
                   "--port is for hosts and --emit"),
        std::tuple(Words{"-H", "a:2,b:2", "--ps", "3"}, 1,
                   "would listen up to port 65537")}) {
    testing::CheckError(
        testing::RunProgram(
            kLauncher, Joined(words, {"--port", "65534", "--dry-run", "p"})),
        "sluicerun", code, part);
  }
}

// Ranks are seated on other hosts then; servers are where they were said to be.
TEST_CASE("a server whose host answers no more has ended, and no rank has") {
  const testing::StandInSsh ssh(
      "[ $1 = 127.0.0.1 ] && exec /bin/sh -c \"$2\"; "
      "[ -e $at/answered ] && exit 255; "
      ": >$at/answered; exec /bin/sh -c \"$2\"");
  const testing::Outcome outcome = testing::RunProgram(
      kLauncher,
      Joined(ssh.Options(),
             {"-n", "1", "--ps", "2", "--max-restarts", "2", "/bin/sh", "-c",
              "[ \"$SLUICE_SERVER\" = 1 ] || exec sleep 1000; sleep 0.2; "
              "kill -9 $$"}));
  CAPTURE(outcome.err);
  CHECK(outcome.code == 255);
  CHECK(Contains(outcome.err,
                 "parameter server 1 on 127.0.0.2 ended by SIGKILL; started "
                 "again (restart 1 of 2)"));
  CHECK(Contains(outcome.err,
                 "parameter server 1 on 127.0.0.2 ended with code 255"));
  CHECK_FALSE(Contains(outcome.err, "rank -1"));
}

// The launcher cannot tell them: they hear from themselves that it is silent.
TEST_CASE("on a host that is cut off no rank and no server stays") {
  const testing::NetHosts hosts(227, 2);
  if (!hosts.made()) {
    testing::SkipForHosts("no network name spaces to be made");
    return;
  }
  const auto first = Sshd::Start({hosts.AddressOf(0)}, hosts.Inside(0));
  if (!first) return;
  const auto second = first->Twin(hosts.AddressOf(1), hosts.Inside(1));
  REQUIRE(second != nullptr);
  const TemporaryFolder folder;
  const Process process(
      kLauncher,
      Joined(first->Options(),
             {"-H", hosts.AddressOf(0) + "," + hosts.AddressOf(1), "--ps", "2",
              "--allow-plaintext", "/bin/sh", "-c",
              "echo $$ >$1/${SLUICE_SERVER+ps}$SLUICE_RANK$SLUICE_SERVER; "
              "exec sleep 1000",
              "sh", folder.path()}));
  std::map<std::string, pid_t> pids = {
      {"0", 0}, {"1", 0}, {"ps0", 0}, {"ps1", 0}};
  testing::AwaitTrue([&] {
    return std::all_of(pids.begin(), pids.end(), [&](const auto& one) {
      return testing::Lines(testing::TextOf(folder / one.first)) == 1;
    });
  });
  for (auto& [name, pid] : pids)
    pid = std::stoi(testing::TextOf(folder / name));
  REQUIRE(hosts.CutOff(1));
  const int code = process.Wait(std::chrono::seconds(60));
  CAPTURE(process.err());
  CHECK(code == 255);
  CHECK(
      Contains(process.err(), "on " + hosts.AddressOf(1) + " is out of reach"));
  for (const auto& [name, pid] : pids) {
    CAPTURE(name);
    testing::AwaitTrue([&, of = pid] { return !testing::Runs(of); });
  }
}

}  // namespace
}  // namespace sluice
