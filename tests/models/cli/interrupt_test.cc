// Signals that tell a process to end, by its parent and by others.
#include "models/cli/interrupt.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <vector>

namespace sluice {
namespace {

struct SentSignal {
  int signal;
  bool by_parent;
};

// A child of ours that notes interrupts, and answers as long as it lives.
class NotingChild {
 public:
  NotingChild() {
    REQUIRE(pipe(questions_) == 0);
    REQUIRE(pipe(answers_) == 0);
    pid_ = fork();
    if (pid_ == 0) Answer();
    close(answers_[1]);
  }
  ~NotingChild() {
    if (pid_ != 0) End();
    close(questions_[0]);
    close(answers_[0]);
  }
  NotingChild(const NotingChild&) = delete;
  NotingChild& operator=(const NotingChild&) = delete;

  void Tell(const SentSignal& sent) const {
    if (sent.by_parent) {
      kill(pid_, sent.signal);
      return;
    }
    const pid_t other = fork();
    if (other == 0) {
      kill(pid_, sent.signal);
      _exit(0);
    }
    waitpid(other, nullptr, 0);
  }
  // When it has done what signals before ask for: it reads the question in its
  // own time, not in a handler's. (That it may be gone is no SIGPIPE: we have
  // the other end, too.)
  bool Lives() const {
    char byte = '?';
    return write(questions_[1], &byte, 1) == 1 &&
           read(answers_[0], &byte, 1) == 1;
  }
  // The signal that it ended by; 0: it had to be let go.
  int End() {
    close(questions_[1]);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  [[noreturn]] void Answer() const {
    close(questions_[1]);
    close(STDERR_FILENO);  // to which it says what signals do
    setpgid(0, 0);         // so that we are who signals its group
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      std::signal(signal, SIG_DFL);  // whatever we were started with
    }
    NoteInterrupts("ending");
    char byte = 0;
    while (read(questions_[0], &byte, 1) == 1 &&
           write(answers_[1], &byte, 1) == 1) {
    }
    _exit(0);
  }

  int questions_[2] = {}, answers_[2] = {};
  pid_t pid_ = 0;
};

// A launcher passes on what comes to it, and what has come to its ranks, too.
TEST_CASE("a signal that the parent passes on is no second one") {
  constexpr bool kParent = true, kOther = false;
  // The last of each ends it, no other does.
  const std::vector<std::vector<SentSignal>> all = {
      {{SIGTERM, kParent}, {SIGTERM, kOther}, {SIGTERM, kParent}},
      {{SIGTERM, kParent}, {SIGTERM, kOther}, {SIGTERM, kOther}},
      {{SIGTERM, kOther}, {SIGTERM, kParent}, {SIGTERM, kOther}},
      {{SIGINT, kOther}, {SIGINT, kParent}, {SIGINT, kParent}},
      {{SIGTERM, kParent}, {SIGTERM, kParent}},
      {{SIGTERM, kOther}, {SIGTERM, kOther}},
      {{SIGTERM, kParent}, {SIGINT, kOther}},
      {{SIGHUP, kOther}, {SIGINT, kParent}},
      {{SIGHUP, kParent},
       {SIGHUP, kParent},
       {SIGHUP, kOther},
       {SIGTERM, kParent},
       {SIGTERM, kOther},
       {SIGHUP, kOther},
       {SIGTERM, kOther}}};
  for (size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    NotingChild child;
    for (const SentSignal& sent : all[i]) {
      REQUIRE(child.Lives());
      child.Tell(sent);
    }
    CHECK(!child.Lives());
    CHECK(child.End() == all[i].back().signal);
  }
}

}  // namespace
}  // namespace sluice
