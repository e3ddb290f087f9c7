#include "apps/sluicerun/signals.h"

#include <fmt/format.h>
#include <string.h>  // sigabbrev_np
#include <sys/signalfd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <span>
#include <system_error>

#include "engine/status.h"

namespace sluice::launcher {
namespace {

constexpr int kInterrupts[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr int kForRanks[] = {SIGUSR1, SIGUSR2};
constexpr int kOthers[] = {SIGTSTP, SIGCONT, SIGCHLD, kOthersEnded};

bool IsOneOf(std::span<const int> signals, int signal) {
  return std::find(signals.begin(), signals.end(), signal) != signals.end();
}

void AddUnlessIgnored(int signal, sigset_t& set) {
  struct sigaction now = {};
  sigaction(signal, nullptr, &now);
  // Blocked, it would arrive after all.
  if (now.sa_handler != SIG_IGN) sigaddset(&set, signal);
}

}  // namespace

SignalQueue::SignalQueue() {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &action, nullptr);  // ignored, children leave no status
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, &pipe_before_);
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kInterrupts) AddUnlessIgnored(signal, set);
  for (const int signal : kForRanks) AddUnlessIgnored(signal, set);
  for (const int signal : kOthers) AddUnlessIgnored(signal, set);
  sigprocmask(SIG_BLOCK, &set, &mask_before_);
  queue_ = dist::Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (queue_.get() < 0) {
    throw Error(Code::kUnavailable, "no signalfd to be had: " +
                                        std::generic_category().message(errno));
  }
}

std::optional<SignalQueue::Arrival> SignalQueue::Next() {
  signalfd_siginfo info;
  if (read(queue_.get(), &info, sizeof info) != sizeof info) return {};
  return Arrival{static_cast<int>(info.ssi_signo),
                 static_cast<pid_t>(info.ssi_pid)};
}

void SignalQueue::RestoreInChild() const {
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

bool IsInterrupt(int signal) {
  return IsOneOf(kInterrupts, signal);
}

bool IsForRanks(int signal) {
  return IsOneOf(kForRanks, signal);
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal)
                         : fmt::format("SIG{}", name);
}

}  // namespace sluice::launcher
