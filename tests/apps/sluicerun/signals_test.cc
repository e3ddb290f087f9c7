// Signals that come for the launcher while it reaches hosts, and those that
// mean what the ranks make of them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>

#include "tests/apps/sluicerun/struck_job.h"
#include "tests/support/error_text.h"
#include "tests/support/launched.h"
#include "tests/support/program.h"
#include "tests/support/stand_in_ssh.h"

namespace sluice {
namespace {

using testing::AwaitTrue;
using testing::CodeOf;
using testing::Contains;
using testing::Joined;
using testing::kLauncher;
using testing::Lines;
using testing::Process;
using testing::StandInSsh;
using testing::StandsStill;
using testing::TemporaryFolder;
using testing::TextOf;
using testing::Words;

// Each host is asked, and lets in when the test says so.
constexpr char kSlow[] =
    "echo $1 >>$at/asked; while [ ! -e $at/go ]; do sleep 0.02; done; "
    "exec /bin/sh -c \"$2\"";

const Words kSaysWho = {"/bin/sh", "-c", "echo rank $SLUICE_RANK"};

TEST_CASE("Ctrl-Z while a host is reached, and after it all others are") {
  const StandInSsh ssh(kSlow);
  const Process process(kLauncher, Joined(ssh.Options(), kSaysWho));
  AwaitTrue([&] { return Lines(TextOf(ssh.at("asked"))) == 1; });
  process.Kill(SIGTSTP);
  AwaitTrue([&] { return StandsStill(process.pid()); });
  process.Kill(SIGCONT);
  AwaitTrue([&] { return !StandsStill(process.pid()); });
  std::ofstream(ssh.at("go")) << "go";
  const int code = CodeOf(process);
  CAPTURE(process.err());
  CHECK(code == 0);
  CHECK(Contains(process.out(), "[0] rank 0\n"));
  CHECK(Contains(process.out(), "[1] rank 1\n"));
}

TEST_CASE("Ctrl-C while a host is reached ends that, and asks no other") {
  const StandInSsh ssh(kSlow);
  const Process process(
      kLauncher, Joined(ssh.Options(), {"--timeout-kill", "0.2", "/bin/sh",
                                        "-c", "echo ran; exec sleep 1000"}));
  AwaitTrue([&] { return Lines(TextOf(ssh.at("asked"))) == 1; });
  process.Kill(SIGINT);
  std::ofstream(ssh.at("go")) << "go";
  CHECK(CodeOf(process) == 128 + SIGINT);
  CHECK(Lines(TextOf(ssh.at("asked"))) == 1);
}

// The one that fails ends last, so that what it says is not of an end that has
// been noted already.
TEST_CASE("a rank that fails when it is interrupted has failed") {
  for (const int code : {0, 3}) {
    const TemporaryFolder folder;
    const Process process(
        kLauncher,
        testing::Job(2,
                     "if [ $SLUICE_RANK = 0 ]; then trap 'while [ ! -e "
                     "$1/1 ]; do sleep 0.01; done; sleep 0.5; echo the disk is "
                     "full >&2; exit $2' INT; else trap 'exit 130' INT; trap "
                     "'echo >$1/1' EXIT; fi; echo ready; while :; do sleep "
                     "0.01; done",
                     {}, {folder.path(), std::to_string(code)}));
    AwaitTrue([&] { return Lines(process.out()) == 2; });
    process.Kill(SIGINT);
    const int ended = CodeOf(process);
    CAPTURE(process.err());
    CHECK(ended == (code == 0 ? 128 + SIGINT : code));
    CHECK(Contains(process.err(), "rank 0 ended with code 3") == (code == 3));
  }
}

TEST_CASE("a rank that fails as others have ended at once has not failed") {
  for (const int interrupts : {1, 2}) {
    CAPTURE(interrupts);
    const TemporaryFolder folder;
    const Process process(
        kLauncher,
        testing::Job(2,
                     "if [ $SLUICE_RANK = 0 ]; then left=$2; trap "
                     "'left=$((left-1)); echo told; [ $left = 0 ] && exit 130' "
                     "INT; trap 'echo >$1/0' EXIT; else trap : INT; fi; echo "
                     "ready; while [ ! -e $1/0 ]; do sleep 0.01; done; sleep "
                     "0.5; echo where is rank 0 >&2; exit 1",
                     {}, {folder.path(), std::to_string(interrupts)}));
    AwaitTrue([&] { return Lines(process.out()) == 2; });
    for (int i = 0; i < interrupts; ++i) {
      // Two at once would be one.
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      process.Kill(SIGINT);
      AwaitTrue([&] { return Lines(process.out()) == 3 + i; });
    }
    const int ended = CodeOf(process);
    CAPTURE(process.err());
    CHECK(ended == (interrupts == 1 ? 1 : 128 + SIGINT));
    CHECK(Contains(process.err(), "ended with code") == (interrupts == 1));
  }
}

// Counts those that have come.
const Words kCounts = {
    "/bin/sh", "-c",
    "one=0; two=0; trap 'one=$((one+1)); echo one' USR1; trap 'two=$((two+1))' "
    "USR2; "
    "echo ready; while [ $two = 0 ]; do sleep 0.01; done; echo $one $two"};

TEST_CASE("SIGUSR1 and SIGUSR2 go to every rank once and end nobody") {
  const StandInSsh ssh("exec /bin/sh -c \"$2\"");
  for (const Words& options : {Words{"-n", "2"}, ssh.Options()}) {
    const Process process(kLauncher, Joined(options, kCounts));
    AwaitTrue([&] { return Lines(process.out()) == 2; });
    process.Kill(SIGUSR1);
    // Shells hear two that wait in any order.
    AwaitTrue([&] { return Lines(process.out()) == 4; });
    process.Kill(SIGUSR2);
    const int code = CodeOf(process);
    CAPTURE(process.err());
    CHECK(code == 0);
    CHECK(Contains(process.out(), "[0] 1 1\n"));
    CHECK(Contains(process.out(), "[1] 1 1\n"));
  }
}

}  // namespace
}  // namespace sluice
