#include "apps/sluicerun/job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "apps/sluicerun/output.h"
#include "apps/sluicerun/rank.h"
#include "apps/sluicerun/signals.h"
#include "apps/sluicerun/starting.h"
#include "apps/sluicerun/supervisor.h"
#include "dist/membership/roster_keeper.h"
#include "dist/net/address.h"
#include "dist/net/descriptor.h"
#include "dist/net/socket.h"
#include "engine/descriptor_limit.h"
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
    RaiseDescriptorLimit();
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
    const auto open_both = [&](const std::string& name) {
      OpenFile(name + ".out");
      OpenFile(name + ".err");
    };
    for (int rank = 0; rank < options.Most(); ++rank) {
      open_both(fmt::format("rank-{}", rank));
    }
    for (int server = 0; server < options.servers; ++server) {
      open_both(fmt::format("ps-{}", server));
    }
  }

  Stream OfRank(int rank, dist::Descriptor pipe, bool is_error, Tail* tail) {
    return Of(rank, std::to_string(rank), std::move(pipe), is_error, tail);
  }
  Stream OfServer(int server, dist::Descriptor pipe, bool is_error,
                  Tail* tail) {
    return Of(options_.Most() + server, fmt::format("ps {}", server),
              std::move(pipe), is_error, tail);
  }

  const std::vector<std::unique_ptr<Sink>>& sinks() const { return sinks_; }

 private:
  // The `i`th process, called so.
  Stream Of(int i, const std::string& name, dist::Descriptor pipe,
            bool is_error, Tail* tail) {
    if (!options_.output_dir.empty()) {
      Sink* sink =
          sinks_[2 * static_cast<size_t>(i) + (is_error ? 1 : 0)].get();
      return {std::move(pipe), Stream::Form::kBytes, "", sink, tail};
    }
    std::string prefix = options_.tag_output ? fmt::format("[{}] ", name) : "";
    Sink* sink = is_error ? sinks_.back().get() : sinks_.front().get();
    return {std::move(pipe), Stream::Form::kLines, std::move(prefix), sink,
            tail};
  }

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

struct Ended {
  int code = 0;
  bool may_begin_again = false;
};

// What cannot be run, or was not understood, will not be the next time.
bool Hopeless(int code) {
  return code == kUsage || code == kNotFound || code == kNotRunnable;
}

// From the first start to the last end. `restarts`: how many there have been,
// those of one process alone too.
Ended RunOnce(const JobOptions& options, Outputs& outputs, SignalQueue& signals,
              rlimit open_files, int* restarts) {
  Starting starting(options, signals, open_files);
  Supervisor supervisor(options.timeout_kill, options.peer_timeout,
                        outputs.sinks(), signals);
  const auto cannot_run = [&](int error, const std::string& as) -> Ended {
    Say(fmt::format("cannot run '{}'{}: {}", options.command[0], as,
                    ErrorText(error)));
    return {error == ENOENT ? kNotFound : kNotRunnable};
  };
  const auto running_server = [&](int server, Started started) -> RunningRank {
    auto tails = std::make_unique<Tails>();
    Stream out =
        outputs.OfServer(server, std::move(started.out), false, &tails->out);
    Stream err =
        outputs.OfServer(server, std::move(started.err), true, &tails->err);
    RunningRank running = {started.pid,
                           std::move(out),
                           std::move(err),
                           std::move(tails),
                           starting.NameOfServer(server),
                           server};
    running.remote = starting.elsewhere();
    return running;
  };
  const auto heed = [&] { return supervisor.HeedSignals(); };
  bool all = true;
  for (int server = 0; all && server < options.servers; ++server) {
    Started started = starting.StartServer(server);
    if (started.error != 0) {
      return cannot_run(started.error,
                        fmt::format(" as parameter server {}", server));
    }
    const RunningRank& running =
        supervisor.Add(running_server(server, std::move(started)));
    all = starting.AwaitServer(server, running.out.descriptor(), heed);
  }
  const auto running_rank = [&](int rank, Started started) -> RunningRank {
    auto tails = std::make_unique<Tails>();
    Stream out =
        outputs.OfRank(rank, std::move(started.out), false, &tails->out);
    Stream err =
        outputs.OfRank(rank, std::move(started.err), true, &tails->err);
    RunningRank running = {started.pid, std::move(out), std::move(err),
                           std::move(tails), starting.NameOf(rank)};
    running.rank = rank;
    running.roster = std::move(started.roster);
    running.host = starting.PlaceOf(rank);
    running.remote = starting.elsewhere();
    return running;
  };
  if (options.least > 0) {
    const std::chrono::duration<double> patience(options.join_timeout);
    supervisor.SetRoster(std::make_unique<dist::RosterKeeper>(
        options.least,
        std::chrono::duration_cast<std::chrono::milliseconds>(patience), Say));
  }
  const auto replace =
      [&](const RunningRank& ended) -> std::optional<RunningRank> {
    if (!all) return std::nullopt;  // the job has not begun
    if (!ended.serves()) starting.Lost(ended.rank);
    const bool moves = ended.unanswered();  // which is no other restart
    if (moves ? !starting.SeatElsewhere(ended.rank)
              : *restarts == options.max_restarts || Hopeless(*ended.code)) {
      return std::nullopt;
    }
    if (!moves && !ended.serves() && !starting.Listed(ended.rank) &&
        !starting.SeatAnew(ended.rank)) {
      return std::nullopt;
    }
    Started started = ended.serves() ? starting.StartServer(ended.server)
                                     : starting.Start(ended.rank);
    if (started.error != 0) return std::nullopt;
    if (moves) {
      Say(fmt::format("{} does not answer; started as {}", ended.name,
                      starting.NameOf(ended.rank)));
    } else {
      ++*restarts;
      Say(fmt::format("{}; started again (restart {} of {})", HowItEnded(ended),
                      *restarts, options.max_restarts));
    }
    if (*restarts == options.max_restarts) starting.GiveUpServerListeners();
    RunningRank other = ended.serves()
                            ? running_server(ended.server, std::move(started))
                            : running_rank(ended.rank, std::move(started));
    other.comes_later = true;
    return other;
  };
  supervisor.SetReplace(replace);
  HostFile hostfile(options.hostfile, Say);
  // Where the hosts have become others: those that are missing, which are no
  // restarts, as far as there are slots.
  const auto grow =
      [&](const std::set<int>& running) -> std::vector<RunningRank> {
    std::vector<RunningRank> others;
    const auto hosts = hostfile.Changed();
    if (!hosts) return others;
    starting.SetHosts(*hosts);
    std::vector<int> missing;
    for (int rank = 0; rank < options.Most(); ++rank) {
      if (running.contains(rank)) continue;
      starting.Lost(rank);
      missing.push_back(rank);
    }
    for (const int rank : missing) {
      if (!starting.SeatAnew(rank)) break;
      Started started = starting.Start(rank);
      if (started.error != 0) {
        starting.Lost(rank);
        Say(fmt::format("{} cannot be started: {}", starting.NameOf(rank),
                        ErrorText(started.error)));
        break;
      }
      Say(fmt::format("{} is started ({} has changed)", starting.NameOf(rank),
                      options.hostfile));
      others.push_back(running_rank(rank, std::move(started)));
      others.back().comes_later = true;
    }
    return others;
  };
  if (options.Grows()) supervisor.SetGrow(grow);
  for (int rank = 0; all && rank < options.size; ++rank) {
    Started started = starting.Start(rank);
    if (started.error != 0) {
      return cannot_run(started.error,
                        rank == 0 ? "" : fmt::format(" as rank {}", rank));
    }
    const RunningRank& running =
        supervisor.Add(running_rank(rank, std::move(started)));
    if (rank == 0) {
      all = starting.AwaitCoordinator(running.out.descriptor(), heed);
    }
  }
  starting.GiveUpListener();
  if (*restarts == options.max_restarts) starting.GiveUpServerListeners();
  const int code = supervisor.Run();
  return {code, supervisor.rank_failed() && !Hopeless(code)};
}

// The signal that came instead, if one did that ends us.
std::optional<int> WaitUnlessTold(std::chrono::seconds time,
                                  SignalQueue& signals) {
  const dist::Deadline end = dist::After(time);
  while (true) {
    pollfd readable = {signals.descriptor(), POLLIN, 0};
    if (dist::Wait({&readable, 1}, end) == 0) return std::nullopt;
    while (const auto arrival = signals.Next()) {
      if (arrival->signal == SIGTSTP) kill(getpid(), SIGSTOP);
      if (IsInterrupt(arrival->signal)) return arrival->signal;
    }
  }
}

// Of a job that grows: the hosts that its file lists by now, where it makes
// sense and they are enough.
void TakeHosts(JobOptions* options) {
  std::optional<std::vector<Host>> hosts =
      HostFile(options->hostfile, Say).Changed();
  if (!hosts) return;
  const auto slots = static_cast<int>(SeatRanks(*hosts, 0).size());
  if (slots < options->least) {
    Say(
        fmt::format("{}: {} slots, of at least {} processes; the hosts stay "
                    "those of before",
                    options->hostfile, slots, options->least));
    return;
  }
  options->hosts = *std::move(hosts);
  options->size = std::min(slots, options->most);
}

}  // namespace

int RunJob(const JobOptions& options) {
  constexpr int kLongestWait = 60;  // seconds
  const MoreDescriptors descriptors;
  Outputs outputs(options);
  SignalQueue signals;
  JobOptions started = options;
  for (int restarts = 0, wait = 1;; wait = std::min(kLongestWait, 2 * wait)) {
    const Ended ended =
        RunOnce(started, outputs, signals, descriptors.before(), &restarts);
    if (!ended.may_begin_again || restarts == options.max_restarts) {
      return ended.code;
    }
    ++restarts;
    Say(fmt::format("starting the job again in {} s (restart {} of {})", wait,
                    restarts, options.max_restarts));
    if (const auto told = WaitUnlessTold(std::chrono::seconds(wait), signals)) {
      return kSignalBase + *told;
    }
    if (options.Grows()) TakeHosts(&started);
  }
}

void PrintJob(const JobOptions& options) {
  JobPlan plan = PlanOf(options);
  std::vector<Seat> seats;
  if (options.hosts.empty()) {
    plan.coordinator = "127.0.0.1:PORT";
    for (int server = 0; server < options.servers; ++server) {
      plan.servers +=
          fmt::format("{}127.0.0.1:PORT{}", server == 0 ? "" : ",", server + 1);
    }
    if (options.pin) plan.cpus = AllowedCpus();
  } else {
    seats = SeatRanks(options.hosts, options.size);
  }
  if (options.port == 0 && !seats.empty()) {
    const auto at = [&](size_t host, const std::string& port) {
      const Host& its = options.hosts[host % options.hosts.size()];
      std::string text = dist::HostAndPort(its.Address(), 0);
      return text.replace(text.size() - 1, 1, port);
    };
    plan.coordinator = at(0, "PORT");
    for (int server = 0; server < options.servers; ++server) {
      plan.servers +=
          (server == 0 ? "" : ",") +
          at(static_cast<size_t>(server), fmt::format("PORT{}", server + 1));
    }
  }
  const auto print = [&](std::string line) {
    for (const std::string& word : options.command) line += Quoted(word) + " ";
    line.back() = '\n';
    fmt::print("{}", line);
  };
  const auto ssh_words = [&](size_t host) {
    std::string words;
    for (const std::string& word :
         AgentCommand(options.ssh, options.hosts[host].name)) {
      words += Quoted(word) + " ";
    }
    return words + "# ";
  };
  for (int server = 0; server < options.servers; ++server) {
    std::string line;
    if (!seats.empty()) {
      line = ssh_words(static_cast<size_t>(server) % options.hosts.size());
    }
    for (const auto& [name, value] : ServerVariables(plan, server)) {
      line += fmt::format("{}={} ", name, Quoted(value));
    }
    print(std::move(line));
  }
  for (int rank = 0; rank < options.size; ++rank) {
    std::string line;
    if (!seats.empty()) {
      const Seat& seat = seats[static_cast<size_t>(rank)];
      plan.first = rank - seat.local_rank;
      plan.local_size = seat.local_size;
      plan.address = options.hosts[seat.host].Address();
      line = ssh_words(seat.host);
    }
    for (const auto& [name, value] : RankVariables(plan, rank)) {
      line += fmt::format("{}={} ", name, Quoted(value));
    }
    if (options.pin && seats.empty()) {
      line +=
          fmt::format("taskset -c {} ", fmt::join(RankCpus(plan, rank), ","));
    }
    print(std::move(line));
  }
}

}  // namespace sluice::launcher
