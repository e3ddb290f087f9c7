#include "apps/sluicerun/remote.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/sluicerun/relay.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

using PlanJson = nlohmann::json;

// get_to takes any number and converts it, whatever its size.
void ReadInt(const PlanJson& json, const char* name, int* number) {
  const PlanJson& value = json.at(name);
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<int>(value.get<uint64_t>())
                        : value.is_number_integer() &&
                              std::in_range<int>(value.get<int64_t>());
  if (!fits) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--agent: '{}' of the plan is {}", name,
                            value.dump(-1, ' ', /*ensure_ascii=*/true,
                                       PlanJson::error_handler_t::replace)));
  }
  *number = value.get<int>();
}

}  // namespace

std::string Encoded(const RemotePlan& plan) {
  const JobPlan& job = plan.job;
  PlanJson json = {{"version", SLUICE_VERSION},
                   {"command", job.command},
                   {"folder", plan.folder},
                   {"rank", plan.rank},
                   {"server", plan.server},
                   {"size", job.size},
                   {"first", job.first},
                   {"local_size", job.local_size},
                   {"job", job.id},
                   {"coordinator", job.coordinator},
                   {"first_port", job.first_port},
                   {"servers", job.servers},
                   {"servers_return", job.servers_return},
                   {"listen", plan.listen},
                   {"port", plan.port},
                   {"one_host", plan.one_host},
                   {"token", job.token},
                   {"credentials", job.credentials},
                   {"certificates", job.certificates},
                   {"allow_plaintext", job.allow_plaintext},
                   {"pin", job.pin},
                   {"elastic", job.elastic},
                   {"address", job.address},
                   {"timeout_kill", plan.timeout_kill},
                   {"peer_timeout", plan.peer_timeout}};
  try {
    return json.dump(-1, ' ', /*ensure_ascii=*/true) + "\n";
  } catch (const PlanJson::exception&) {
    throw Error(Code::kInvalidArgument,
                "a word of the command, or the folder, is no UTF-8, which "
                "cannot be told to other hosts");
  }
}

RemotePlan DecodedPlan(std::string_view line) {
  const PlanJson json =
      PlanJson::parse(line, nullptr, /*allow_exceptions=*/false);
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
    ReadInt(json, "rank", &plan.rank);
    ReadInt(json, "server", &plan.server);
    ReadInt(json, "size", &job.size);
    ReadInt(json, "first", &job.first);
    ReadInt(json, "local_size", &job.local_size);
    json.at("job").get_to(job.id);
    json.at("coordinator").get_to(job.coordinator);
    ReadInt(json, "first_port", &job.first_port);
    json.at("servers").get_to(job.servers);
    json.at("servers_return").get_to(job.servers_return);
    json.at("listen").get_to(plan.listen);
    ReadInt(json, "port", &plan.port);
    json.at("one_host").get_to(plan.one_host);
    json.at("token").get_to(job.token);
    json.at("credentials").get_to(job.credentials);
    json.at("certificates").get_to(job.certificates);
    json.at("allow_plaintext").get_to(job.allow_plaintext);
    json.at("pin").get_to(job.pin);
    json.at("elastic").get_to(job.elastic);
    json.at("address").get_to(job.address);
    json.at("timeout_kill").get_to(plan.timeout_kill);
    json.at("peer_timeout").get_to(plan.peer_timeout);
    const int64_t local = int64_t{plan.rank} - job.first;
    if (job.command.empty() || local < 0 || local >= job.local_size) {
      throw Error(Code::kInvalidArgument, "a plan that makes no sense");
    }
    return plan;
  } catch (const PlanJson::exception& error) {
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
                        const std::string& plan, bool elastic,
                        const SignalQueue& signals) {
  RosterEnds roster;
  if (elastic && !OpenRoster(&roster)) return NotStarted(errno);
  const pid_t parent = getpid();
  Started started = Forked([&](int out, int err) {
    RunRelay(command, plan, out, err, roster.member.get(), parent, signals);
  });
  started.roster = std::move(roster.launcher);
  return started;
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
