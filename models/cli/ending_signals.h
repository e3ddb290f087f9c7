// SIGINT, SIGTERM and SIGHUP, of a process that serves others until it is told
// to end by one of them.
#ifndef SLUICE_MODELS_CLI_ENDING_SIGNALS_H_
#define SLUICE_MODELS_CLI_ENDING_SIGNALS_H_

#include <pthread.h>

#include <csignal>
#include <ctime>

namespace sluice {

// Without those that the process was started to ignore (nohup): blocked, they
// would be queued, and end it after all.
inline sigset_t EndingSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now = {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&signals, signal);
  }
  return signals;
}

// From now on they wait until they are asked for: by this thread and those that
// it starts, which have its mask.
inline void HoldEndingSignals() {
  const sigset_t signals = EndingSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// One that has come, and in `info`, unless that is null, by whom; 0: none has.
// Waits a moment for it.
inline int EndingSignal(siginfo_t* info) {
  constexpr timespec kLook = {.tv_sec = 0, .tv_nsec = 100'000'000};
  const sigset_t signals = EndingSignals();
  const int signal = sigtimedwait(&signals, info, &kLook);
  return signal > 0 ? signal : 0;
}
inline bool EndingSignalCame() {
  return EndingSignal(nullptr) != 0;
}
// Whether one has come that has not been asked for.
inline bool EndingSignalPends() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGINT) == 1 ||
         sigismember(&pending, SIGTERM) == 1 ||
         sigismember(&pending, SIGHUP) == 1;
}

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_ENDING_SIGNALS_H_
