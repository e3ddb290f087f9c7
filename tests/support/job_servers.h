// Parameter servers of this process, for trainings by threads of it.
#ifndef SLUICE_TESTS_SUPPORT_JOB_SERVERS_H_
#define SLUICE_TESTS_SUPPORT_JOB_SERVERS_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/servers/server.h"
#include "models/train/workers/meetings.h"
#include "tests/support/free_ports.h"

namespace sluice::testing {

class JobServers {
 public:
  // With variables on devices of that type. `may_return`: at ports that nobody
  // is given while a server is away.
  explicit JobServers(int count, DeviceType type = DeviceType::kCpu,
                      bool may_return = false)
      : type_(type) {
    job_.token = std::string(64, '7');
    for (int server = 0; server < count; ++server) {
      job_.servers.push_back({"127.0.0.1", 0});
      servers_.push_back(Started(server, may_return ? FreePorts(1)[0] : 0));
      job_.servers.back().port = servers_.back()->port();
    }
  }
  void End(int server) { servers_[static_cast<size_t>(server)].reset(); }
  // Another one, which knows nothing, where one has ended, of a job whose
  // servers may return.
  void Return(int server) {
    const auto i = static_cast<size_t>(server);
    servers_[i] = Started(server, job_.servers[i].port);
  }

  // As the worker of that rank reaches them.
  TrainingServers For(int rank, std::optional<int64_t> lead) const {
    dist::LaunchInfo info = job_;
    info.rank = rank;
    dist::ClusterOptions options;
    options.task = Task();
    options.connect_timeout = std::chrono::seconds(20);
    const auto reached =
        dist::ReachServers(info, options, type_).ValueOrThrow();
    return {reached.cluster, reached.devices, lead};
  }

 private:
  static dist::TaskOptions Task() {
    dist::TaskOptions options;
    options.peer_timeout = std::chrono::seconds(20);
    return options;
  }

  std::unique_ptr<dist::Worker> Started(int server, int port) const {
    dist::WorkerOptions options;
    options.task = Task();
    options.task.name = dist::ServerName(server);
    options.task.token = job_.token;
    options.port = port;
    if (type_ != DeviceType::kCpu) {
      options.devices.push_back(dist::DeviceOfServer(job_, server, type_));
    }
    return dist::StartServer(std::move(options)).ValueOrThrow();
  }

  const DeviceType type_;
  dist::LaunchInfo job_;
  std::vector<std::unique_ptr<dist::Worker>> servers_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_JOB_SERVERS_H_
