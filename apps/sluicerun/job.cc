#include "apps/sluicerun/job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "apps/sluicerun/output.h"
#include "apps/sluicerun/rank.h"
#include "apps/sluicerun/signals.h"
#include "apps/sluicerun/supervisor.h"
#include "dist/net/address.h"
#include "dist/net/authority.h"
#include "dist/net/credentials.h"
#include "dist/net/descriptor.h"
#include "dist/net/local.h"
#include "dist/net/socket.h"
#include "dist/net/tls.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

std::string ErrorText(int error) {
  return std::generic_category().message(error);
}

// Several pipes per rank: the usual limit of 1024 is soon reached. Children
// get back what we had.
class MoreDescriptors {
 public:
  MoreDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit more = before_;
    more.rlim_cur = more.rlim_max;
    setrlimit(RLIMIT_NOFILE, &more);
  }
  const rlimit& before() const { return before_; }

 private:
  rlimit before_ = {};
};

// Where the ranks' output goes. The sinks are at their addresses for good.
class Outputs {
 public:
  explicit Outputs(const JobOptions& options) : options_(options) {
    if (options.output_dir.empty()) {
      Add(STDOUT_FILENO, "stdout");
      // Lines of both must not mix where they are one (2>&1).
      if (!SameFile(STDOUT_FILENO, STDERR_FILENO)) Add(STDERR_FILENO, "stderr");
      return;
    }
    std::error_code ignored;  // opening the files says what is wrong
    std::filesystem::create_directories(options.output_dir, ignored);
    for (int rank = 0; rank < options.size; ++rank) {
      OpenFile(fmt::format("rank-{}.out", rank));
      OpenFile(fmt::format("rank-{}.err", rank));
    }
  }

  Stream OfRank(int rank, dist::Descriptor pipe, bool is_error, Tail* tail) {
    if (!options_.output_dir.empty()) {
      Sink* sink =
          sinks_[2 * static_cast<size_t>(rank) + (is_error ? 1 : 0)].get();
      return {std::move(pipe), Stream::Form::kBytes, "", sink, tail};
    }
    std::string prefix = options_.tag_output ? fmt::format("[{}] ", rank) : "";
    Sink* sink = is_error ? sinks_.back().get() : sinks_.front().get();
    return {std::move(pipe), Stream::Form::kLines, std::move(prefix), sink,
            tail};
  }

  const std::vector<std::unique_ptr<Sink>>& sinks() const { return sinks_; }

 private:
  static bool SameFile(int a, int b) {
    struct stat first = {}, second = {};
    return fstat(a, &first) == 0 && fstat(b, &second) == 0 &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
  }
  void Add(int descriptor, std::string name) {
    sinks_.push_back(std::make_unique<Sink>(descriptor, std::move(name)));
  }
  void OpenFile(const std::string& name) {
    const std::string path = options_.output_dir + "/" + name;
    files_.emplace_back(
        open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (files_.back().get() < 0) {
      throw Error(Code::kUnavailable,
                  fmt::format("cannot write '{}': {}", path, ErrorText(errno)));
    }
    Add(files_.back().get(), path);
  }

  const JobOptions& options_;
  std::vector<dist::Descriptor> files_;
  std::vector<std::unique_ptr<Sink>> sinks_;
};

// What all ranks have in common.
JobPlan PlanOf(const JobOptions& options) {
  JobPlan plan;
  plan.command = options.command;
  plan.size = plan.local_size = options.size;
  plan.pin = options.pin;
  plan.certificates = options.certificates;
  plan.allow_plaintext = options.allow_plaintext;
  return plan;
}

// Of each rank; none where the job has none.
std::vector<std::string> NewCredentials(const JobOptions& options) {
  // Only handshakes look at it, and these are at the start.
  constexpr std::chrono::hours kValid(24 * 7);
  const bool wanted = options.tls || !options.hosts.empty();
  if (!wanted || options.allow_plaintext || !options.certificates.empty()) {
    return {};
  }
  if (!dist::HasTls()) {
    throw Error(Code::kUnimplemented,
                "this build has no OpenSSL, so that nothing goes to other "
                "hosts encrypted; --allow-plaintext goes without");
  }
  const dist::Authority authority =
      dist::Authority::Create(dist::RandomWord().ValueOrThrow()).ValueOrThrow();
  std::vector<std::string> credentials;
  for (int rank = 0; rank < options.size; ++rank) {
    credentials.push_back(dist::TextOf(
        authority.Issue(std::string(dist::kWorkerRole), rank, kValid)
            .ValueOrThrow()));
  }
  return credentials;
}

// Starts the ranks, here or on other hosts.
class Starting {
 public:
  Starting(const JobOptions& options, SignalQueue& signals, rlimit open_files)
      : options_(options), signals_(signals), plan_(PlanOf(options)) {
    plan_.token = NewToken();
    plan_.open_files = open_files;
    credentials_ = NewCredentials(options);
    if (options.hosts.empty()) {
      listener_ = dist::Listener::Open("127.0.0.1").ValueOrThrow();
      plan_.coordinator = fmt::format("127.0.0.1:{}", listener_->port());
      plan_.listen_fd = listener_->descriptor();
      plan_.credentials = credentials_;
      if (options.pin) plan_.cpus = AllowedCpus();
    } else {
      seats_ = SeatRanks(options.hosts, options.size);
    }
  }

  Started Start(int rank) {
    if (seats_.empty()) return StartRank(plan_, rank, signals_);
    return StartRemoteRank(
        AgentCommand(options_.ssh, HostOf(rank).name),
        Encoded(PlanOn(rank, std::filesystem::current_path().string())),
        signals_);
  }

  // Where rank 0's host has to say first where it listens: waits for that.
  // False where something else has come first, of which the supervisor is to
  // hear: its end, or a signal.
  bool AwaitCoordinator(const Started& zero) {
    if (seats_.empty()) return true;
    const dist::Deadline limit = dist::After(std::chrono::minutes(2));
    while (const auto line = NextLine(zero.out.get(), limit)) {
      if (line->starts_with(kListensAt)) {
        plan_.coordinator = line->substr(kListensAt.size());
        return true;
      }
      // Of a host's shell, which greets whoever comes.
      Say(fmt::format("{}: {}", HostOf(0).name, *line));
    }
    return false;
  }

  // Rank 0 has it. Were it ours too, who connects would not learn that rank 0
  // is gone.
  void GiveUpListener() { listener_.reset(); }

  // "hostB", or nothing where there is but this one.
  std::string NameOfHost(int rank) const {
    return seats_.empty() ? "" : HostOf(rank).name;
  }

  RemotePlan PlanOn(int rank, const std::string& folder) const {
    const Seat& seat = seats_[static_cast<size_t>(rank)];
    RemotePlan plan;
    plan.job = plan_;
    plan.job.first = rank - seat.local_rank;
    plan.job.local_size = seat.local_size;
    plan.rank = rank;
    if (!credentials_.empty()) {  // its own alone
      plan.job.credentials.resize(static_cast<size_t>(seat.local_size));
      plan.job.credentials[static_cast<size_t>(seat.local_rank)] =
          credentials_[static_cast<size_t>(rank)];
    }
    plan.folder = folder;
    plan.listen = HostOf(0).Address();
    plan.timeout_kill = options_.timeout_kill;
    return plan;
  }

 private:
  const Host& HostOf(int rank) const {
    return options_.hosts[seats_[static_cast<size_t>(rank)].host];
  }

  // nullopt where there is none. Throws Error where it takes too long.
  std::optional<std::string> NextLine(int descriptor,
                                      dist::Deadline limit) const {
    std::string line;
    while (true) {
      std::array<pollfd, 2> polled = {pollfd{descriptor, POLLIN, 0},
                                      pollfd{signals_.descriptor(), POLLIN, 0}};
      const int ready = dist::Wait(polled, limit);
      char byte = 0;
      if (polled[0].revents != 0 && read(descriptor, &byte, 1) == 1) {
        if (byte == '\n') return line;
        line += byte;
      } else if (ready == 0) {
        throw Error(Code::kDeadlineExceeded,
                    fmt::format("{} has not said where rank 0 listens",
                                HostOf(0).name));
      } else if (ready < 0 || polled[1].revents != 0 ||
                 polled[0].revents != 0) {
        return std::nullopt;
      }
    }
  }

  const JobOptions& options_;
  SignalQueue& signals_;
  JobPlan plan_;
  std::vector<std::string> credentials_;
  std::optional<dist::Listener> listener_;
  std::vector<Seat> seats_;
};

}  // namespace

int RunJob(const JobOptions& options) {
  const MoreDescriptors descriptors;
  Outputs outputs(options);
  SignalQueue signals;
  Starting starting(options, signals, descriptors.before());
  Supervisor supervisor(options.timeout_kill, outputs.sinks(), signals);
  bool all = true;
  for (int rank = 0; all && rank < options.size; ++rank) {
    Started started = starting.Start(rank);
    if (started.error != 0) {
      Say(fmt::format("cannot run '{}'{}: {}", options.command[0],
                      rank == 0 ? "" : fmt::format(" as rank {}", rank),
                      ErrorText(started.error)));
      return started.error == ENOENT ? kNotFound : kNotRunnable;
    }
    if (rank == 0) all = starting.AwaitCoordinator(started);
    auto tail = std::make_unique<Tail>();
    Stream out = outputs.OfRank(rank, std::move(started.out), false, nullptr);
    Stream err = outputs.OfRank(rank, std::move(started.err), true, tail.get());
    supervisor.Add({started.pid, std::move(out), std::move(err),
                    std::move(tail), starting.NameOfHost(rank)});
  }
  starting.GiveUpListener();
  return supervisor.Run();
}

void PrintJob(const JobOptions& options) {
  JobPlan plan = PlanOf(options);
  std::vector<Seat> seats;
  if (options.hosts.empty()) {
    plan.coordinator = "127.0.0.1:PORT";
    if (options.pin) plan.cpus = AllowedCpus();
  } else {
    seats = SeatRanks(options.hosts, options.size);
    plan.coordinator = dist::HostAndPort(options.hosts[0].Address(), 1);
    plan.coordinator.replace(plan.coordinator.size() - 1, 1, "PORT");
  }
  for (int rank = 0; rank < options.size; ++rank) {
    std::string line;
    if (!seats.empty()) {
      const Seat& seat = seats[static_cast<size_t>(rank)];
      plan.first = rank - seat.local_rank;
      plan.local_size = seat.local_size;
      for (const std::string& word :
           AgentCommand(options.ssh, options.hosts[seat.host].name)) {
        line += Quoted(word) + " ";
      }
      line += "# ";
    }
    for (const auto& [name, value] : RankVariables(plan, rank)) {
      line += fmt::format("{}={} ", name, value);
    }
    if (options.pin && seats.empty()) {
      line +=
          fmt::format("taskset -c {} ", fmt::join(RankCpus(plan, rank), ","));
    }
    for (const std::string& word : options.command) line += Quoted(word) + " ";
    line.back() = '\n';
    fmt::print("{}", line);
  }
}

}  // namespace sluice::launcher
