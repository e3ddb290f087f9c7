// One session of a cluster, on the master's side.
#ifndef SLUICE_DIST_CLUSTER_MASTERS_SESSION_H_
#define SLUICE_DIST_CLUSTER_MASTERS_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dist/cluster/master.h"
#include "dist/cluster/task.h"
#include "graph/session/cluster.h"

namespace sluice::dist {

// A session's other end on one task.
struct FarTask {
  ClusterTask address;
  std::vector<std::string> devices;
  Task::LinkPtr link;  // null: never connected
  uint64_t session = 0;
  std::vector<std::string> descriptions;
  std::vector<uint64_t> incarnations;

  bool alive() const { return link != nullptr && link->status().ok(); }
};

// `tasks`: the addresses, each with those of the request's devices that the
// task has.
std::unique_ptr<ClusterSession> MakeMastersSession(
    std::shared_ptr<Task> task, const ClusterOptions& options,
    std::vector<FarTask> tasks, const Cluster::Request& request);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_CLUSTER_MASTERS_SESSION_H_
