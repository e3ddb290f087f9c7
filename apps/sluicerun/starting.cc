#include "apps/sluicerun/starting.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <utility>

#include "apps/sluicerun/output.h"
#include "dist/net/address.h"
#include "dist/net/authority.h"
#include "dist/net/credentials.h"
#include "dist/net/local.h"
#include "dist/net/tls.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

// Of a host that is asked where who runs there listens.
constexpr std::chrono::minutes kLongestSilence(2);
constexpr int kLastPort = 65535;

struct NewCredentials {
  std::vector<std::string> ranks, servers;  // none where the job has none
};
NewCredentials MakeCredentials(const JobOptions& options) {
  // As long as any job lasts: ranks that meet again, and servers that were
  // started again, shake hands at any time. Nobody has the authority's key.
  constexpr std::chrono::hours kValid(24 * 3600);
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
  const auto issue = [&](std::string_view role, int count) {
    std::vector<std::string> texts;
    for (int number = 0; number < count; ++number) {
      texts.push_back(dist::TextOf(
          authority.Issue(std::string(role), number, kValid).ValueOrThrow()));
    }
    return texts;
  };
  return {issue(dist::kWorkerRole, options.Most()),
          issue(dist::kServerRole, options.servers)};
}

// On a host's ports, which the user has chosen, servers follow its ranks.
std::vector<int> ServerPorts(const JobOptions& options) {
  std::vector<int> next(options.hosts.size(), options.port);
  for (const Seat& seat : SeatRanks(options.hosts, options.size)) {
    ++next[seat.host];
  }
  std::vector<int> ports;
  for (int server = 0; server < options.servers; ++server) {
    ports.push_back(next[static_cast<size_t>(server) % next.size()]++);
  }
  const int last = *std::max_element(next.begin(), next.end()) - 1;
  if (last > kLastPort) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--port {}: a host's processes would listen up to "
                            "port {}, of which there are {}",
                            options.port, last, kLastPort));
  }
  return ports;
}

}  // namespace

JobPlan PlanOf(const JobOptions& options) {
  JobPlan plan;
  plan.command = options.command;
  plan.size = options.Most();
  plan.local_size = options.size;
  plan.id = options.id;
  plan.pin = options.pin;
  plan.certificates = options.certificates;
  plan.allow_plaintext = options.allow_plaintext;
  plan.servers_return = options.servers > 0 && options.max_restarts > 0;
  plan.elastic = options.least > 0;
  plan.first_port = options.port;
  if (options.port == 0) return plan;
  const auto at = [&](size_t host, int port) {
    return dist::HostAndPort(options.hosts[host].Address(), port);
  };
  plan.coordinator = at(0, options.port);
  const std::vector<int> ports = ServerPorts(options);
  for (size_t i = 0; i < ports.size(); ++i) {
    plan.servers +=
        (i == 0 ? "" : ",") + at(i % options.hosts.size(), ports[i]);
  }
  return plan;
}

Starting::Starting(const JobOptions& options, SignalQueue& signals,
                   rlimit open_files)
    : options_(options),
      signals_(signals),
      plan_(PlanOf(options)),
      hosts_(options.hosts) {
  plan_.token = NewToken();
  plan_.open_files = open_files;
  NewCredentials made = MakeCredentials(options);
  credentials_ = std::move(made.ranks);
  server_credentials_ = std::move(made.servers);
  if (options.hosts.empty()) {
    if (!plan_.elastic) {
      listener_ = dist::Listener::Open("127.0.0.1").ValueOrThrow();
      plan_.coordinator = fmt::format("127.0.0.1:{}", listener_->port());
      plan_.listen_fd = listener_->descriptor();
    }
    plan_.credentials = credentials_;
    for (int server = 0; server < options.servers; ++server) {
      const dist::Listener& own = server_listeners_.emplace_back(
          dist::Listener::Open("127.0.0.1").ValueOrThrow());
      plan_.servers +=
          fmt::format("{}127.0.0.1:{}", server == 0 ? "" : ",", own.port());
    }
    if (options.pin) plan_.cpus = AllowedCpus();
  } else {
    seats_ = SeatRanks(options.hosts, options.size);
    if (options.port != 0) server_ports_ = ServerPorts(options);
  }
}

Started Starting::Start(int rank) {
  if (seats_.empty()) return StartRank(plan_, rank, signals_);
  started_.insert(rank);
  return StartRemoteRank(AgentCommand(options_.ssh, HostOf(rank).name),
                         Encoded(PlanOn(rank)), plan_.elastic, signals_);
}

void Starting::Lost(int rank) {
  started_.erase(rank);
}

bool Starting::SeatAnew(int rank) {
  const auto place = static_cast<size_t>(rank);
  std::vector<Seat> taken;
  for (const int other : started_) {
    if (other != rank) taken.push_back(seats_[static_cast<size_t>(other)]);
  }
  const auto seat = FreeSeat(hosts_, taken, silent_hosts_, options_.Most());
  if (!seat) return false;
  seats_.resize(std::max(seats_.size(), place + 1));
  seats_[place] = *seat;
  return true;
}

bool Starting::SeatElsewhere(int rank) {
  silent_hosts_.insert(seats_.at(static_cast<size_t>(rank)).host);
  return SeatAnew(rank);
}

void Starting::SetHosts(const std::vector<Host>& hosts) {
  for (Host& known : hosts_) known.slots = 0;
  for (const Host& host : hosts) {
    const auto known =
        std::find_if(hosts_.begin(), hosts_.end(),
                     [&](const Host& one) { return one.name == host.name; });
    if (known == hosts_.end()) {
      hosts_.push_back(host);
    } else {
      known->slots = host.slots;
    }
  }
  silent_hosts_.clear();
}

dist::RosterHost Starting::PlaceOf(int rank) const {
  if (seats_.empty()) return {};
  return {static_cast<int>(seats_[static_cast<size_t>(rank)].host),
          HostOf(rank).Address()};
}

Started Starting::StartServer(int server) {
  const auto i = static_cast<size_t>(server);
  if (!seats_.empty()) {
    return StartRemoteRank(
        AgentCommand(options_.ssh, HostOfServer(server).name),
        Encoded(PlanOfServer(server)), /*elastic=*/false, signals_);
  }
  return launcher::StartServer(
      plan_,
      {.number = server,
       .listen_fd = server_listeners_[i].descriptor(),
       .credentials =
           server_credentials_.empty() ? "" : server_credentials_[i]},
      signals_);
}

bool Starting::AwaitCoordinator(int out, const Heed& heed) {
  if (seats_.empty() || plan_.elastic || options_.port != 0) return true;
  const auto address = AwaitAddress(HostOf(0), out, heed, "rank 0");
  if (address) plan_.coordinator = *address;
  return address.has_value();
}

bool Starting::AwaitServer(int server, int out, const Heed& heed) {
  if (seats_.empty() || options_.port != 0) return true;
  const auto address =
      AwaitAddress(HostOfServer(server), out, heed, NameOfServer(server));
  if (!address) return false;
  plan_.servers += (plan_.servers.empty() ? "" : ",") + *address;
  server_ports_.push_back(std::stoi(address->substr(address->rfind(':') + 1)));
  return true;
}

std::optional<std::string> Starting::AwaitAddress(const Host& host, int out,
                                                  const Heed& heed,
                                                  std::string_view who) {
  const std::string late =
      fmt::format("{} has not said where {} listens", host.name, who);
  dist::Deadline limit = dist::After(kLongestSilence);
  while (const auto line = NextLine(out, heed, late, &limit)) {
    const size_t at = line->find(kListensAt);
    // Of a host's shell, which greets whoever comes, and may end no line.
    if (at > 0) Say(fmt::format("{}: {}", host.name, line->substr(0, at)));
    if (at != std::string::npos) return line->substr(at + kListensAt.size());
  }
  return std::nullopt;
}

RemotePlan Starting::PlanOn(int rank) const {
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
  plan.folder = std::filesystem::current_path().string();
  plan.listen = HostOf(0).Address();
  plan.port = options_.port;
  plan.one_host = one_host();
  plan.job.address = HostOf(rank).Address();
  plan.timeout_kill = options_.timeout_kill;
  plan.peer_timeout = options_.peer_timeout;
  return plan;
}

RemotePlan Starting::PlanOfServer(int server) const {
  const auto i = static_cast<size_t>(server);
  const Host& host = HostOfServer(server);
  RemotePlan plan;
  plan.job = plan_;
  plan.server = server;
  const auto beside = std::count_if(
      seats_.begin(), seats_.end(),
      [&](const Seat& seat) { return seat.host == i % hosts_.size(); });
  plan.job.local_size = std::max(1, static_cast<int>(beside));
  if (!server_credentials_.empty()) {
    plan.job.credentials = {server_credentials_[i]};
  }
  plan.folder = std::filesystem::current_path().string();
  plan.listen = host.Address();
  if (i < server_ports_.size()) plan.port = server_ports_[i];
  plan.one_host = one_host();
  plan.timeout_kill = options_.timeout_kill;
  plan.peer_timeout = options_.peer_timeout;
  return plan;
}

// nullopt where there is none. Throws Error where it takes too long; a signal
// sets the limit anew, since the time that Ctrl-Z takes is no host's.
std::optional<std::string> Starting::NextLine(int descriptor, const Heed& heed,
                                              const std::string& late,
                                              dist::Deadline* limit) const {
  std::string line;
  while (true) {
    std::array<pollfd, 2> polled = {pollfd{descriptor, POLLIN, 0},
                                    pollfd{signals_.descriptor(), POLLIN, 0}};
    const int ready = dist::Wait(polled, *limit);
    char byte = 0;
    if (polled[0].revents != 0 && read(descriptor, &byte, 1) == 1) {
      if (byte == '\n') return line;
      line += byte;
    } else if (ready == 0) {
      throw Error(Code::kDeadlineExceeded, late);
    } else if (ready < 0 || polled[0].revents != 0 || !heed()) {
      return std::nullopt;
    } else {
      *limit = dist::After(kLongestSilence);
    }
  }
}

}  // namespace sluice::launcher
