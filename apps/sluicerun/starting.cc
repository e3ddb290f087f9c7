#include "apps/sluicerun/starting.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <utility>

#include "apps/sluicerun/output.h"
#include "dist/net/authority.h"
#include "dist/net/credentials.h"
#include "dist/net/local.h"
#include "dist/net/tls.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

struct NewCredentials {
  std::vector<std::string> ranks, servers;  // none where the job has none
};
NewCredentials MakeCredentials(const JobOptions& options) {
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
  const auto issue = [&](std::string_view role, int count) {
    std::vector<std::string> texts;
    for (int number = 0; number < count; ++number) {
      texts.push_back(dist::TextOf(
          authority.Issue(std::string(role), number, kValid).ValueOrThrow()));
    }
    return texts;
  };
  return {issue(dist::kWorkerRole, options.size),
          issue(dist::kServerRole, options.servers)};
}

}  // namespace

JobPlan PlanOf(const JobOptions& options) {
  JobPlan plan;
  plan.command = options.command;
  plan.size = plan.local_size = options.size;
  plan.id = options.id;
  plan.pin = options.pin;
  plan.certificates = options.certificates;
  plan.allow_plaintext = options.allow_plaintext;
  plan.servers_return = options.servers > 0 && options.max_restarts > 0;
  plan.elastic = options.least > 0;
  return plan;
}

Starting::Starting(const JobOptions& options, SignalQueue& signals,
                   rlimit open_files)
    : options_(options), signals_(signals), plan_(PlanOf(options)) {
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
  }
}

Started Starting::Start(int rank) {
  if (seats_.empty()) return StartRank(plan_, rank, signals_);
  return StartRemoteRank(
      AgentCommand(options_.ssh, HostOf(rank).name),
      Encoded(PlanOn(rank, std::filesystem::current_path().string())),
      signals_);
}

Started Starting::StartServer(int server) {
  const auto i = static_cast<size_t>(server);
  return launcher::StartServer(
      plan_,
      {.number = server,
       .listen_fd = server_listeners_[i].descriptor(),
       .credentials =
           server_credentials_.empty() ? "" : server_credentials_[i]},
      signals_);
}

bool Starting::AwaitCoordinator(const Started& zero) {
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

RemotePlan Starting::PlanOn(int rank, const std::string& folder) const {
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

// nullopt where there is none. Throws Error where it takes too long.
std::optional<std::string> Starting::NextLine(int descriptor,
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
      throw Error(
          Code::kDeadlineExceeded,
          fmt::format("{} has not said where rank 0 listens", HostOf(0).name));
    } else if (ready < 0 || polled[1].revents != 0 || polled[0].revents != 0) {
      return std::nullopt;
    }
  }
}

}  // namespace sluice::launcher
