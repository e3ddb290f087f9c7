// Workers of one process, and masters of theirs.
#ifndef SLUICE_TESTS_DIST_CLUSTER_WORKERS_H_
#define SLUICE_TESTS_DIST_CLUSTER_WORKERS_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/cluster/master.h"
#include "dist/cluster/worker.h"
#include "dist/net/authority.h"
#include "graph/session/session.h"
#include "tests/support/free_ports.h"

namespace sluice::dist::testing {

inline std::string WorkerName(int task) {
  return "/job:worker/task:" + std::to_string(task);
}

inline std::string ClusterToken() {
  return std::string(64, '7');
}

inline TaskOptions OptionsOf(std::string name, Transport transport) {
  TaskOptions options;
  options.name = std::move(name);
  options.token = ClusterToken();
  options.peer_timeout = std::chrono::seconds(3);
  options.transport = transport;
  return options;
}

class Workers {
 public:
  // With an authority all have credentials of it, the masters that of
  // /job:master/task:0.
  Workers(int count, Transport transport, const Authority* authority = nullptr,
          std::vector<std::string> devices = {"/cpu:0"})
      : transport_(transport),
        authority_(authority),
        devices_(std::move(devices)) {
    for (int task = 0; task < count; ++task) {
      workers_.emplace_back();
      // One that nobody is given while the worker is away.
      const int port = sluice::testing::FreePorts(1)[0];
      addresses_.push_back({WorkerName(task), "127.0.0.1", port});
      Begin(task);
    }
  }

  // At the same port again.
  void Begin(int task) {
    WorkerOptions options;
    options.task =
        Issue(OptionsOf(WorkerName(task), transport_), "worker", task);
    options.port = At(task).port;
    options.devices = devices_;
    workers_[static_cast<size_t>(task)] = Worker::Start(options).ValueOrThrow();
  }
  void End(int task) { workers_[static_cast<size_t>(task)].reset(); }
  const std::vector<ClusterTask>& addresses() const { return addresses_; }

  std::shared_ptr<Cluster> Master() const {
    ClusterOptions options;
    options.task = Issue(OptionsOf("", transport_), "master", 0);
    options.connect_timeout = std::chrono::seconds(5);
    return MakeCluster(options, addresses_).ValueOrThrow();
  }

 private:
  TaskOptions Issue(TaskOptions options, const char* role, int task) const {
    if (authority_ == nullptr) return options;
    options.credentials =
        authority_->Issue(role, task, std::chrono::hours(1)).ValueOrThrow();
    return options;
  }
  ClusterTask& At(int task) { return addresses_[static_cast<size_t>(task)]; }

  const Transport transport_;
  const Authority* const authority_;
  const std::vector<std::string> devices_;
  std::vector<ClusterTask> addresses_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_CLUSTER_WORKERS_H_
