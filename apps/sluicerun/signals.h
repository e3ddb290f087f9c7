// The signals that the launcher waits for, as something to poll.
#ifndef SLUICE_APPS_SLUICERUN_SIGNALS_H_
#define SLUICE_APPS_SLUICERUN_SIGNALS_H_

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>

#include "dist/net/descriptor.h"

namespace sluice::launcher {

// From its making on, this process takes no signal by itself that would end
// or stop it, but for SIGKILL, SIGSTOP and those of a crash; those that it was
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
  // In a child before exec: all signals act again as they did for us.
  void RestoreInChild() const;

 private:
  dist::Descriptor queue_;
  sigset_t mask_before_;
  struct sigaction pipe_before_;
};

// To a relay and, through it, its agent: other ranks have ended well, so that
// nobody but these misses one that stands still. To anybody else nothing.
inline constexpr int kOthersEnded = SIGURG;

// Tells a process to end.
bool IsInterrupt(int signal);
// Means what the ranks make of it.
bool IsForRanks(int signal);

// "SIGSEGV"
std::string SignalName(int signal);

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_SIGNALS_H_
