#include "models/cli/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dist/collective/group.h"
#include "dist/launch_info.h"
#include "dist/mpi/mpi_group.h"
#include "dist/own_cores.h"
#include "dist/servers/pace.h"
#include "dist/servers/server.h"
#include "engine/ceil_div.h"
#include "engine/descriptor_limit.h"
#include "models/cli/console.h"
#include "models/cli/ending_signals.h"
#include "models/cli/second_signal.h"

namespace sluice {
namespace {

// Of what goes through the hosts.
dist::Transport TransportOf(const JobFlags& flags) {
  if (flags.transport == "nccl") return dist::Transport::kAuto;
  return dist::ParseTransport(flags.transport).ValueOrThrow();
}

dist::TaskOptions TaskOf(const JobFlags& flags) {
  dist::TaskOptions task;
  task.peer_timeout = Milliseconds(flags.peer_timeout);
  task.allow_plaintext = flags.allow_plaintext;
  task.transport = TransportOf(flags);
  // Each speaks for itself, also where all but rank 0 are muted.
  task.note = task.stalled = console::NoteError;
  return task;
}

void CheckStrategy(const JobFlags& flags, const dist::LaunchInfo& info) {
  if (flags.strategy == "mirrored" &&
      (info.size > 1 || info.roster_fd >= 0 || !info.servers.empty())) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("--strategy mirrored is one process with several "
                    "--devices, {} were started",
                    static_cast<size_t>(info.size) + info.servers.size()));
  }
  const bool wanted = flags.strategy == "ps";
  if (wanted == !info.servers.empty()) return;
  throw Error(Code::kInvalidArgument,
              wanted ? "--strategy ps: there are no parameter servers; "
                       "sluicerun --ps 1 starts one"
                     : "the job has parameter servers, which only --strategy "
                       "ps uses");
}

std::shared_ptr<dist::JobServer> StartServer(const JobFlags& flags,
                                             const dist::LaunchInfo& info) {
  HoldEndingSignals();  // Serve asks for them
  return dist::JobServer::Start(info, TaskOf(flags), flags.variables,
                                Milliseconds(flags.join_timeout))
      .ValueOrThrow();
}

TrainingServers ReachServers(const JobFlags& flags,
                             const dist::LaunchInfo& info) {
  dist::ClusterOptions options;
  options.task = TaskOf(flags);
  options.connect_timeout = Milliseconds(flags.join_timeout);
  const dist::ServersOfJob job =
      dist::ReachServers(info, options, flags.variables).ValueOrThrow();
  TrainingServers servers = {job.cluster, job.devices,
                             LeadOf(flags.consistency)};
  servers.backups = flags.backup_workers;
  if (info.servers_return) servers.patience = options.connect_timeout;
  return servers;
}

void CheckStages(int stages, const dist::LaunchInfo& info) {
  if (info.roster_fd >= 0 || !info.servers.empty()) {
    throw Error(Code::kInvalidArgument,
                "--pipeline-stages: not for elastic jobs, nor with parameter "
                "servers");
  }
  if (info.size % stages == 0 &&
      std::has_single_bit(static_cast<unsigned>(info.size / stages))) {
    return;
  }
  throw Error(Code::kInvalidArgument,
              fmt::format("--pipeline-stages {}: there {} {} process{}; wanted "
                          "{} for each replica of the model, and a power of "
                          "two of replicas (sluicerun -n {})",
                          stages, info.size == 1 ? "is" : "are", info.size,
                          info.size == 1 ? "" : "es", stages, stages));
}

PipelineStages StagesOf(const JobFlags& flags, const dist::LaunchInfo& info,
                        dist::Group& group) {
  if (flags.pipeline_stages == 1) return {};
  dist::PeersOptions peers;
  peers.task = TaskOf(flags);
  peers.task.token = info.token;
  peers.task.credentials = info.credentials;
  peers.task.allow_plaintext |= info.allow_plaintext;
  peers.connect_timeout = Milliseconds(flags.join_timeout);
  peers.port = info.own_port;
  return MeetStages(group, flags.pipeline_stages, std::move(peers));
}

// For --threads: this process's part of the host's cores.
int ThreadsBeside(bool pinned, int local_size) {
  return local_size > 1 ? std::max(1, dist::OwnCores(pinned, local_size)) : 0;
}

dist::Overlap OverlapOf(const JobFlags& flags) {
  return dist::ParseOverlap(flags.overlap).ValueOrThrow();
}

Job JoinByMpi(const JobFlags& flags) {
  if (!flags.strategy.empty() && flags.strategy != "ring") {
    throw Error(Code::kInvalidArgument,
                "--transport mpi is for --strategy ring");
  }
  if (flags.all_reduce != "auto") {
    throw Error(Code::kInvalidArgument,
                fmt::format("--all-reduce {}: with --transport mpi the MPI "
                            "chooses",
                            flags.all_reduce));
  }
  if (flags.pipeline_stages > 1) {
    throw Error(Code::kInvalidArgument,
                "--pipeline-stages: not with --transport mpi; mpirun may start "
                "the processes without it");
  }
  const std::shared_ptr<dist::MpiGroup> group =
      dist::MpiGroup::Join({.allow_plaintext = flags.allow_plaintext,
                            .overlap = OverlapOf(flags),
                            .stalled = console::NoteError})
          .ValueOrThrow();
  Job job;
  job.local_rank = group->local_rank();
  job.local_size = group->local_size();
  job.threads = ThreadsBeside(/*pinned=*/false, job.local_size);
  if (group->size() == 1) return job;
  job.workers = group;
  return job;
}

}  // namespace

// By four times as many a pipeline is idle for a fifth of the time at most
// (GPipe, 2019).
int64_t JobFlags::MicroBatches() const {
  if (micro_batches > 0 || pipeline_stages == 1) return micro_batches;
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<unsigned>(4 * pipeline_stages)));
}

std::optional<int64_t> LeadOf(const std::string& consistency) {
  if (consistency.empty() || consistency == "sync") return std::nullopt;
  const auto lead = dist::ParseLead(consistency);
  if (lead.ok()) return *lead;
  throw Error(Code::kInvalidArgument,
              fmt::format("--consistency {}: wanted sync, async or ssp:S with "
                          "S steps",
                          consistency));
}

// What comes from elsewhere than its launcher may have come to all of a job at
// once (second_signal.h), and workers that end want to save what is here.
int Serve(const Job& job) {
  SecondSignal seen;
  int signal = 0;
  // Of two that came before, the system keeps one; and nothing is here yet.
  bool told = EndingSignalPends();
  const auto is_told = [&] {
    siginfo_t info = {};
    if (const int came = EndingSignal(&info); came != 0) {
      signal = came;
      // Where that dies, the kernel tells us so in its name.
      const bool by_launcher = !job.launcher || info.si_pid == *job.launcher;
      told = seen.Comes(came) || by_launcher || told;
    }
    return told || (signal != 0 && LauncherPid() != job.launcher);
  };
  ThrowIfError(job.server->Serve(is_told));
  return signal == 0 ? 0 : 128 + signal;
}

int64_t Job::sharing() const {
  if (workers == nullptr || servers.lead) return 1;
  return workers->size();
}

Job JoinJob(const JobFlags& flags, const std::string& log_dir) {
  if (flags.transport == "mpi") return JoinByMpi(flags);
  Job job;
  std::optional<dist::LaunchInfo> info = dist::ReadLaunchInfo().ValueOrThrow();
  if (info) RaiseDescriptorLimit();  // rank 0 has connections with all
  if (!info) info.emplace();
  job.local_rank = info->local_rank;
  job.local_size = info->local_size;
  job.threads = ThreadsBeside(info->pinned, info->local_size);
  job.evaluates = info->evaluates;
  if (job.evaluates) return job;
  CheckStrategy(flags, *info);
  if (info->server >= 0) {
    if (!info->ends_servers) job.launcher = LauncherPid();
    job.server = StartServer(flags, *info);
    return job;
  }
  if (!info->servers.empty()) job.servers = ReachServers(flags, *info);
  job.ends_servers = info->ends_servers;
  const bool elastic = info->roster_fd >= 0;
  if (elastic && !flags.may_change) {
    throw Error(Code::kInvalidArgument,
                "elastic jobs are for train alone, without its trials: here "
                "no process may come or go; give sluicerun -n");
  }
  if (elastic) job.most = info->size;
  if (elastic && flags.strategy == "none") {
    throw Error(Code::kInvalidArgument,
                "--strategy none: processes that each train by themselves are "
                "no elastic job");
  }
  if (flags.pipeline_stages > 1) CheckStages(flags.pipeline_stages, *info);
  if (info->size == 1 && !elastic) return job;
  if (flags.strategy == "none") {
    if (log_dir.empty()) return job;
    throw Error(Code::kInvalidArgument,
                "--strategy none: each process trains by itself, and they "
                "cannot have one --log-dir");
  }
  dist::GroupOptions options;
  options.peer_timeout = Milliseconds(flags.peer_timeout);
  options.join_timeout = Milliseconds(flags.join_timeout);
  options.allow_plaintext = flags.allow_plaintext;
  options.transport = TransportOf(flags);
  options.overlap = OverlapOf(flags);
  options.all_reduce = dist::ParseAlgorithm(flags.all_reduce).ValueOrThrow();
  if (flags.deterministic && options.all_reduce == dist::Algorithm::kAuto) {
    options.all_reduce = dist::Algorithm::kRing;
  }
  options.may_join_again = info->servers_return;
  options.note = console::NoteError;
  options.joined = [](int rank) { console::Mute(rank != 0); };
  const std::shared_ptr<dist::Group> group =
      dist::Group::Join(*info, options).ValueOrThrow();
  job.pipeline = StagesOf(flags, *info, *group);
  job.workers = group;
  job.hosts = [group] { return group->hosts(); };
  return job;
}

int Job::nodes() const {
  if (hosts) return hosts();
  if (workers == nullptr) return 1;
  return CeilDiv(workers->size(), local_size);
}

void RequireAlone(std::string_view what) {
  const auto info = dist::ReadLaunchInfo().ValueOrThrow();
  if (!info || (info->size == 1 && info->servers.empty())) return;
  throw Error(
      Code::kFailedPrecondition,
      fmt::format("{} is for one process, {} were started", what,
                  static_cast<size_t>(info->size) + info->servers.size()));
}

void TellFailure(const Job& job, std::string_view message) {
  if (job.workers == nullptr) return;
  job.workers->Leave(Status(Code::kUnavailable, std::string(message)));
}

void EndTogether(const Job& job, bool ended) {
  const bool all = job.workers == nullptr || job.workers->Barrier("done").ok();
  if (all && ended && job.leads() && job.ends_servers) {
    dist::EndServers(*job.servers.cluster,
                     static_cast<int>(job.servers.devices.size()));
  }
  if (job.workers == nullptr) return;
  // That rank 0 does not come to this one says that it has ended.
  if (all && !job.leads()) (void)job.workers->Barrier("rank 0 ends").ok();
}

}  // namespace sluice
