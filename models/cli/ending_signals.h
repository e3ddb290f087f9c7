// SIGINT, SIGTERM and SIGHUP, of a process that serves others until it is told
// to end by one of them.
#ifndef SLUICE_MODELS_CLI_ENDING_SIGNALS_H_
#define SLUICE_MODELS_CLI_ENDING_SIGNALS_H_

#include <pthread.h>

#include <csignal>
#include <ctime>

namespace sluice {

inline sigset_t EndingSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    sigaddset(&signals, signal);
  }
  return signals;
}

// From now on they wait until they are asked for: by this thread and those that
// it starts, which have its mask.
inline void HoldEndingSignals() {
  const sigset_t signals = EndingSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// Whether one has come; waits a moment for it.
inline bool EndingSignalCame() {
  constexpr timespec kLook = {.tv_sec = 0, .tv_nsec = 100'000'000};
  const sigset_t signals = EndingSignals();
  return sigtimedwait(&signals, nullptr, &kLook) > 0;
}

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_ENDING_SIGNALS_H_
