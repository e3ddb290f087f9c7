// What finds tests that hang.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>

#include "tests/support/await.h"
#include "tests/support/program.h"
#include "tests/support/watchdog.h"

namespace sluice::testing {
namespace {

using std::chrono::milliseconds;

// What a process that hangs within a watchdog's scope, or behind it, says, and
// the signal that has ended it.
std::string Hung(bool behind, int* signal_number) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // not the test framework's
    dup2(ends[1], STDERR_FILENO);
    {
      const Watchdog watchdog(milliseconds(200), "the child");
      while (!behind) pause();
    }
    usleep(500'000);
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  for (char c = 0; read(ends[0], &c, 1) == 1;) text += c;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  *signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return text;
}

TEST_CASE("a watchdog says what hangs, and where, and ends it") {
  int signal_number = 0;
  const std::string text = Hung(false, &signal_number);
  CAPTURE(text);
  CHECK(signal_number == SIGABRT);
  CHECK(text.starts_with(
      "the child hangs: it has taken more than 200 ms\na thread:\n"));
  CHECK(Lines(text) > 4);  // with its stack
  CHECK(Hung(true, &signal_number) == "");
  CHECK(signal_number == 0);
}

TEST_CASE("a program that hangs is ended with its children") {
  const Process process("/bin/sh", {"-c", "sleep 77 & echo $!; wait"});
  REQUIRE(process.WaitFor("\n"));
  const std::string child = process.out();
  CHECK(process.EndWithin(std::chrono::seconds(1)) == std::nullopt);
  // It has been killed, which takes effect when it runs next.
  AwaitTrue([stat = "/proc/" + child.substr(0, child.size() - 1) + "/stat"] {
    const std::string text = TextOf(stat);
    return text.empty() || text.find(") Z ") != text.npos;
  });
  CHECK(RunProgram("/bin/sh", {"-c", "exit 3"}).code == 3);
}

// By the failure that it wants.
TEST_CASE("a program that hangs is a failure" * doctest::should_fail()) {
  const Process process("/bin/sh", {"-c", "echo word >&2; sleep 77"});
  CHECK(process.Wait(std::chrono::seconds(1)) == -SIGKILL);
}

}  // namespace
}  // namespace sluice::testing
