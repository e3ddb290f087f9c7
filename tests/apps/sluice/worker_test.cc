// `sluice worker` from outside: what does not end it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "dist/net/descriptor.h"
#include "dist/net/socket.h"
#include "engine/status.h"
#include "tests/places.h"
#include "tests/support/config_jobs.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Process;
using testing::TemporaryFolder;

// Started by a line of sh, whose "$@" it is.
class Worker {
 public:
  explicit Worker(const std::string& line)
      : process_("/bin/sh",
                 {"-c", line, "sh", SLUICE_BIN_DIR "/sluice", "worker",
                  "--token-file", testing::TokenFile(folder_)}) {
    REQUIRE(process_.WaitFor("\n"));
    const std::string out = process_.out();
    port_ = std::stoi(out.substr(out.rfind(':') + 1));
  }

  // A stranger comes: returns when that one is refused, which the worker says
  // before.
  void RefuseOne() const {
    const dist::Deadline soon = dist::After(std::chrono::seconds(30));
    dist::Socket socket =
        dist::Socket::Connect("127.0.0.1", port_, soon).ValueOrThrow();
    std::vector<std::byte> bytes(5000, std::byte{7});
    ThrowIfError(socket.Send(dist::Bytes(bytes), soon));
    CHECK_FALSE(socket.Receive(dist::MutableBytes(bytes), soon).ok());
  }
  void Kill(int signal) const { process_.Kill(signal); }
  int Wait() const { return process_.Wait(); }

 private:
  const TemporaryFolder folder_;
  const Process process_;
  int port_ = 0;
};

TEST_CASE("a worker has a line to say that nobody can read, and goes on") {
  const TemporaryFolder folder;
  // Closed, on a full disk, and a pipe whose reader goes at once.
  for (const std::string& line :
       {std::string("exec \"$@\" 2>&-"),
        std::string("exec \"$@\" 2> /dev/full"),
        fmt::format("mkfifo {0}; : < {0} & exec \"$@\" 2> {0}",
                    folder / "pipe")}) {
    CAPTURE(line);
    const Worker worker(line);
    worker.RefuseOne();
    worker.Kill(SIGTERM);
    CHECK(worker.Wait() == 0);
  }
}

TEST_CASE("a worker does not end by a signal that it is to ignore") {
  for (const auto& [name, signal] :
       {std::pair("INT", SIGINT), {"HUP", SIGHUP}}) {
    CAPTURE(name);
    const Worker worker(fmt::format("trap '' {}; exec \"$@\"", name));
    worker.Kill(signal);
    for (int i = 0; i < 10; ++i) worker.RefuseOne();
    worker.Kill(SIGTERM);
    CHECK(worker.Wait() == 0);
  }
}

}  // namespace
}  // namespace sluice
