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
  // Rank 0's, or a server's: an address of its host to listen at, and the port,
  // which a server has at the latest when it is started again; 0: any, which it
  // says.
  std::string listen;
  int port = 0;
  bool one_host = false;  // no other is to reach this one
  double timeout_kill = 5, peer_timeout = 60;
};
// With the newline. Throws Error where a text is no UTF-8.
std::string Encoded(const RemotePlan& plan);
// Throws Error where it is none, or another version's.
RemotePlan DecodedPlan(std::string_view line);

struct Ssh {
  std::vector<std::string> command = {"ssh"};
  int port = 0;         // 0: ssh's own choice
  std::string program;  // sluicerun on the hosts
};
// The words to run the agent there.
std::vector<std::string> AgentCommand(const Ssh& ssh, const std::string& host);

// What rank 0's agent and those of servers say first on their stdout, behind
// what the host's shell has printed there, which may end no line: where these
// listen. Not in an elastic job, nor where they were told a port.
inline constexpr std::string_view kListensAt = "sluicerun-agent listens at ";
// What every agent says when its rank runs.
inline constexpr std::string_view kAgentBegins = "sluicerun-agent begins\n";

// Returns when the relay runs; whether ssh gets through shows later.
Started StartRemoteRank(const std::vector<std::string>& command,
                        const std::string& plan, bool elastic,
                        const SignalQueue& signals);

// The text as one word of a shell's.
std::string Quoted(const std::string& text);

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_REMOTE_H_
