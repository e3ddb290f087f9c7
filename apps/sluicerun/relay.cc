#include "apps/sluicerun/relay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "apps/sluicerun/channel.h"
#include "apps/sluicerun/job.h"
#include "apps/sluicerun/output.h"
#include "apps/sluicerun/remote.h"
#include "dist/membership/roster.h"
#include "dist/net/descriptor.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

using std::chrono::seconds;

// How long an agent that is told to kill its rank has to say that it did.
constexpr seconds kToKill(1);

// All descriptors but the standard streams and these.
void CloseOthers(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  int first = STDERR_FILENO + 1;
  for (const int one : kept) {
    if (one > first) {
      close_range(static_cast<unsigned>(first), static_cast<unsigned>(one) - 1,
                  0);
    }
    first = std::max(first, one + 1);
  }
  close_range(static_cast<unsigned>(first), ~0U, 0);
}

// What the rank prints, on its way to the launcher, who may be slow to read it.
struct Output {
  int descriptor;
  std::string pending = {};

  // How much was written.
  size_t Flush() {
    const ssize_t n = write(descriptor, pending.data(), pending.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    // Where nobody reads it is all gone.
    const size_t done = n < 0 ? pending.size() : static_cast<size_t>(n);
    pending.erase(0, done);
    return done;
  }
};

class Relay {
 public:
  Relay(const std::vector<std::string>& command, int roster,
        const SignalQueue& signals)
      : command_(command), signals_(signals), roster_(roster) {}

  [[noreturn]] void Run(const std::string& plan, pid_t parent) {
    // As a rank of this host: told to end where the launcher dies.
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent) _exit(1);
    setpgid(0, 0);
    dist::Pipe to = dist::OpenPipe(), from = dist::OpenPipe();
    if (!to.open() || !from.open()) _exit(kFailure);
    const pid_t self = getpid();
    ssh_ = fork();
    if (ssh_ == 0) Become(to.read.get(), from.write.get(), self);
    if (ssh_ < 0) _exit(kFailure);
    to_ssh_ = to.write.Release();
    from_ssh_ = from.read.Release();
    std::vector<int> kept = {to_ssh_, from_ssh_, signals_.descriptor()};
    if (roster_ >= 0) kept.push_back(roster_);
    CloseOthers(std::move(kept));
    for (const int end : {from_ssh_, STDOUT_FILENO, STDERR_FILENO}) {
      fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK);
    }
    Say(plan);
    while (true) {
      Await();
      TakeSignals(parent);
      HearAgent();
      HearLauncher();
      TellLauncher();
      FlushOutput();
      const auto now = std::chrono::steady_clock::now();
      if (now >= says_it_lives_) {
        Say(Encoded(WordKind::kLives));
        says_it_lives_ = now + seconds(kLivesSeconds);
      }
      if (kill_at_ && now >= *kill_at_) EndBy(SIGKILL);
    }
  }

 private:
  // In a group of its own: what signals the relay is for the relay to hand on.
  [[noreturn]] void Become(int input, int output, pid_t relay) {
    setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != relay) _exit(1);
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    CloseOthers({});
    std::vector<std::string> words = command_;
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    signals_.RestoreInChild();
    execvp(argv[0], argv.data());
    const int error = errno;
    launcher::Say(fmt::format("cannot run '{}': {}", words[0],
                              std::generic_category().message(error)));
    _exit(error == ENOENT ? kNotFound : kNotRunnable);
  }

  // ssh that is gone takes nothing; its end says why.
  void Say(const std::string& text) const { (void)WriteAll(to_ssh_, text); }

  void Await() {
    const auto watched = [](int descriptor, bool wanted, short events) {
      return pollfd{wanted ? descriptor : -1, events, 0};
    };
    const bool tells = !packets_.empty();
    std::array<pollfd, 5> polled = {
        watched(signals_.descriptor(), true, POLLIN),
        watched(from_ssh_, !full(), POLLIN),
        watched(roster_, roster_ >= 0,
                static_cast<short>(tells ? POLLIN | POLLOUT : POLLIN)),
        watched(out_.descriptor, !out_.pending.empty(), POLLOUT),
        watched(err_.descriptor, !err_.pending.empty(), POLLOUT)};
    const auto next =
        kill_at_ ? std::min(*kill_at_, says_it_lives_) : says_it_lives_;
    dist::Wait(polled, next);
  }

  void TakeSignals(pid_t parent) {
    SignalQueue& queue = const_cast<SignalQueue&>(signals_);  // now our own
    while (const auto arrival = queue.Next()) {
      if (getppid() != parent) _exit(kFailure);  // ssh ends with us
      if (arrival->signal == SIGCHLD) {
        EndWithSsh();
      } else {
        Say(Encoded(WordKind::kSignal,
                    std::string(1, static_cast<char>(arrival->signal))));
      }
    }
  }

  // More than an agent sends ahead: of a host whose shell does not stop.
  bool full() const {
    return out_.pending.size() + err_.pending.size() > 4 * kOutputAhead;
  }

  // What there is of ssh's output.
  void HearAgent() {
    std::array<char, 16384> bytes;
    while (!full() && from_ssh_ >= 0) {
      const ssize_t n = read(from_ssh_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return;
      if (n == 0) {
        close(from_ssh_);
        from_ssh_ = -1;
        return;
      }
      Take(std::string_view(bytes.data(), static_cast<size_t>(n)));
    }
  }

  // Before the agent begins come a host's greetings, if it has some, of which
  // the last may end no line, and what it says of where rank 0 listens.
  void Take(std::string_view bytes) {
    if (begun_) {
      words_.Add(bytes);
    } else {
      greeting_ += bytes;
      const size_t at = greeting_.find(kAgentBegins);
      begun_ = at != std::string::npos;
      const size_t lines = begun_ ? at : greeting_.rfind('\n') + 1;
      out_.pending += greeting_.substr(0, lines);
      if (lines > 0 && greeting_[lines - 1] != '\n') out_.pending += '\n';
      greeting_.erase(0, lines);
      if (!begun_) return;
      words_.Add(std::string_view(greeting_).substr(kAgentBegins.size()));
    }
    try {
      while (const auto word = words_.Next()) Do(*word);
    } catch (const Error& error) {
      launcher::Say(error.what());
      _exit(kFailure);
    }
  }

  void Do(const Word& word) {
    switch (word.kind) {
      case WordKind::kOut:
        out_.pending += word.text;
        break;
      case WordKind::kErr:
        err_.pending += word.text;
        break;
      case WordKind::kRoster:
        // One more sign of life is none that anybody waits for.
        if (packets_.empty() || word.text != "beat") {
          packets_.push_back(word.text);
        }
        break;
      case WordKind::kEnded:
        if (word.text.size() != 2) break;
        ended_ = word.text;
        EndAsRank();
      default:
        break;
    }
  }

  void HearLauncher() {
    std::vector<char> bytes(dist::kRosterBytes);
    while (roster_ >= 0) {
      const ssize_t n = recv(roster_, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (n == 0) roster_ = -1;
      if (n <= 0) break;
      const std::string_view packet(bytes.data(), static_cast<size_t>(n));
      if (packet == dist::kRosterKill) {
        kill_at_ = dist::After(kToKill);
        Say(Encoded(WordKind::kKill));
      } else {
        Say(Encoded(WordKind::kRoster, packet));
      }
    }
  }

  void TellLauncher() {
    while (!packets_.empty() && roster_ >= 0) {
      const std::string& packet = packets_.front();
      if (send(roster_, packet.data(), packet.size(),
               MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
          errno == EAGAIN) {
        return;
      }
      packets_.pop_front();
    }
  }

  void FlushOutput() {
    size_t done = 0;
    for (Output* output : {&out_, &err_}) {
      if (!output->pending.empty()) done += output->Flush();
    }
    if (done > 0 && begun_) {
      Say(Encoded(WordKind::kTaken, static_cast<uint32_t>(done)));
    }
  }

  void EndWithSsh() {
    int status = 0;
    if (waitpid(ssh_, &status, WNOHANG) != ssh_) return;
    HearAgent();  // also how the rank has ended
    Finish();
    if (kill_at_) EndBy(SIGKILL);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status)
                                       : kSignalBase + WTERMSIG(status);
    if (begun_) EndBy(kOutOfReach);
    if (code == kSshFailed) EndBy(kNeverReached);
    _exit(code);
  }

  [[noreturn]] void EndAsRank() {
    Finish();
    const auto signal = static_cast<unsigned char>((*ended_)[0]);
    if (signal != 0) EndBy(signal);
    _exit(static_cast<unsigned char>((*ended_)[1]));
  }

  // All that was said is written.
  void Finish() {
    TellLauncher();
    for (Output* output : {&out_, &err_}) {
      (void)WriteAll(output->descriptor, output->pending);
      output->pending.clear();
    }
    if (!greeting_.empty() && !begun_) {
      (void)WriteAll(STDOUT_FILENO, greeting_);
    }
  }

  // The launcher sees it of us as it would of the rank.
  [[noreturn]] static void EndBy(int signal) {
    prctl(PR_SET_DUMPABLE, 0);  // the core of the rank is with the rank
    struct sigaction action = {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    raise(signal);
    _exit(kSignalBase + signal);  // of one that ends nobody
  }

  const std::vector<std::string>& command_;
  const SignalQueue& signals_;
  int roster_;
  pid_t ssh_ = -1;
  int to_ssh_ = -1, from_ssh_ = -1;
  bool begun_ = false;  // the agent has
  std::string greeting_;
  WordReader words_;
  Output out_{STDOUT_FILENO}, err_{STDERR_FILENO};
  std::deque<std::string> packets_;  // for the launcher
  std::optional<std::string> ended_;
  dist::Deadline says_it_lives_ = std::chrono::steady_clock::now();
  std::optional<dist::Deadline> kill_at_;
};

}  // namespace

void RunRelay(const std::vector<std::string>& command, const std::string& plan,
              int out, int err, int roster, pid_t parent,
              const SignalQueue& signals) {
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  Relay(command, roster, signals).Run(plan, parent);
}

}  // namespace sluice::launcher
