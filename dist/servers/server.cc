#include "dist/servers/server.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "dist/servers/pace.h"
#include "engine/thread_annotations.h"

namespace sluice::dist {
namespace {

// The pace of the one job that a server is for: all ask for the same, or are
// told that they do not.
class PaceKeeper {
 public:
  Result<std::string> Answer(const std::string& text) {
    SLUICE_ASSIGN_OR_RETURN(const PaceCall call, ParsePaceCall(text));
    const MutexLock lock(mutex_);
    if (!pace_ || call.era > era_) {
      pace_.emplace(call.workers, call.lead);
      era_ = call.era;
      workers_ = call.workers;
      lead_ = call.lead;
    }
    if (call.era < era_) {
      return FailedPrecondition(
          fmt::format("rank {} asks for the pace of workers that have begun "
                      "again since",
                      call.question.rank));
    }
    if (call.workers != workers_ || call.lead != lead_) {
      return FailedPrecondition(fmt::format(
          "rank {} takes the job for one of {} workers, others for one of {}, "
          "or their --consistency differs",
          call.question.rank, call.workers, workers_));
    }
    SLUICE_ASSIGN_OR_RETURN(const Pace::Answer answer,
                            pace_->Ask(call.question));
    return TextOf(answer);
  }

 private:
  Mutex mutex_;
  std::optional<Pace> pace_ GUARDED_BY(mutex_);
  int64_t era_ GUARDED_BY(mutex_) = 0;
  int workers_ GUARDED_BY(mutex_) = 0;
  int64_t lead_ GUARDED_BY(mutex_) = 0;
};

}  // namespace

std::string ServerName(int server) {
  return fmt::format("/job:{}/task:{}", kServerRole, server);
}

Result<std::unique_ptr<Worker>> StartServer(WorkerOptions options) {
  options.answer =
      [keeper = std::make_shared<PaceKeeper>()](const std::string& text) {
        return keeper->Answer(text);
      };
  return Worker::Start(options);
}

Result<std::unique_ptr<Worker>> StartServer(const LaunchInfo& info,
                                            TaskOptions options) {
  WorkerOptions server;
  server.task = std::move(options);
  server.task.name = ServerName(info.server);
  server.task.token = info.token;
  server.task.credentials = info.credentials;
  server.listen_fd = info.listen_fd;
  return StartServer(std::move(server));
}

Result<ServersOfJob> ReachServers(const LaunchInfo& info,
                                  ClusterOptions options) {
  options.task.name = fmt::format("/job:{}/task:{}", kWorkerRole, info.rank);
  options.task.token = info.token;
  options.task.credentials = info.credentials;
  ServersOfJob servers;
  std::vector<ClusterTask> tasks;
  for (const TaskAddress& address : info.servers) {
    const std::string name = ServerName(static_cast<int>(tasks.size()));
    tasks.push_back({name, address.host, address.port});
    servers.devices.push_back(name + "/cpu:0");
  }
  SLUICE_ASSIGN_OR_RETURN(servers.cluster,
                          MakeCluster(options, std::move(tasks)));
  return servers;
}

}  // namespace sluice::dist
