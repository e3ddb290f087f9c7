#include "apps/sluicerun/job.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/sluicerun/job_outputs.h"
#include "apps/sluicerun/job_run.h"
#include "apps/sluicerun/output.h"
#include "apps/sluicerun/rank.h"
#include "apps/sluicerun/signals.h"
#include "apps/sluicerun/starting.h"
#include "dist/net/address.h"
#include "dist/net/socket.h"
#include "engine/descriptor_limit.h"

namespace sluice::launcher {
namespace {

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
  JobOutputs outputs(options);
  SignalQueue signals;
  JobOptions started = options;
  for (int restarts = 0, wait = 1;; wait = std::min(kLongestWait, 2 * wait)) {
    const JobEnd ended =
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
