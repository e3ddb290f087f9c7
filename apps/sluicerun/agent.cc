#include "apps/sluicerun/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "apps/sluicerun/channel.h"
#include "apps/sluicerun/job.h"
#include "apps/sluicerun/output.h"
#include "apps/sluicerun/rank.h"
#include "apps/sluicerun/remote.h"
#include "apps/sluicerun/signals.h"
#include "apps/sluicerun/standstill.h"
#include "dist/membership/roster.h"
#include "dist/net/address.h"
#include "dist/net/descriptor.h"
#include "dist/net/socket.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

constexpr size_t kLongestPlan = size_t{4} << 20;
// As long as ssh takes to notice it.
constexpr std::chrono::seconds kCutOff(20);

// A byte at a time: what is behind it are words.
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
  Agent(Started rank, const RemotePlan& plan, SignalQueue& signals)
      : rank_(std::move(rank)),
        number_(plan.rank),
        timeout_kill_(plan.timeout_kill),
        peer_timeout_(plan.peer_timeout),
        signals_(signals) {}

  int Run() {
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    while (true) {
      Await();
      HearRelay();
      PassOnPackets();
      PassOnOutput(kOutputAhead);
      const auto now = std::chrono::steady_clock::now();
      if (kill_at_ && now >= *kill_at_) {
        kill(-rank_.pid, SIGKILL);
        kill_at_.reset();
      }
      EndStill(now);
      while (const auto arrival = signals_.Next()) {
        if (IsInterrupt(arrival->signal)) CutOff();
        if (arrival->signal != SIGCHLD) continue;
        if (const auto code = Ended()) return *code;
        still_.Look(rank_.pid);
      }
    }
  }

 private:
  void Await() {
    const bool room = ahead_ < kOutputAhead;
    std::array<pollfd, 5> polled = {
        pollfd{signals_.descriptor(), POLLIN, 0},
        pollfd{cut_off_ ? -1 : STDIN_FILENO, POLLIN, 0},
        pollfd{rank_.roster.get(), POLLIN, 0},
        pollfd{room ? rank_.out.get() : -1, POLLIN, 0},
        pollfd{room ? rank_.err.get() : -1, POLLIN, 0}};
    dist::Deadline next = dist::After(kCutOff);
    if (!cut_off_) next = heard_ + kCutOff;
    if (kill_at_) next = std::min(next, *kill_at_);
    if (counts()) next = std::min(next, dist::After(kStandstillTick));
    dist::Wait(polled, next);
  }

  // What the launcher has stopped is not to blame.
  bool counts() const {
    return others_ended_ && !suspended_ && still_.stopped();
  }
  void EndStill(dist::Deadline now) {
    const auto passed = now - std::exchange(looked_, now);
    if (!counts()) return;
    still_.Pass(passed);
    if (still_.time() < peer_timeout_) return;
    launcher::Say(fmt::format("rank {}, of a job that others have ended, {}",
                              number_, still_.KilledText()));
    kill(-rank_.pid, SIGKILL);
    still_ = {};
  }

  void HearRelay() {
    std::array<char, 4096> bytes;
    while (!cut_off_) {
      const ssize_t n = read(STDIN_FILENO, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) {
        if (std::chrono::steady_clock::now() >= heard_ + kCutOff) CutOff();
        return;
      }
      if (n <= 0) return CutOff();
      heard_ = std::chrono::steady_clock::now();
      words_.Add(std::string_view(bytes.data(), static_cast<size_t>(n)));
      while (const auto word = words_.Next()) Do(*word);
    }
  }

  void Do(const Word& word) {
    switch (word.kind) {
      case WordKind::kSignal:
        if (word.text.size() == 1) HandOn(word.text[0]);
        break;
      case WordKind::kTaken:
        ahead_ -= std::min<size_t>(ahead_, NumberOf(word));
        break;
      case WordKind::kRoster:
        if (rank_.roster.get() >= 0) {
          (void)send(rank_.roster.get(), word.text.data(), word.text.size(),
                     MSG_DONTWAIT | MSG_NOSIGNAL);
        }
        break;
      case WordKind::kKill:
        kill(-rank_.pid, SIGKILL);
        break;
      default:
        break;
    }
  }

  void HandOn(int signal) {
    if (IsInterrupt(signal)) told_ = true;
    if (signal == kOthersEnded) others_ended_ = true;
    if (signal == SIGTSTP || signal == SIGCONT) suspended_ = signal == SIGTSTP;
    if (IsInterrupt(signal) || IsForRanks(signal) || signal == SIGTSTP ||
        signal == SIGCONT) {
      kill(-rank_.pid, signal);
    }
  }

  void CutOff() {
    if (std::exchange(cut_off_, true)) return;
    rank_.roster = dist::Descriptor();  // the job's is gone, too
    kill(-rank_.pid, told_ ? SIGKILL : SIGTERM);
    kill(-rank_.pid, SIGCONT);
    kill_at_ = std::chrono::steady_clock::now() +
               std::chrono::duration_cast<dist::Deadline::duration>(
                   std::chrono::duration<double>(timeout_kill_));
  }

  // To nobody, where the relay is gone.
  void Say(const std::string& text) const {
    if (!cut_off_) (void)WriteAll(STDOUT_FILENO, text);
  }

  void PassOnPackets() {
    std::vector<char> bytes(dist::kRosterBytes);
    while (rank_.roster.get() >= 0) {
      const ssize_t n =
          recv(rank_.roster.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (n <= 0) {
        rank_.roster = dist::Descriptor();
        return;
      }
      Say(Encoded(WordKind::kRoster,
                  std::string_view(bytes.data(), static_cast<size_t>(n))));
    }
  }

  // As far as that is ahead of what the relay has taken.
  void PassOnOutput(size_t most) {
    PassOn(rank_.out, WordKind::kOut, most);
    PassOn(rank_.err, WordKind::kErr, most);
  }
  void PassOn(dist::Descriptor& from, WordKind kind, size_t most) {
    std::array<char, 16384> bytes;
    while (from.get() >= 0 && (ahead_ < most || cut_off_)) {
      const ssize_t n = read(from.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) {
        from = dist::Descriptor();
        return;
      }
      ahead_ += static_cast<size_t>(n);
      Say(Encoded(kind,
                  std::string_view(bytes.data(), static_cast<size_t>(n))));
    }
  }

  // What it has said before is said, and what it has left behind told to end.
  std::optional<int> Ended() {
    int status = 0;
    if (waitpid(rank_.pid, &status, WNOHANG) != rank_.pid) return std::nullopt;
    kill(-rank_.pid, SIGTERM);
    PassOnPackets();
    PassOnOutput(SIZE_MAX);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    const int signal = WIFEXITED(status) ? 0 : WTERMSIG(status);
    Say(Encoded(WordKind::kEnded, std::string{static_cast<char>(signal),
                                              static_cast<char>(code)}));
    return signal == 0 ? code : kSignalBase + signal;
  }

  Started rank_;
  const int number_;
  const double timeout_kill_;
  const std::chrono::duration<double> peer_timeout_;
  SignalQueue& signals_;
  WordReader words_;
  size_t ahead_ = 0;  // bytes of output that were sent and not taken
  bool told_ = false, cut_off_ = false;
  dist::Deadline heard_ = std::chrono::steady_clock::now();
  std::optional<dist::Deadline> kill_at_;
  Standstill still_;
  bool others_ended_ = false, suspended_ = false;
  dist::Deadline looked_ = std::chrono::steady_clock::now();
};

// Where rank 0 or a server listens, which everybody is told: `at`. Of an
// elastic job each rank does, later.
dist::Listener ListenFor(const RemotePlan& plan, std::string* at) {
  if (!plan.one_host) ThrowIfError(dist::CheckNamesHost(plan.listen));
  dist::Listener listener =
      dist::Listener::Open(plan.listen, plan.port).ValueOrThrow();
  *at = dist::HostAndPort(plan.listen, listener.port());
  if (plan.port == 0) {
    fmt::print("{}{}\n", kListensAt, *at);
    std::fflush(stdout);
  }
  return listener;
}

// Of those before it and itself.
Started StartServerOf(const RemotePlan& plan, const dist::Listener& listener,
                      const std::string& at, const SignalQueue& signals) {
  JobPlan job = plan.job;
  if (plan.port == 0) job.servers += (job.servers.empty() ? "" : ",") + at;
  return StartServer(
      job,
      {.number = plan.server,
       .listen_fd = listener.descriptor(),
       .credentials = job.credentials.empty() ? "" : job.credentials[0]},
      signals);
}

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
  std::string at;
  if (job.elastic) {
    if (!plan.one_host) ThrowIfError(dist::CheckNamesHost(job.address));
  } else if (plan.rank == 0 || plan.server >= 0) {
    listener = ListenFor(plan, &at);
  }
  if (listener && plan.server < 0) {
    job.coordinator = at;
    job.listen_fd = listener->descriptor();
  }
  if (job.pin) job.cpus = AllowedCpus();
  job.reads = false;
  getrlimit(RLIMIT_NOFILE, &job.open_files);
  SignalQueue signals;
  Started started = plan.server < 0
                        ? StartRank(job, plan.rank, signals)
                        : StartServerOf(plan, *listener, at, signals);
  if (started.error != 0) {
    Say(fmt::format("cannot run '{}' on this host: {}", job.command[0],
                    std::generic_category().message(started.error)));
    return started.error == ENOENT ? kNotFound : kNotRunnable;
  }
  listener.reset();
  (void)WriteAll(STDOUT_FILENO, kAgentBegins);
  return Agent(std::move(started), plan, signals).Run();
}

}  // namespace sluice::launcher
