// A parameter server: a task that keeps variables for the workers of a job,
// applies what they send, and, the first of several, sets their pace.
#ifndef SLUICE_DIST_SERVERS_SERVER_H_
#define SLUICE_DIST_SERVERS_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "dist/cluster/master.h"
#include "dist/cluster/worker.h"
#include "dist/launch_info.h"
#include "engine/status.h"
#include "engine/visibility.h"
#include "graph/session/cluster.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// "/job:ps/task:1"
std::string ServerName(int server);

// What a server keeps while it lives. `options` say the rest: the name, the
// token, credentials and where it listens.
Result<std::unique_ptr<Worker>> StartServer(WorkerOptions options);
// The same of a job that a launcher has started, where this process is one
// (LaunchInfo::server). Takes info.listen_fd.
Result<std::unique_ptr<Worker>> StartServer(const LaunchInfo& info,
                                            TaskOptions options);

// The servers of a job as a worker has them.
struct ServersOfJob {
  std::shared_ptr<Cluster> cluster;
  std::vector<std::string> devices;  // one of each
};
Result<ServersOfJob> ReachServers(const LaunchInfo& info,
                                  ClusterOptions options);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_SERVERS_SERVER_H_
