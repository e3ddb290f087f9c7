#include "apps/sluicerun/remote.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "apps/sluicerun/job.h"
#include "apps/sluicerun/output.h"
#include "dist/net/descriptor.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

using Json = nlohmann::json;

// All descriptors but the standard streams and these two.
void CloseOthers(int a, int b) {
  if (a > b) std::swap(a, b);
  const auto close_between = [](int first, int last) {
    if (first <= last) {
      close_range(static_cast<unsigned>(first), static_cast<unsigned>(last), 0);
    }
  };
  close_between(STDERR_FILENO + 1, a - 1);
  close_between(a + 1, b - 1);
  close_range(static_cast<unsigned>(b) + 1, ~0U, 0);
}

// Never returns: the relay.
class Relay {
 public:
  Relay(const std::vector<std::string>& command, const SignalQueue& signals)
      : command_(command), signals_(signals) {}

  [[noreturn]] void Run(const std::string& plan, pid_t parent) {
    // As a rank of this host: told to end where the launcher dies.
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent) _exit(1);
    setpgid(0, 0);
    dist::Pipe ends = dist::OpenPipe();
    if (!ends.open()) _exit(kFailure);
    const pid_t self = getpid();
    ssh_ = fork();
    if (ssh_ == 0) Become(ends.read.get(), self);
    if (ssh_ < 0) _exit(kFailure);
    ends.read = dist::Descriptor();
    to_ssh_ = ends.write.Release();
    CloseOthers(to_ssh_, signals_.descriptor());
    Write(plan);
    SignalQueue& queue = const_cast<SignalQueue&>(signals_);  // now our own
    while (true) {
      pollfd readable = {queue.descriptor(), POLLIN, 0};
      (void)poll(&readable, 1, -1);
      while (const auto arrival = queue.Next()) {
        if (getppid() != parent) _exit(kFailure);  // ssh ends with us
        if (arrival->signal == SIGCHLD) {
          EndWithSsh();
        } else {
          Write(std::string(1, static_cast<char>(arrival->signal)));
        }
      }
    }
  }

 private:
  // In a group of its own: what signals the relay is for the relay to hand on.
  [[noreturn]] void Become(int input, pid_t relay) {
    setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != relay) _exit(1);
    dup2(input, STDIN_FILENO);
    CloseOthers(STDERR_FILENO, STDERR_FILENO);
    std::vector<std::string> words = command_;
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    signals_.RestoreInChild();
    execvp(argv[0], argv.data());
    const int error = errno;
    Say(fmt::format("cannot run '{}': {}", words[0],
                    std::generic_category().message(error)));
    _exit(error == ENOENT ? kNotFound : kNotRunnable);
  }

  // ssh that is gone takes nothing; its end says why.
  void Write(const std::string& text) const {
    for (size_t done = 0; done < text.size();) {
      const ssize_t n = write(to_ssh_, text.data() + done, text.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return;
      done += static_cast<size_t>(n);
    }
  }

  void EndWithSsh() const {
    int status = 0;
    if (waitpid(ssh_, &status, WNOHANG) != ssh_) return;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status)
                            : kSignalBase + WTERMSIG(status));
  }

  const std::vector<std::string>& command_;
  const SignalQueue& signals_;
  pid_t ssh_ = -1;
  int to_ssh_ = -1;
};

}  // namespace

std::string Encoded(const RemotePlan& plan) {
  const JobPlan& job = plan.job;
  Json json = {{"version", SLUICE_VERSION},
               {"command", job.command},
               {"folder", plan.folder},
               {"rank", plan.rank},
               {"size", job.size},
               {"first", job.first},
               {"local_size", job.local_size},
               {"job", job.id},
               {"coordinator", job.coordinator},
               {"listen", plan.listen},
               {"token", job.token},
               {"credentials", job.credentials},
               {"certificates", job.certificates},
               {"allow_plaintext", job.allow_plaintext},
               {"pin", job.pin},
               {"timeout_kill", plan.timeout_kill}};
  try {
    return json.dump(-1, ' ', /*ensure_ascii=*/true) + "\n";
  } catch (const Json::exception&) {
    throw Error(Code::kInvalidArgument,
                "a word of the command, or the folder, is no UTF-8, which "
                "cannot be told to other hosts");
  }
}

RemotePlan DecodedPlan(std::string_view line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  try {
    const auto version = json.at("version").get<std::string>();
    if (version != SLUICE_VERSION) {
      throw Error(Code::kFailedPrecondition,
                  fmt::format("the launcher is Sluice {}, this host's is {}",
                              version, SLUICE_VERSION));
    }
    RemotePlan plan;
    JobPlan& job = plan.job;
    json.at("command").get_to(job.command);
    json.at("folder").get_to(plan.folder);
    json.at("rank").get_to(plan.rank);
    json.at("size").get_to(job.size);
    json.at("first").get_to(job.first);
    json.at("local_size").get_to(job.local_size);
    json.at("job").get_to(job.id);
    json.at("coordinator").get_to(job.coordinator);
    json.at("listen").get_to(plan.listen);
    json.at("token").get_to(job.token);
    json.at("credentials").get_to(job.credentials);
    json.at("certificates").get_to(job.certificates);
    json.at("allow_plaintext").get_to(job.allow_plaintext);
    json.at("pin").get_to(job.pin);
    json.at("timeout_kill").get_to(plan.timeout_kill);
    const int local = plan.rank - job.first;
    if (job.command.empty() || local < 0 || local >= job.local_size) {
      throw Error(Code::kInvalidArgument, "a plan that makes no sense");
    }
    return plan;
  } catch (const Json::exception& error) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--agent is for sluicerun itself, which tells it "
                            "a plan: {}",
                            error.what()));
  }
}

std::vector<std::string> AgentCommand(const Ssh& ssh, const std::string& host) {
  std::vector<std::string> words = ssh.command;
  // No password is asked for, and a host that is cut off is noticed.
  for (const char* word :
       {"-T", "-x", "-oBatchMode=yes", "-oConnectTimeout=10",
        "-oServerAliveInterval=5", "-oServerAliveCountMax=3"}) {
    words.emplace_back(word);
  }
  if (ssh.port != 0) {
    words.emplace_back("-p");
    words.push_back(std::to_string(ssh.port));
  }
  words.push_back(host);
  words.push_back(Quoted(ssh.program) + " --agent");
  return words;
}

Started StartRemoteRank(const std::vector<std::string>& command,
                        const std::string& plan, const SignalQueue& signals) {
  const pid_t parent = getpid();
  return Forked([&](int out, int err) {
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    Relay(command, signals).Run(plan, parent);
  });
}

std::string Quoted(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
      "_-+=./:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) {
    return text;
  }
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace sluice::launcher
