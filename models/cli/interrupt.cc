#include "models/cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "models/cli/second_signal.h"

namespace sluice {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

std::atomic<int> noted{0};  // the first
SecondSignal second_signal;
std::atomic<int> launcher{0};
std::atomic<const char*> first_line{nullptr};
static_assert(std::atomic<int>::is_always_lock_free &&
                  std::atomic<int64_t>::is_always_lock_free &&
                  std::atomic<const char*>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

// From a signal handler, where stdio must not be used. The line before may be
// a status line, which has no end.
void Say(const char* line) {
  for (const char* text : {"\n", line, "\n"}) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
  }
}

void Note(int signal, siginfo_t* info, void* /*context*/) {
  const bool second =
      second_signal.Comes(signal, info->si_pid == launcher.load());
  int first = 0;
  if (noted.compare_exchange_strong(first, signal)) {
    const int error = errno;
    if (first_line.load() != nullptr) Say(first_line.load());
    errno = error;
    return;
  }
  if (!second) return;
  Say("the second signal: ending at once; what was saved before is kept");
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  raise(signal);  // comes when this handler has returned
  // But not to the first process of a container, which has no default actions.
  if (getpid() == 1) _exit(128 + signal);
}

}  // namespace

void NoteInterrupts(const char* first) {
  first_line = first;
  launcher = LauncherPid();
  struct sigaction action = {};
  action.sa_sigaction = Note;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  for (const int signal : kSignals) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

void IgnoreClosedPipes() {
  struct sigaction action = {};
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

int InterruptSignal() {
  return noted.load(std::memory_order_relaxed);
}

const char* InterruptName(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGHUP ? "SIGHUP" : "SIGTERM";
}

int InterruptNamed(std::string_view reason) {
  for (const int signal : kSignals) {
    if (reason.find(InterruptName(signal)) != std::string_view::npos) {
      return signal;
    }
  }
  return SIGTERM;
}

std::string InterruptToken::Reason() const {
  const int signal = InterruptSignal();
  return signal == 0 ? std::string()
                     : std::string(InterruptName(signal)) + " was received";
}

}  // namespace sluice
