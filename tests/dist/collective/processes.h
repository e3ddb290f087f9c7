// A job whose processes are processes.
#ifndef SLUICE_TESTS_DIST_COLLECTIVE_PROCESSES_H_
#define SLUICE_TESTS_DIST_COLLECTIVE_PROCESSES_H_

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/collective/group.h"
#include "dist/launch_info.h"
#include "tests/dist/collective/ranks.h"

namespace sluice::dist::testing {

// A rank in a process of its own, which writes what it has to say and a newline
// for each line. Killed with its owner.
class Process {
 public:
  using Say = std::function<void(const std::string&)>;

  // `body` runs in the process, in which no other thread does.
  explicit Process(const std::function<void(const Say&)>& body) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    std::fflush(nullptr);  // what is not yet printed is the parent's
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      body([&](const std::string& line) {
        const std::string whole = line + "\n";
        (void)!write(ends[1], whole.data(), whole.size());
      });
      _exit(0);
    }
    close(ends[1]);
    out_ = ends[0];
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(out_);
  }

  pid_t pid() const { return pid_; }
  int descriptor() const { return out_; }
  // The next line; empty where there is none.
  std::string Line() const {
    std::string line;
    char c = 0;
    while (read(out_, &c, 1) == 1 && c != '\n') line += c;
    return line;
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
};

using Processes = std::vector<std::unique_ptr<Process>>;

// All ranks; each joins and does `body`. A status that is an error is a line.
inline Processes Start(
    int size, Wires wires, std::chrono::milliseconds peer_timeout,
    const std::function<Status(Group&, const Process::Say&)>& body,
    Algorithm all_reduce = Algorithm::kAuto) {
  Processes processes;
  for (const LaunchInfo& info : Launch(size, wires)) {
    processes.push_back(std::make_unique<Process>([&](const Process::Say& say) {
      GroupOptions options;
      options.peer_timeout = peer_timeout;
      options.transport = TransportOf(wires, info.rank);
      options.all_reduce = all_reduce;
      auto group = Group::Join(info, options);
      Status status = group.status();
      if (group.ok()) status = body(**group, say);
      say(status.ToString());
    }));
    if (info.listen_fd >= 0) close(info.listen_fd);
  }
  return processes;
}

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_COLLECTIVE_PROCESSES_H_
