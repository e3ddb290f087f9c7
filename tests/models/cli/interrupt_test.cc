// Signals that tell a process to end, by its parent and by others.
#include "models/cli/interrupt.h"

#include <doctest/doctest.h>
#include <sched.h>  // unshare
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "models/cli/second_signal.h"

namespace sluice {
namespace {

struct SentSignal {
  int signal;
  bool by_parent;
  bool operator==(const SentSignal&) const = default;
};

// Whatever we were started with.
void TakeDefaults() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    std::signal(signal, SIG_DFL);
  }
}

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
  bool Lives() const { return Answers('?'); }
  // Has it send itself SIGTERM twice at once.
  void TellTwice() const { Answers(kTwice); }
  // The signal that it ended by; 0: it had to be let go.
  int End() {
    close(questions_[1]);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  static constexpr char kTwice = '2';

  bool Answers(char question) const {
    return write(questions_[1], &question, 1) == 1 &&
           read(answers_[0], &question, 1) == 1;
  }
  [[noreturn]] void Answer() const {
    close(questions_[1]);
    close(STDERR_FILENO);  // to which it says what signals do
    setpgid(0, 0);         // so that we are who signals its group
    TakeDefaults();
    NoteInterrupts("ending");
    char byte = 0;
    while (read(questions_[0], &byte, 1) == 1 &&
           write(answers_[1], &byte, 1) == 1) {
      if (byte != kTwice) continue;
      raise(SIGTERM);
      raise(SIGTERM);
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
    const SentSignal& last = all[i].back();
    for (size_t k = 0; k < all[i].size(); ++k) {
      REQUIRE(child.Lives());
      const bool is_last = k + 1 == all[i].size();
      if (is_last && std::count(all[i].begin(), all[i].end(), last) > 1) {
        // Two at once are one.
        std::this_thread::sleep_for(std::chrono::milliseconds(150));
      }
      child.Tell(all[i][k]);
    }
    CHECK(!child.Lives());
    CHECK(child.End() == last.signal);
  }
}

// As timeout(1) does, which tells the process and its group.
TEST_CASE("the same signal twice at once is no second one") {
  constexpr int64_t kFirst = 7'000'000'000, kMoment = 50'000'000;
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT}) {
    for (const bool by_launcher : {false, true}) {
      SecondSignal signals;
      const auto comes = [&](int64_t after) {
        return signals.Comes(signal, by_launcher, kFirst + after);
      };
      CHECK(!comes(0));
      CHECK(!comes(0));
      CHECK(!comes(1000));
      CHECK(!comes(kMoment));
      CHECK(signals.Has(signal));
      // By the first, however many there were: a process that is sent them all
      // the time ends.
      CHECK(comes(3 * kMoment));
      CHECK(comes(4 * kMoment));
    }
  }
  // Another is no repetition, whenever it comes.
  for (const int other : {SIGTERM, SIGQUIT, SIGHUP}) {
    SecondSignal signals;
    CHECK(!signals.Comes(other, false, kFirst));
    CHECK(signals.Comes(SIGINT, false, kFirst + 1));
  }
  // One of several: a machine may stand still between two.
  int lived = 0;
  for (int attempt = 0; attempt < 5 && lived == 0; ++attempt) {
    NotingChild child;
    REQUIRE(child.Lives());
    child.TellTwice();
    if (child.Lives()) ++lived;
  }
  CHECK(lived > 0);
}

// The kernel keeps signals without a handler from such a process.
TEST_CASE("the first process of a container ends by a second signal") {
  constexpr int kRefused = 100, kLives = 101, kNotFirst = 102;
  const pid_t outside = fork();
  if (outside == 0) {
    if (unshare(CLONE_NEWPID) != 0 &&
        unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
      _exit(kRefused);
    }
    const pid_t first = fork();
    if (first == 0) {
      if (getpid() != 1) _exit(kNotFirst);
      close(STDERR_FILENO);
      TakeDefaults();
      NoteInterrupts("ending");
      raise(SIGTERM);
      raise(SIGINT);
      _exit(kLives);
    }
    int status = 0;
    if (first < 0 || waitpid(first, &status, 0) != first) _exit(kRefused);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  int status = 0;
  REQUIRE(waitpid(outside, &status, 0) == outside);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kRefused) {
    MESSAGE("this machine lets us have no namespace of processes");
    return;
  }
  CHECK(WEXITSTATUS(status) == 128 + SIGINT);
}

}  // namespace
}  // namespace sluice
