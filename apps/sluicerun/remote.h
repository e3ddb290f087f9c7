// A rank on another host. There `sluicerun --agent` starts it (agent.h); here a
// relay (relay.h) stands for it. What they say, secrets too, goes through ssh:
// first the plan, a line of JSON, and the agent's line that it has begun, then
// words (channel.h), an elastic job's roster packets among them. The end of it
// ends the rank.
//
// That way needs no port that a launcher's host would have to listen at, which
// is often behind a firewall that lets nobody in, and is encrypted and known
// on both ends already. What it has not is a way of its own for what is urgent,
// so that output is sent ahead only as far as it is read.
#ifndef SLUICE_APPS_SLUICERUN_REMOTE_H_
#define SLUICE_APPS_SLUICERUN_REMOTE_H_

#include <string>
#include <string_view>
#include <vector>

#include "apps/sluicerun/rank.h"
#include "apps/sluicerun/signals.h"

namespace sluice::launcher {

struct RemotePlan {
  JobPlan job;  // `command`, ranks, secrets, pin; no descriptors
  int rank = 0;
  int server = -1;     // in place of a rank: that parameter server
  std::string folder;  // to run in
  // For rank 0 or a server: an address of its host to listen at, and the port,
  // which a server has at the latest when it is started again; 0: any, which
  // the agent then says.
  std::string listen;
  int port = 0;
  bool one_host = false;  // no other is to reach this one
  double timeout_kill = 5, peer_timeout = 60;
};
// The plan's line, with the newline. Throws Error where a text is no UTF-8.
std::string Encoded(const RemotePlan& plan);
// Parses a plan's line. Throws Error where it is none, or another version's.
RemotePlan DecodedPlan(std::string_view line);

struct Ssh {
  std::vector<std::string> command = {"ssh"};
  int port = 0;         // 0: ssh's own choice
  std::string program;  // sluicerun on the hosts
};
// The words of the command that runs the agent on a host.
std::vector<std::string> AgentCommand(const Ssh& ssh, const std::string& host);

// The first words of rank 0's agent and of servers' on their stdout, before
// where they listen; output of the host's shell, without a line's end maybe,
// may come first. Not in an elastic job, nor where they were told a port.
inline constexpr std::string_view kListensAt = "sluicerun-agent listens at ";
// The line that every agent prints when its rank runs.
inline constexpr std::string_view kAgentBegins = "sluicerun-agent begins\n";

// Returns when the relay runs; whether ssh gets through shows later.
Started StartRemoteRank(const std::vector<std::string>& command,
                        const std::string& plan, bool elastic,
                        const SignalQueue& signals);

// The text as one word of a shell's.
std::string Quoted(const std::string& text);

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_REMOTE_H_
