#include "models/cli/interrupt.h"

#include <atomic>
#include <csignal>

namespace sluice {
namespace {

std::atomic<int> noted{0};
static_assert(std::atomic<int>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

void Note(int signal) {
  noted.store(signal, std::memory_order_relaxed);
}

}  // namespace

void NoteInterrupts() {
  struct sigaction action = {};
  action.sa_handler = Note;
  // The second signal finds the default action, which ends the process.
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int InterruptSignal() {
  return noted.load(std::memory_order_relaxed);
}

const char* InterruptName(int signal) {
  return signal == SIGINT ? "SIGINT" : "SIGTERM";
}

std::string InterruptToken::Reason() const {
  const int signal = InterruptSignal();
  return signal == 0 ? std::string()
                     : std::string(InterruptName(signal)) + " was received";
}

}  // namespace sluice
