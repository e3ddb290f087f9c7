// Runs one of our programs and looks at what it prints.
#ifndef SLUICE_TESTS_SUPPORT_PROGRAM_H_
#define SLUICE_TESTS_SUPPORT_PROGRAM_H_

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/error_text.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"

namespace sluice::testing {

inline int64_t Lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

// A run of the program, its output going to files.
class Process {
 public:
  Process(const std::string& program, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program);
    for (const std::string& argument : arguments) command_ += argument + " ";
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const std::string out = folder_ / "out", err = folder_ / "err";
    pid_ = fork();
    if (pid_ == 0) {
      dup2(open(out.c_str(), O_CREAT | O_WRONLY, 0600), STDOUT_FILENO);
      dup2(open(err.c_str(), O_CREAT | O_WRONLY, 0600), STDERR_FILENO);
      execv(program.c_str(), argv.data());
      _exit(127);
    }
  }
  std::string out() const { return TextOf(folder_ / "out"); }
  std::string err() const { return TextOf(folder_ / "err"); }
  pid_t pid() const { return pid_; }
  void Kill(int signal) const { kill(pid_, signal); }
  // Returns once stdout holds `text`; false after two minutes, four with a
  // sanitizer.
  bool WaitFor(const std::string& text) const {
    const auto end = std::chrono::steady_clock::now() + kLongestWait;
    while (out().find(text) == std::string::npos) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }
  // The exit code, or minus the signal that ended it. One that hangs is a
  // failed check, and killed.
  int Wait(std::chrono::seconds limit = kLongest) const {
    const std::optional<int> end = EndWithin(limit);
    if (end) return *end;
    FAIL_CHECK(command_ << "hangs: it has taken more than " << limit.count()
                        << " s; it said: " << err());
    return -SIGKILL;
  }
  // The same; nullopt of one that hangs, which is killed with all of its
  // children.
  std::optional<int> EndWithin(std::chrono::seconds limit) const {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < end) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) != 0) {
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    KillWithChildren(pid_);
    waitpid(pid_, nullptr, 0);
    return std::nullopt;
  }

 private:
  // Less than what tests/main.cc gives a case.
  static constexpr std::chrono::seconds kLongest{kSanitized ? 480 : 240};
  static constexpr std::chrono::seconds kLongestWait = kLongest / 2;

  static void KillWithChildren(pid_t process) {
    kill(process, SIGSTOP);  // so that it has no more of them
    std::ifstream children("/proc/" + std::to_string(process) + "/task/" +
                           std::to_string(process) + "/children");
    for (pid_t child = 0; children >> child;) KillWithChildren(child);
    kill(process, SIGKILL);
  }

  TemporaryFolder folder_;
  std::string command_;  // "program argument "
  pid_t pid_ = 0;
};

struct Outcome {
  int code;
  std::string out, err;
};
inline Outcome RunProgram(const std::string& program,
                          const std::vector<std::string>& arguments) {
  const Process process(program, arguments);
  const int code = process.Wait();
  return {code, process.out(), process.err()};
}

inline std::string LastLine(const std::string& out) {
  REQUIRE(!out.empty());
  const size_t begin = out.rfind('\n', out.size() - 2);
  return out.substr(begin == std::string::npos ? 0 : begin + 1);
}

// It failed with `code` and said why in its last line; nothing went to stdout.
inline void CheckError(const Outcome& outcome, const std::string& name,
                       int code, const std::string& part) {
  CHECK(outcome.code == code);
  CHECK(outcome.out == "");
  CHECK(Contains(outcome.err, part));
  // One line says what is wrong: the last.
  const size_t end = outcome.err.rfind('\n', outcome.err.size() - 2);
  CHECK(outcome.err.substr(end == std::string::npos ? 0 : end + 1)
            .rfind(name + ": ", 0) == 0);
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_PROGRAM_H_
