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

// A question to any server (Cluster::Ask): what it answers is its ChosenIsa
// (engine/cpu_features.h).
inline constexpr std::string_view kAskIsa = "instruction set";
// The same, for its SteadyNowNs (engine/runtime/trace.h), in decimal.
inline constexpr std::string_view kAskClock = "clock";
// The same, for the newest era of a PaceCall or an AdmissionCall that it has
// had, in decimal; 0: none. Those of who begins are to be above it.
inline constexpr std::string_view kAskEra = "newest era";
// What a server answers to one of these two. kDataLoss where it is no number.
Result<int64_t> AskNumber(Cluster& cluster, const std::string& server,
                          std::string_view question);

// What a server keeps while it lives. `options` say the rest: the name, the
// token, credentials and where it listens.
Result<std::unique_ptr<Worker>> StartServer(WorkerOptions options);

// This process, where it is a server of its job (LaunchInfo::server).
class JobServer {
 public:
  // With a GPU where variables are to be on that. Takes info.listen_fd. Where
  // no launcher ends servers (LaunchInfo::ends_servers) each worker is waited
  // for so long; one that is gone as well where servers return, else not at
  // all. With an `answer` that is what it says to questions (WorkerOptions), in
  // place of what trainings ask.
  static Result<std::unique_ptr<JobServer>> Start(
      const LaunchInfo& info, TaskOptions options, DeviceType type,
      std::chrono::milliseconds patience,
      std::function<Result<std::string>(const std::string&)> answer = {});
  // Until `told` says that it is to end, which is asked again and again and
  // waits a moment each time; or, where no launcher ends it, until the training
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
// Where no launcher has made sure that they are there it waits for them, for up
// to options.connect_timeout; every 10 s options.task.note hears for whom.
Result<ServersOfJob> ReachServers(const LaunchInfo& info,
                                  ClusterOptions options, DeviceType type);
// Has them end: rank 0's word that the training has, after which nobody uses
// them. One that is gone already is passed over.
void EndServers(Cluster& cluster, int servers);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_SERVERS_SERVER_H_
