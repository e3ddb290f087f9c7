// Recognises the second of the signals that tell a process to end: the first
// asks it to end in its own time, the second to end at once.
#ifndef SLUICE_MODELS_CLI_SECOND_SIGNAL_H_
#define SLUICE_MODELS_CLI_SECOND_SIGNAL_H_

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace sluice {

// The process that signals all of this process's group, a launcher or a shell:
// the parent of the group's leader, which is this process or a script that has
// started it. 0: the leader has gone. Not for signal handlers.
int LauncherPid();

// SIGINT, SIGTERM, SIGQUIT and SIGHUP, as they come. Thread-safe, and for
// signal handlers.
class SecondSignal {
 public:
  // Notes one more, at `now`, nanoseconds above 0 of a clock that does not go
  // back. Whether it is a second: SIGINT after any other, or the same once
  // more. Not SIGHUP: a session that ends may send one of each, and it by
  // the shell and by the kernel. One by the launcher may be what that passes
  // on, of a signal that has come to all of a job at once (systemd's, to a
  // service that is stopped): it is not the same as one from elsewhere. Nor is
  // one that comes at once with the first: timeout(1) sends it to the process
  // and to its group.
  bool Comes(int signal, bool by_launcher = false, int64_t now = Now()) {
    constexpr int64_t kAtOnce = 100'000'000;
    int64_t first = 0;
    const bool again =
        !first_[by_launcher ? 1 : 0][signal].compare_exchange_strong(first,
                                                                     now) &&
        now - first > kAtOnce;
    if (signal == SIGHUP) return false;
    return again ||
           (signal == SIGINT && (Has(SIGTERM) || Has(SIGQUIT) || Has(SIGHUP)));
  }
  // Whether `signal`, one of these four, has come.
  bool Has(int signal) const {
    return first_[0][signal] != 0 || first_[1][signal] != 0;
  }

 private:
  static int64_t Now() {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
  }

  // When each first came, from elsewhere and by the launcher; 0: it has not.
  std::atomic<int64_t> first_[2][SIGTERM + 1] = {};
};

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_SECOND_SIGNAL_H_
