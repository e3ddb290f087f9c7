// The signals that the launcher waits for, as something to poll.
#ifndef SLUICE_APPS_SLUICERUN_SIGNALS_H_
#define SLUICE_APPS_SLUICERUN_SIGNALS_H_

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>

#include "dist/net/descriptor.h"

namespace sluice::launcher {

// Once this is made, no signal that would end or stop the process acts by
// itself, but for SIGKILL, SIGSTOP and those of a crash; those that it was
// started to ignore (nohup) stay ignored. Only one may be made. Throws Error.
class SignalQueue {
 public:
  struct Arrival {
    int signal;
    pid_t pid;  // of SIGCHLD: which child; of several that came together, the
                // first
  };

  SignalQueue();
  // Readable when Next has something to give.
  int descriptor() const { return queue_.get(); }
  std::optional<Arrival> Next();
  // To be called in a child before exec: all signals act again as they did for
  // us.
  void RestoreInChild() const;

 private:
  dist::Descriptor queue_;
  sigset_t mask_before_;
  struct sigaction pipe_before_;
};

// The signal that tells a relay and, through it, its agent that other ranks
// have ended well, so that only these two miss one that stands still. It means
// nothing to other processes.
inline constexpr int kOthersEnded = SIGURG;

// Tells a process to end.
bool IsInterrupt(int signal);
// Means what the ranks make of it.
bool IsForRanks(int signal);

// "SIGSEGV"
std::string SignalName(int signal);

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_SIGNALS_H_
