// A parameter server: a task that keeps variables for the workers of a job,
// applies what they send, and, the first of several, sets their pace.
#ifndef SLUICE_DIST_SERVERS_SERVER_H_
#define SLUICE_DIST_SERVERS_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dist/cluster/master.h"
#include "dist/cluster/worker.h"
#include "dist/launch_info.h"
#include "dist/net/socket.h"
#include "dist/servers/attendance.h"
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

// A question to any server (Cluster::Ask), for its ChosenIsa
// (engine/cpu_features.h).
inline constexpr std::string_view kAskIsa = "instruction set";
// A question to any server, for its SteadyNowNs (engine/runtime/trace.h), in
// decimal.
inline constexpr std::string_view kAskClock = "clock";
// A question to any server, for the newest era of a PaceCall or an
// AdmissionCall that it has had, in decimal; 0: none. Workers that begin must
// use a later era.
inline constexpr std::string_view kAskEra = "newest era";
// A server's answer to kAskClock or kAskEra. kDataLoss where it is no number.
Result<int64_t> AskNumber(Cluster& cluster, const std::string& server,
                          std::string_view question);

// Starts a server, which serves as long as the result lives. `options` say its
// name, token, credentials and where it listens.
Result<std::unique_ptr<Worker>> StartServer(WorkerOptions options);

// This process, where it is a server of its job (LaunchInfo::server).
class JobServer {
 public:
  // `type`: the kind of device that variables are on. Takes info.listen_fd.
  // Where no launcher ends servers (LaunchInfo::ends_servers) each worker is
  // waited for for `patience`; one that is gone for as long where servers
  // return, else not at all. `answer`, if any, answers questions
  // (WorkerOptions) in place of what trainings ask.
  static Result<std::unique_ptr<JobServer>> Start(
      const LaunchInfo& info, TaskOptions options, DeviceType type,
      std::chrono::milliseconds patience,
      std::function<Result<std::string>(const std::string&)> answer = {});
  // Serves until `told`, which is called again and again and waits a moment
  // each time, returns true; or, where no launcher ends it, until the training
  // has ended. kUnavailable, which names the workers, where it will not.
  Status Serve(const std::function<bool()>& told) const;

 private:
  JobServer(const LaunchInfo& info, const TaskOptions& options,
            std::chrono::milliseconds patience);

  const std::string name_;
  const std::function<void(std::string_view)> note_;
  const bool ends_itself_;
  const Deadline come_;
  const std::shared_ptr<Attendance> attendance_;
  std::unique_ptr<Worker> worker_;  // speaks to the above
};

// The servers of a job as a worker has them.
struct ServersOfJob {
  std::shared_ptr<Cluster> cluster;
  // "/job:ps/task:1/gpu:0": DeviceOfServer of each.
  std::vector<std::string> devices;
};
// Connects a worker to its job's servers. Where no launcher has made sure that
// they are there it waits for them, for up to options.connect_timeout;
// options.task.note is told for which every 10 s.
Result<ServersOfJob> ReachServers(const LaunchInfo& info,
                                  ClusterOptions options, DeviceType type);
// Ends the servers, by rank 0's word that the training has ended, after which
// nobody uses them. A server that is gone already is passed over.
void EndServers(Cluster& cluster, int servers);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_SERVERS_SERVER_H_
