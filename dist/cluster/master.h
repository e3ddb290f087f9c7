// The master's side of a cluster: a session (graph/session/session.h) that is
// given one has devices of its tasks.
//
//   auto cluster = dist::MakeCluster({.token = token}, {
//       {"/job:worker/task:0", "127.0.0.1", 4000},
//       {"/job:worker/task:1", "127.0.0.1", 4001}}).ValueOrThrow();
//   SessionOptions options;
//   options.devices = {"/job:worker/task:0/cpu:0", "/job:worker/task:1/cpu:0"};
//   options.cluster = cluster;
//   Session session(graph, options);
#ifndef SLUICE_DIST_CLUSTER_MASTER_H_
#define SLUICE_DIST_CLUSTER_MASTER_H_

#include <chrono>
#include <memory>
#include <vector>

#include "dist/cluster/options.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

class Cluster;

namespace dist {

struct ClusterOptions {
  // `task.name` may be empty: the master then has its certificate's name or,
  // without credentials, one of its own.
  TaskOptions task;
  // How long to wait for a task to be there; a task that was there and is gone
  // is looked for at most a second at a time.
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(60);
};

// Connects to nobody yet. Sessions keep what they are given. kInvalidArgument
// where the credentials are none, or another's than the name says, and where
// stall_note is not above 0.
Result<std::shared_ptr<Cluster>> MakeCluster(const ClusterOptions& options,
                                             std::vector<ClusterTask> tasks);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_CLUSTER_MASTER_H_
