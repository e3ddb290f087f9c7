// Runs cases in a child process, so that one that kills it is a fault of that
// case and the rest still run.
#ifndef SLUICE_TESTS_SUPPORT_APART_H_
#define SLUICE_TESTS_SUPPORT_APART_H_

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/sanitizers.h"

namespace sluice::testing {

struct Verdict {
  std::string fault;     // empty if there is none
  bool refused = false;  // by an error, so that nothing was tried
};
struct Case {
  std::string name;
  std::function<Verdict()> run;  // catches exceptions itself
};
struct ApartResult {
  std::vector<std::string> faults;  // "NAME: what went wrong"
  size_t refused = 0;
};

struct ApartOptions {
  // That a case may take, less than what tests/main.cc gives all of them.
  unsigned seconds = 200;
  size_t memory = size_t{4} << 30;  // bytes that the child may map, ours too
};

// Must be called before this process has threads.
inline ApartResult RunApart(const std::vector<Case>& cases,
                            const ApartOptions& options = {}) {
  constexpr size_t kText = 1 << 20;
  struct Shared {
    size_t next;     // the case under way
    size_t refused;  // cases
    size_t used;     // of text
    char text[kText];
  };
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {{"no shared memory"}};
  auto* shared = static_cast<Shared*>(memory);
  ApartResult result;
  std::vector<std::string>& faults = result.faults;
  while (shared->next < cases.size()) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) return {{"no child process"}};
    if (child == 0) {
#ifndef SLUICE_ADDRESS_SANITIZER  // which maps terabytes
      rlimit limit{options.memory, options.memory};
      setrlimit(RLIMIT_AS, &limit);
#endif
      // Not the test framework's, which report a crash of their own.
      for (int s : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTERM}) {
        std::signal(s, SIG_DFL);
      }
      rlimit no_core{0, 0};
      setrlimit(RLIMIT_CORE, &no_core);
      for (; shared->next < cases.size(); ++shared->next) {
        alarm(options.seconds);
        const Case& c = cases[shared->next];
        const Verdict verdict = c.run();
        shared->refused += verdict.refused ? 1 : 0;
        if (verdict.fault.empty()) continue;
        const std::string line = c.name + ": " + verdict.fault + "\n";
        const size_t length = std::min(line.size(), kText - shared->used);
        std::memcpy(shared->text + shared->used, line.data(), length);
        shared->used += length;
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (shared->next >= cases.size()) break;
    const std::string name = cases[shared->next].name;
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      faults.push_back(name + ": " +
                       (signal == SIGALRM ? "hung" : strsignal(signal)));
    } else {
      faults.push_back(name + ": ended the process with status " +
                       std::to_string(WEXITSTATUS(status)));
    }
    ++shared->next;
  }
  std::istringstream text(std::string(shared->text, shared->used));
  for (std::string line; std::getline(text, line);) faults.push_back(line);
  result.refused = shared->refused;
  munmap(memory, sizeof(Shared));
  return result;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_APART_H_
