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
#include "engine/kernel.h"
#include "engine/status.h"
#include "engine/visibility.h"
#include "graph/session/cluster.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// "/job:ps/task:1"
std::string ServerName(int server);

// The device, of its own, that a server has variables on: "/cpu:0", or, of each
// server of a host another one, "/gpu:0", "/gpu:1" and so on.
std::string DeviceOfServer(const LaunchInfo& info, int server, DeviceType type);

// What a server keeps while it lives. `options` say the rest: the name, the
// token, credentials and where it listens.
Result<std::unique_ptr<Worker>> StartServer(WorkerOptions options);
// The same of a job that a launcher has started, where this process is one
// (LaunchInfo::server), with a GPU where variables are to be on that. Takes
// info.listen_fd.
Result<std::unique_ptr<Worker>> StartServer(const LaunchInfo& info,
                                            TaskOptions options,
                                            DeviceType type);

// The servers of a job as a worker has them.
struct ServersOfJob {
  std::shared_ptr<Cluster> cluster;
  // "/job:ps/task:1/gpu:0": DeviceOfServer of each.
  std::vector<std::string> devices;
};
Result<ServersOfJob> ReachServers(const LaunchInfo& info,
                                  ClusterOptions options, DeviceType type);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_SERVERS_SERVER_H_
