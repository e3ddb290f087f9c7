#include "dist/servers/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "dist/collective/patience.h"
#include "dist/membership/rank_name.h"
#include "dist/net/address.h"
#include "dist/net/credentials.h"
#include "dist/servers/admission.h"
#include "dist/servers/pace.h"
#include "engine/cpu_features.h"
#include "engine/device.h"
#include "engine/parse_number.h"
#include "engine/runtime/trace.h"
#include "engine/thread_annotations.h"
#include "graph/session/cluster.h"

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
  // The newest; 0: nobody has asked yet.
  int64_t era() {
    const MutexLock lock(mutex_);
    return first_.era;
  }

 private:
  Mutex mutex_;
  std::optional<Kept> kept_ GUARDED_BY(mutex_);
  Call first_ GUARDED_BY(mutex_);  // of its era
};

class Keepers {
 public:
  Result<std::string> Answer(const std::string& text) {
    if (text == kAskIsa) return ChosenIsa();
    if (text == kAskClock) return std::to_string(SteadyNowNs());
    if (text == kAskEra) {
      return std::to_string(std::max(pace_.era(), admission_.era()));
    }
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

std::function<Result<std::string>(const std::string&)> Answers() {
  return [keepers = std::make_shared<Keepers>()](const std::string& text) {
    return keepers->Answer(text);
  };
}

// A task of a job, by that name.
TaskOptions OfJob(const LaunchInfo& info, TaskOptions options,
                  std::string name) {
  options.name = std::move(name);
  options.token = info.token;
  options.credentials = info.credentials;
  options.allow_plaintext = options.allow_plaintext || info.allow_plaintext;
  return options;
}

// Whether a task of the job is of another host than this server's. What it is
// told of the ring is how many are of its own, at least one, and where the
// first is.
bool HasOtherHosts(const LaunchInfo& info, const std::string& own) {
  return info.local_size < info.size || info.host != own ||
         std::any_of(
             info.servers.begin(), info.servers.end(),
             [&](const TaskAddress& server) { return server.host != own; });
}

// Waits until a worker has reached all servers: some may not have begun, or
// have no name yet.
Status Meet(const LaunchInfo& info, const ClusterOptions& options,
            Cluster& cluster) {
  constexpr std::chrono::milliseconds kAgain(100);
  Patience patience(RankName(info.rank, info.size),
                    After(options.connect_timeout), options.task.note);
  for (size_t i = 0; i < info.servers.size();) {
    const Status there = cluster.Renew(ServerName(static_cast<int>(i)));
    if (there.ok()) {
      ++i;
      continue;
    }
    if (std::chrono::steady_clock::now() >= patience.next()) {
      SLUICE_RETURN_IF_ERROR(patience.Waited(there.message()));
    }
    std::this_thread::sleep_for(kAgain);
  }
  return {};
}

}  // namespace

std::string ServerName(int server) {
  return fmt::format("/job:{}/task:{}", kServerRole, server);
}

Result<int64_t> AskNumber(Cluster& cluster, const std::string& server,
                          std::string_view question) {
  SLUICE_ASSIGN_OR_RETURN(const std::string said,
                          cluster.Ask(server, std::string(question)));
  if (const auto number = ParseWhole<int64_t>(said)) return *number;
  return DataLoss(fmt::format("{} says '{}' for its {}", server,
                              said.substr(0, 80), question));
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
  options.answer = Answers();
  return Worker::Start(options);
}

JobServer::JobServer(const LaunchInfo& info, const TaskOptions& options,
                     std::chrono::milliseconds patience)
    : name_(fmt::format("parameter server {}", info.server)),
      note_(options.note),
      ends_itself_(info.ends_servers),
      come_(After(patience)),
      attendance_(std::make_shared<Attendance>(
          info.size, come_,
          info.servers_return ? patience : std::chrono::milliseconds(0))) {}

Result<std::unique_ptr<JobServer>> JobServer::Start(
    const LaunchInfo& info, TaskOptions options, DeviceType type,
    std::chrono::milliseconds patience,
    std::function<Result<std::string>(const std::string&)> answer) {
  std::unique_ptr<JobServer> self(new JobServer(info, options, patience));
  WorkerOptions server;
  server.task = OfJob(info, std::move(options), ServerName(info.server));
  if (info.listen_fd >= 0) {
    server.listen_fd = info.listen_fd;
  } else {
    const TaskAddress& own = info.servers[static_cast<size_t>(info.server)];
    if (HasOtherHosts(info, own.host)) {
      SLUICE_RETURN_IF_ERROR(CheckNamesHost(own.host));
    }
    server.host = own.host;
    server.port = own.port;
  }
  if (type != DeviceType::kCpu) {
    server.devices.push_back(DeviceOfServer(info, info.server, type));
  }
  const std::shared_ptr<Attendance> attendance = self->attendance_;
  if (!answer) answer = Answers();
  server.answer = [attendance, answers = std::move(answer)](
                      const std::string& text) -> Result<std::string> {
    if (text != kTrainingEnded) return answers(text);
    attendance->TrainingEnded();
    return std::string("{}");
  };
  server.seen = [attendance](const std::string& task, const Status& there) {
    const auto name = ParseDeviceName(task + "/cpu:0");
    if (!name.ok() || name->job != kWorkerRole) return;
    if (there.ok()) {
      attendance->Came(name->task);
    } else {
      attendance->Gone(name->task, there, std::chrono::steady_clock::now());
    }
  };
  SLUICE_ASSIGN_OR_RETURN(self->worker_, Worker::Start(server));
  return self;
}

Status JobServer::Serve(const std::function<bool()>& told) const {
  Patience patience(name_, come_, note_);
  while (!told()) {
    if (!ends_itself_) continue;
    const Deadline now = std::chrono::steady_clock::now();
    SLUICE_ASSIGN_OR_RETURN(const bool ended, attendance_->Ended(now));
    if (ended) break;
    const std::vector<int> missing = attendance_->Missing();
    if (!missing.empty() && now >= patience.next()) {
      SLUICE_RETURN_IF_ERROR(patience.Waited(RankNames(missing)));
    }
  }
  return {};
}

Result<ServersOfJob> ReachServers(const LaunchInfo& info,
                                  ClusterOptions options, DeviceType type) {
  options.task = OfJob(info, std::move(options.task),
                       fmt::format("/job:{}/task:{}", kWorkerRole, info.rank));
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
  if (info.ends_servers) {
    SLUICE_RETURN_IF_ERROR(Meet(info, options, *servers.cluster));
  }
  return servers;
}

void EndServers(Cluster& cluster, int servers) {
  for (int server = 0; server < servers; ++server) {
    (void)cluster.Ask(ServerName(server), std::string(kTrainingEnded)).ok();
  }
}

}  // namespace sluice::dist
