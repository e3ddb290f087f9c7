// Which of a job's processes is said to have failed, and what it has said.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <string>

#include "tests/apps/sluicerun/struck_job.h"
#include "tests/support/error_text.h"
#include "tests/support/launched.h"
#include "tests/support/program.h"
#include "tests/support/stand_in_ssh.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::Job;
using testing::Joined;
using testing::kLauncher;
using testing::Outcome;
using testing::Process;
using testing::RunJob;
using testing::RunProgram;
using testing::StandInSsh;
using testing::TemporaryFolder;
using testing::Words;

// The kernel closes what a process has open before it says that it has ended.
TEST_CASE("who is killed has failed, not who notices it and ends before") {
  const TemporaryFolder folder;
  for (int trial = 0; trial < 20; ++trial) {
    CAPTURE(trial);
    const std::string fifo = folder / std::to_string(trial);
    REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
    const Outcome outcome = RunJob(
        2,
        "if [ $SLUICE_RANK = 0 ]; then exec 3>$1; echo x >&3; kill -9 $$; "
        "else cat $1 >/dev/null; exit 3; fi",
        {}, {fifo});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 128 + SIGKILL);
    CHECK(Contains(outcome.err, "rank 0 ended by SIGKILL"));
  }
}

// All that the second host says comes when all is over there, and late.
constexpr char kSecondIsLate[] =
    "[ $1 = 127.0.0.1 ] && exec /bin/sh -c \"$2\"; "
    "/bin/sh -c \"$2\" >$at/said; sleep 0.02; cat $at/said";

TEST_CASE("who is killed on a host that is heard late has failed") {
  const StandInSsh ssh(kSecondIsLate);
  REQUIRE(mkfifo(ssh.at("fifo").c_str(), 0600) == 0);
  const Outcome outcome = RunProgram(
      kLauncher, Joined(ssh.Options(),
                        {"/bin/sh", "-c",
                         "if [ $SLUICE_RANK = 1 ]; then exec 3>$1; echo x >&3; "
                         "kill -9 $$; else cat $1 >/dev/null; exit 3; fi",
                         "sh", ssh.at("fifo")}));
  CAPTURE(outcome.err);
  CHECK(outcome.code == 128 + SIGKILL);
  CHECK(Contains(outcome.err, "rank 1 on 127.0.0.2 ended by SIGKILL"));
}

TEST_CASE("who crashes when it is told to end has not failed first") {
  const StandInSsh ssh("exec /bin/sh -c \"$2\"");
  for (const Words& options : {Words{"-n", "2"}, ssh.Options()}) {
    const TemporaryFolder folder;
    const Outcome outcome = RunProgram(
        kLauncher,
        Joined(options, {"/bin/sh", "-c",
                         "if [ $SLUICE_RANK = 0 ]; then "
                         "while [ ! -e $1/set ]; do sleep 0.01; done; exit 3; "
                         "fi; trap 'kill -SEGV $$' TERM; : >$1/set; "
                         "while :; do sleep 0.01; done",
                         "sh", folder.path()}));
    CAPTURE(outcome.err);
    CHECK(outcome.code == 3);
    CHECK(Contains(outcome.err, "ended with code 3"));
  }
}

TEST_CASE("who says on stdout alone why it failed is shown so") {
  const std::string script =
      "[ $SLUICE_RANK = 0 ] && exec sleep 1000; echo so bad; ";
  const std::string report =
      "sluicerun: rank 1 ended with code 5; its last lines:\n  ";
  CHECK(RunJob(2, script + "exit 5").err == report + "so bad\n");
  CHECK(RunJob(2, script + "echo worse >&2; echo end; exit 5").err ==
        "[1] worse\n" + report + "worse\n");
  // Also what is no text.
  CHECK(RunJob(2, script + "printf 'a\\0b\\nthe reason\\n'; exit 5").err ==
        report + "so bad\n  a" + '\0' + "b\n  the reason\n");
}

// The system has no word of its end while another thread goes on.
TEST_CASE("a rank of which one thread has ended is not waited for") {
  const TemporaryFolder folder;
  const Process process(
      kLauncher,
      Job(2,
          "if [ $SLUICE_RANK = 0 ]; then echo $$ >$1/pid; exec $2 --strikes "
          "'rank 0 part start 0 0' --marks $1 train; fi; until grep -q "
          "'^State:.*Z' /proc/$(cat $1/pid)/status; do sleep 0.01; done; "
          "exit 3",
          {}, {folder.path(), SLUICE_BIN_DIR "/struck"}));
  const int code = process.Wait(std::chrono::seconds(60));
  CAPTURE(process.err());
  CHECK(code == 3);
  CHECK(Contains(process.err(), "rank 1 ended with code 3"));
}

}  // namespace
}  // namespace sluice
