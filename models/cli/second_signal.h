// Of the signals that tell a process to end, which one is a second: what the
// first has told to end in its own time is to end at once.
#ifndef SLUICE_MODELS_CLI_SECOND_SIGNAL_H_
#define SLUICE_MODELS_CLI_SECOND_SIGNAL_H_

#include <atomic>
#include <csignal>

namespace sluice {

// Who signals all of this process's group, a launcher or a shell: the parent of
// the group's leader, which is this process, or a script that has started it.
// 0: the leader has gone. Not for signal handlers.
int LauncherPid();

// SIGINT, SIGTERM, SIGQUIT and SIGHUP, as they come. Thread-safe, and for
// signal handlers.
class SecondSignal {
 public:
  // Notes one more. Whether it is a second: SIGINT after any other, or the same
  // once more. Not SIGHUP: a session that ends may send one of each, and it by
  // the shell and by the kernel. One by the launcher may be what that passes
  // on, of a signal that has come to all of a job at once (systemd's, to a
  // service that is stopped): it is not the same as one from elsewhere.
  bool Comes(int signal, bool by_launcher = false) {
    const unsigned bit = 1U << signal;
    std::atomic<unsigned>& sender =
        by_launcher ? by_launcher_ : from_elsewhere_;
    const bool again = (sender.fetch_or(bit) & bit) != 0;
    if (signal == SIGHUP) return false;
    return again || (signal == SIGINT && (seen() & ~bit) != 0);
  }
  // Whether it has come, of these four.
  bool Has(int signal) const { return (seen() & (1U << signal)) != 0; }

 private:
  unsigned seen() const { return by_launcher_.load() | from_elsewhere_.load(); }

  std::atomic<unsigned> by_launcher_{0}, from_elsewhere_{0};  // by their bits
};

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_SECOND_SIGNAL_H_
