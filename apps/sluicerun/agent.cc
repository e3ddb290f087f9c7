#include "apps/sluicerun/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "apps/sluicerun/job.h"
#include "apps/sluicerun/output.h"
#include "apps/sluicerun/rank.h"
#include "apps/sluicerun/remote.h"
#include "apps/sluicerun/signals.h"
#include "dist/net/address.h"
#include "dist/net/descriptor.h"
#include "dist/net/socket.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

constexpr size_t kLongestPlan = size_t{4} << 20;

// A byte at a time: what is behind it are signals.
std::string ReadLine() {
  std::string line;
  char byte = 0;
  while (line.size() < kLongestPlan) {
    const ssize_t n = read(STDIN_FILENO, &byte, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || byte == '\n') break;
    line += byte;
  }
  return line;
}

// Watches over the rank.
class Agent {
 public:
  Agent(pid_t rank, double timeout_kill, SignalQueue& signals)
      : rank_(rank), timeout_kill_(timeout_kill), signals_(signals) {}

  int Run() {
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    while (true) {
      std::array<pollfd, 2> polled = {
          pollfd{signals_.descriptor(), POLLIN, 0},
          pollfd{cut_off_ ? -1 : STDIN_FILENO, POLLIN, 0}};
      dist::Wait(polled, kill_at_.value_or(dist::After(std::chrono::hours(1))));
      if (polled[1].revents != 0) HandOn();
      if (kill_at_ && std::chrono::steady_clock::now() >= *kill_at_) {
        kill(-rank_, SIGKILL);
        kill_at_.reset();
      }
      while (const auto arrival = signals_.Next()) {
        if (IsInterrupt(arrival->signal)) CutOff();
        if (arrival->signal != SIGCHLD) continue;
        if (const auto code = Ended()) {
          kill(-rank_, SIGTERM);  // what it has left behind
          return *code;
        }
      }
    }
  }

 private:
  void HandOn() {
    std::array<unsigned char, 64> bytes;
    const ssize_t n = read(STDIN_FILENO, bytes.data(), bytes.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      CutOff();
      return;
    }
    for (ssize_t i = 0; i < n; ++i) {
      const int signal = bytes[static_cast<size_t>(i)];
      if (IsInterrupt(signal)) told_ = true;
      if (IsInterrupt(signal) || signal == SIGTSTP || signal == SIGCONT) {
        kill(-rank_, signal);
      }
    }
  }

  void CutOff() {
    if (std::exchange(cut_off_, true)) return;
    kill(-rank_, told_ ? SIGKILL : SIGTERM);
    kill(-rank_, SIGCONT);
    kill_at_ = std::chrono::steady_clock::now() +
               std::chrono::duration_cast<dist::Deadline::duration>(
                   std::chrono::duration<double>(timeout_kill_));
  }

  std::optional<int> Ended() const {
    int status = 0;
    if (waitpid(rank_, &status, WNOHANG) != rank_) return std::nullopt;
    return WIFEXITED(status) ? WEXITSTATUS(status)
                             : kSignalBase + WTERMSIG(status);
  }

  const pid_t rank_;
  const double timeout_kill_;
  SignalQueue& signals_;
  bool told_ = false, cut_off_ = false;
  std::optional<dist::Deadline> kill_at_;
};

}  // namespace

int RunAgent() {
  RemotePlan plan = DecodedPlan(ReadLine());
  JobPlan& job = plan.job;
  if (chdir(plan.folder.c_str()) != 0) {
    throw Error(Code::kNotFound,
                fmt::format("the folder '{}' of this host: {}", plan.folder,
                            std::generic_category().message(errno)));
  }
  std::optional<dist::Listener> listener;
  if (plan.rank == 0) {
    ThrowIfError(dist::CheckNamesHost(plan.listen));
    listener = dist::Listener::Open(plan.listen).ValueOrThrow();
    job.coordinator = dist::HostAndPort(plan.listen, listener->port());
    job.listen_fd = listener->descriptor();
    fmt::print("{}{}\n", kListensAt, job.coordinator);
    std::fflush(stdout);
  }
  if (job.pin) job.cpus = AllowedCpus();
  job.inherits_output = true;
  getrlimit(RLIMIT_NOFILE, &job.open_files);
  SignalQueue signals;
  const Started started = StartRank(job, plan.rank, signals);
  if (started.error != 0) {
    Say(fmt::format("cannot run '{}' on this host: {}", job.command[0],
                    std::generic_category().message(started.error)));
    return started.error == ENOENT ? kNotFound : kNotRunnable;
  }
  listener.reset();
  return Agent(started.pid, plan.timeout_kill, signals).Run();
}

}  // namespace sluice::launcher
