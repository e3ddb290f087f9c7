#include "dist/servers/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "dist/servers/admission.h"
#include "dist/servers/pace.h"
#include "engine/device.h"
#include "engine/thread_annotations.h"

namespace sluice::dist {
namespace {

// What all workers of the one job that a server is for ask one Kept, of the
// newest era: all by the same rule, or they are told that they do not.
template <typename Kept, typename Call, int64_t Call::*kRule>
class Keeper {
 public:
  Result<std::string> Answer(const Call& call) {
    const MutexLock lock(mutex_);
    if (!kept_ || call.era > first_.era) {
      kept_.emplace(call.workers, call.*kRule);
      first_ = call;
    }
    if (call.era < first_.era) {
      return FailedPrecondition(
          fmt::format("rank {} asks for the pace of workers that have begun "
                      "again since",
                      call.question.rank));
    }
    if (call.workers != first_.workers || call.*kRule != first_.*kRule) {
      return FailedPrecondition(fmt::format(
          "rank {} takes the job for one of {} workers, others for one of {}, "
          "or their --consistency or --backup-workers differs",
          call.question.rank, call.workers, first_.workers));
    }
    SLUICE_ASSIGN_OR_RETURN(const auto answer, kept_->Ask(call.question));
    return TextOf(answer);
  }

 private:
  Mutex mutex_;
  std::optional<Kept> kept_ GUARDED_BY(mutex_);
  Call first_ GUARDED_BY(mutex_);  // of its era
};

class Keepers {
 public:
  Result<std::string> Answer(const std::string& text) {
    if (IsAdmissionCall(text)) {
      SLUICE_ASSIGN_OR_RETURN(const AdmissionCall call,
                              ParseAdmissionCall(text));
      return admission_.Answer(call);
    }
    SLUICE_ASSIGN_OR_RETURN(const PaceCall call, ParsePaceCall(text));
    return pace_.Answer(call);
  }

 private:
  Keeper<Pace, PaceCall, &PaceCall::lead> pace_;
  Keeper<Admission, AdmissionCall, &AdmissionCall::backups> admission_;
};

}  // namespace

std::string ServerName(int server) {
  return fmt::format("/job:{}/task:{}", kServerRole, server);
}

std::string DeviceOfServer(const LaunchInfo& info, int server,
                           DeviceType type) {
  if (type == DeviceType::kCpu) return "/cpu:0";
  const auto own = info.servers.begin() + server;
  const auto before = std::count_if(
      info.servers.begin(), own,
      [&](const TaskAddress& other) { return other.host == own->host; });
  return DeviceName{type, static_cast<int>(before)}.ToString();
}

Result<std::unique_ptr<Worker>> StartServer(WorkerOptions options) {
  options.answer = [keepers =
                        std::make_shared<Keepers>()](const std::string& text) {
    return keepers->Answer(text);
  };
  return Worker::Start(options);
}

Result<std::unique_ptr<Worker>> StartServer(const LaunchInfo& info,
                                            TaskOptions options,
                                            DeviceType type) {
  WorkerOptions server;
  server.task = std::move(options);
  server.task.name = ServerName(info.server);
  server.task.token = info.token;
  server.task.credentials = info.credentials;
  server.listen_fd = info.listen_fd;
  if (type != DeviceType::kCpu) {
    server.devices.push_back(DeviceOfServer(info, info.server, type));
  }
  return StartServer(std::move(server));
}

Result<ServersOfJob> ReachServers(const LaunchInfo& info,
                                  ClusterOptions options, DeviceType type) {
  options.task.name = fmt::format("/job:{}/task:{}", kWorkerRole, info.rank);
  options.task.token = info.token;
  options.task.credentials = info.credentials;
  ServersOfJob servers;
  std::vector<ClusterTask> tasks;
  for (const TaskAddress& address : info.servers) {
    const auto server = static_cast<int>(tasks.size());
    tasks.push_back({ServerName(server), address.host, address.port});
    servers.devices.push_back(ServerName(server) +
                              DeviceOfServer(info, server, type));
  }
  SLUICE_ASSIGN_OR_RETURN(servers.cluster,
                          MakeCluster(options, std::move(tasks)));
  return servers;
}

}  // namespace sluice::dist
