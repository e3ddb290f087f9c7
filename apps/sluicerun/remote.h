// A rank on another host. There `sluicerun --agent` starts it (agent.h); here a
// relay, a process of ours in the place of the rank's, runs ssh and hands on
// signals. What the agent is told, secrets too, goes through ssh's standard
// input: first the plan, a line of JSON, then a byte for each signal. Its end
// ends the rank.
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
  std::string folder;  // to run in
  // Rank 0's: an address of its host to listen at.
  std::string listen;
  double timeout_kill = 5;
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

// What rank 0's agent says first on its stdout: where rank 0 listens.
inline constexpr std::string_view kListensAt = "sluicerun-agent listens at ";

// Returns when the relay runs; whether ssh gets through shows later.
Started StartRemoteRank(const std::vector<std::string>& command,
                        const std::string& plan, const SignalQueue& signals);

// The text as one word of a shell's.
std::string Quoted(const std::string& text);

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_REMOTE_H_
