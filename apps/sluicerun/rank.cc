#include "apps/sluicerun/rank.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <system_error>

#include "engine/affinity.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

struct RankPipes {
  dist::Pipe token, credentials;
  dist::Pipe
      failure;  // an errno of the child's, where the program cannot be run
};

// What one process is told, beside what all of the plan are.
struct Process {
  std::vector<std::pair<std::string, std::string>> variables;
  int listen_fd = -1;          // which it inherits, or none
  int roster_fd = -1;          // the same
  std::string credentials;     // or none
  bool reads = false;          // our standard input
  std::vector<int> cpus = {};  // it keeps to them; empty: to none
};

// In the child, of one thread: what may be done is not restricted.
class Child {
 public:
  Child(const JobPlan& plan, const Process& process, pid_t parent,
        const SignalQueue& signals, RankPipes& pipes)
      : plan_(plan),
        process_(process),
        parent_(parent),
        signals_(signals),
        pipes_(pipes) {}

  // Returns, with errno, where it fails. Its output is to go to these two.
  void Run(int out, int err) {
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) return;
    if (getppid() != parent_) _exit(1);  // it died before
    setpgid(0, 0);
    if (!ConnectStreams(out, err) || !SetEnvironment()) return;
    if (!process_.cpus.empty() && !BindToCpus(process_.cpus)) return;
    if (setrlimit(RLIMIT_NOFILE, &plan_.open_files) != 0) return;
    std::vector<std::string> command = plan_.command;
    std::vector<char*> argv;
    for (std::string& argument : command) argv.push_back(argument.data());
    argv.push_back(nullptr);
    signals_.RestoreInChild();
    execvp(argv[0], argv.data());
  }

 private:
  bool ConnectStreams(int out, int err) {
    if (!process_.reads || isatty(STDIN_FILENO) == 1) {
      const dist::Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (dup2(nothing.get(), STDIN_FILENO) < 0) return false;
    }
    return dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0;
  }

  bool SetEnvironment() {
    for (const char* name :
         {"SLUICE_RANK", "SLUICE_LOCAL_RANK", "SLUICE_SERVERS",
          "SLUICE_SERVERS_RETURN", "SLUICE_SERVER", "SLUICE_COORDINATOR",
          "SLUICE_ROSTER_FD", "SLUICE_HOST", "SLUICE_FIRST_PORT"}) {
      unsetenv(name);
    }
    for (const auto& [name, value] : process_.variables) {
      if (setenv(name.c_str(), value.c_str(), 1) != 0) return false;
    }
    unsetenv("SLUICE_LISTEN_FD");
    unsetenv("SLUICE_CREDENTIALS_FD");
    return (process_.credentials.empty() ||
            Inherit("SLUICE_CREDENTIALS_FD", pipes_.credentials.read.get())) &&
           (process_.listen_fd < 0 ||
            Inherit("SLUICE_LISTEN_FD", process_.listen_fd)) &&
           (process_.roster_fd < 0 ||
            Inherit("SLUICE_ROSTER_FD", process_.roster_fd)) &&
           Inherit("SLUICE_TOKEN_FD", pipes_.token.read.get());
  }

  static bool Inherit(const char* name, int descriptor) {
    return fcntl(descriptor, F_SETFD, 0) == 0 &&
           setenv(name, std::to_string(descriptor).c_str(), 1) == 0;
  }

  const JobPlan& plan_;
  const Process& process_;
  const pid_t parent_;
  const SignalQueue& signals_;
  RankPipes& pipes_;
};

// The errno that the child reports; 0 once it has become the program.
int AwaitExec(RankPipes& pipes) {
  pipes.failure.write = {};
  int error = 0;
  ssize_t bytes = 0;
  do {
    bytes = read(pipes.failure.read.get(), &error, sizeof error);
  } while (bytes < 0 && errno == EINTR);
  return bytes == sizeof error ? error : 0;
}

// Small enough for an empty pipe to take it whole.
bool WriteSecret(const std::string& secret, dist::Pipe& pipe) {
  const ssize_t bytes = write(pipe.write.get(), secret.data(), secret.size());
  pipe.write = {};  // so that the reader finds the end
  return bytes == static_cast<ssize_t>(secret.size());
}

// How all processes of the job know each other, or need not.
void AddSecurity(const JobPlan& plan,
                 std::vector<std::pair<std::string, std::string>>& variables) {
  if (!plan.certificates.empty()) {
    variables.emplace_back("SLUICE_CERTIFICATES", plan.certificates);
  }
  if (plan.allow_plaintext) {
    variables.emplace_back("SLUICE_ALLOW_PLAINTEXT", "1");
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> RankVariables(
    const JobPlan& plan, int rank) {
  const std::string size = std::to_string(plan.size);
  const std::string number = std::to_string(rank);
  const std::string local = std::to_string(rank - plan.first);
  std::vector<std::pair<std::string, std::string>> variables = {
      {"SLUICE_SIZE", size},
      {"SLUICE_RANK", number},
      {"SLUICE_LOCAL_SIZE", std::to_string(plan.local_size)},
      {"SLUICE_LOCAL_RANK", local}};
  if (!plan.elastic) {
    variables.emplace_back("SLUICE_COORDINATOR", plan.coordinator);
  } else if (!plan.address.empty()) {
    variables.emplace_back("SLUICE_HOST", plan.address);
  }
  if (plan.first_port != 0) {
    variables.emplace_back("SLUICE_FIRST_PORT",
                           std::to_string(plan.first_port));
  }
  variables.emplace_back("SLUICE_JOB", plan.id);
  if (!plan.servers.empty()) {
    variables.emplace_back("SLUICE_SERVERS", plan.servers);
    if (plan.servers_return) {
      variables.emplace_back("SLUICE_SERVERS_RETURN", "1");
    }
  }
  if (plan.pin) variables.emplace_back("SLUICE_PINNED", "1");
  AddSecurity(plan, variables);
  return variables;
}

std::vector<std::pair<std::string, std::string>> ServerVariables(
    const JobPlan& plan, int server) {
  std::vector<std::pair<std::string, std::string>> variables = {
      {"SLUICE_SIZE", std::to_string(plan.size)},
      {"SLUICE_LOCAL_SIZE", std::to_string(plan.local_size)},
      {"SLUICE_SERVERS", plan.servers},
      {"SLUICE_SERVER", std::to_string(server)},
      {"SLUICE_JOB", plan.id}};
  AddSecurity(plan, variables);
  return variables;
}

std::vector<int> RankCpus(const JobPlan& plan, int rank) {
  const auto cpus = static_cast<int64_t>(plan.cpus.size());
  const int64_t local = rank - plan.first;
  const int64_t begin = local * cpus / plan.local_size;
  const int64_t end = std::max(begin + 1, (local + 1) * cpus / plan.local_size);
  return {plan.cpus.begin() + begin, plan.cpus.begin() + end};
}

std::vector<int> AllowedCpus() {
  std::vector<int> cpus = CpusOf(0);
  if (!cpus.empty()) return cpus;
  throw Error(Code::kUnavailable,
              "the CPUs that may be used are not to be had: " +
                  std::generic_category().message(errno));
}

std::string NewToken() {
  std::array<uint8_t, 32> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) !=
      static_cast<ssize_t>(bytes.size())) {
    throw Error(Code::kUnavailable, "no random bytes for the job's token: " +
                                        std::generic_category().message(errno));
  }
  std::string token;
  for (const uint8_t byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

Started NotStarted(int error) {
  Started failed;
  failed.error = error;
  return failed;
}

bool OpenRoster(RosterEnds* ends) {
  std::array<int, 2> pair = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) < 0) {
    return false;
  }
  ends->member = dist::Descriptor(pair[0]);
  ends->launcher = dist::Descriptor(pair[1]);
  return true;
}

namespace {

Started Start(const JobPlan& plan, const Process& process,
              const SignalQueue& signals) {
  RankPipes pipes;
  for (dist::Pipe* pipe : {&pipes.token, &pipes.credentials, &pipes.failure}) {
    *pipe = dist::OpenPipe();
    if (!pipe->open()) return NotStarted(errno);
  }
  if (!WriteSecret(plan.token, pipes.token) ||
      !WriteSecret(process.credentials, pipes.credentials)) {
    return NotStarted(errno);
  }
  const pid_t parent = getpid();
  Started started = Forked([&](int out, int err) {
    Child(plan, process, parent, signals, pipes).Run(out, err);
    const int error = errno;
    const ssize_t told = write(pipes.failure.write.get(), &error, sizeof error);
    _exit(told == sizeof error ? 127 : 126);
  });
  if (started.pid < 0) return started;
  if (const int error = AwaitExec(pipes); error != 0) {
    waitpid(started.pid, nullptr, 0);
    return NotStarted(error);
  }
  return started;
}

}  // namespace

Started StartRank(const JobPlan& plan, int rank, const SignalQueue& signals) {
  Process process;
  process.variables = RankVariables(plan, rank);
  process.reads = plan.reads && rank == 0;
  if (rank == 0) process.listen_fd = plan.listen_fd;
  if (!plan.credentials.empty()) {
    process.credentials =
        plan.credentials[static_cast<size_t>(rank - plan.first)];
  }
  if (plan.pin) process.cpus = RankCpus(plan, rank);
  if (!plan.elastic) return Start(plan, process, signals);
  RosterEnds roster;
  if (!OpenRoster(&roster)) return NotStarted(errno);
  process.roster_fd = roster.member.get();
  Started started = Start(plan, process, signals);
  started.roster = std::move(roster.launcher);
  return started;
}

Started StartServer(const JobPlan& plan, const ServerPlan& server,
                    const SignalQueue& signals) {
  return Start(plan,
               {.variables = ServerVariables(plan, server.number),
                .listen_fd = server.listen_fd,
                .credentials = server.credentials},
               signals);
}

}  // namespace sluice::launcher
