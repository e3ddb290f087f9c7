// The parameter servers of a job that is looked at: what such a process does,
// and what the ranks do with them.
#ifndef SLUICE_APPS_SLUICE_CLUSTER_SERVERS_H_
#define SLUICE_APPS_SLUICE_CLUSTER_SERVERS_H_

#include <cstdint>
#include <vector>

#include "apps/sluice/cluster_facts.h"
#include "apps/sluice/pairs.h"
#include "dist/launch_info.h"
#include "dist/servers/server.h"
#include "engine/status.h"
#include "models/train/workers/workers.h"

namespace sluice::tool {

// Runs a process that is a server: tells the ranks its facts, and holds what
// they measure with, until it is told to end. Throws Error.
void ServeDoctor(const dist::LaunchInfo& info);

// The servers as a rank has them; empty where the job has none.
struct Servers {
  dist::ServersOfJob job;
  std::vector<ProcessFacts> facts;  // of each
};
// Called by a rank, whose clock is `ahead` seconds ahead of rank 0's. The error
// is of the first server that it does not reach.
Result<Servers> ReachServers(const dist::LaunchInfo& info, int64_t ahead);

// Measures each rank with each server, one pair after another; `b` of a pair is
// the server's number behind those of the ranks. Latency is of a question, the
// rates of tensors that a step writes to a variable of the server's, and reads
// from it. `processes`: the ranks, then the servers. Throws Error. Waits for
// the other ranks.
std::vector<PairRow> MeasureServers(const Workers& workers,
                                    const Servers& servers,
                                    const std::vector<ProcessFacts>& processes);

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_CLUSTER_SERVERS_H_
