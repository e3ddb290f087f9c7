// A worker that is a process of its own: `sluice worker`.
#ifndef SLUICE_TESTS_DIST_CLUSTER_WORKER_PROCESS_H_
#define SLUICE_TESTS_DIST_CLUSTER_WORKER_PROCESS_H_

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/dist/cluster/workers.h"
#include "tests/places.h"

namespace sluice::dist::testing {

// Ends with its owner, who may have killed it before.
class WorkerProcess {
 public:
  // Port 0: any. It knows its cluster by what `secrets` says.
  WorkerProcess(int task, int port, std::vector<std::string> secrets) {
    int out[2];
    REQUIRE(pipe2(out, O_CLOEXEC) == 0);
    std::vector<std::string> words = {std::string(SLUICE_BIN_DIR) + "/sluice",
                                      "worker",
                                      "--name",
                                      WorkerName(task),
                                      "--listen",
                                      "127.0.0.1:" + std::to_string(port),
                                      "--peer-timeout",
                                      "3"};
    words.insert(words.end(), secrets.begin(), secrets.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(out[1], STDOUT_FILENO);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    close(out[1]);
    std::string line;
    for (char c = 0; read(out[0], &c, 1) == 1 && c != '\n';) line += c;
    close(out[0]);
    CAPTURE(line);
    REQUIRE(line.starts_with(WorkerName(task) + " listens at 127.0.0.1:"));
    port_ = std::atoi(line.c_str() + line.rfind(':') + 1);
  }
  ~WorkerProcess() { Kill(); }
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  void Stop() const { kill(pid_, SIGSTOP); }
  // By SIGTERM: its exit code.
  int End() {
    kill(pid_, SIGTERM);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  int port() const { return port_; }

 private:
  pid_t pid_ = 0;
  int port_ = 0;
};

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_CLUSTER_WORKER_PROCESS_H_
