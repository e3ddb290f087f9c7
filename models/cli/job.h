// The job: the processes that train, or evaluate, with this one. Internal to
// models/cli.
#ifndef SLUICE_MODELS_CLI_JOB_H_
#define SLUICE_MODELS_CLI_JOB_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "dist/servers/server.h"
#include "engine/kernel.h"
#include "engine/runtime/collective.h"
#include "models/train/workers/meetings.h"
#include "models/train/workers/pipeline_stages.h"

namespace sluice {

struct JobFlags {
  // How processes train one model; empty: as a ring where a launcher has
  // started several. Or how one does on several devices: mirrored.
  std::string strategy;
  // With strategy ps: sync, which empty is too, or a TrainingServers::lead.
  std::string consistency;
  // With strategy ps: the type of device that servers have variables on.
  DeviceType variables = DeviceType::kCpu;
  // With sync: TrainingServers::backups.
  std::optional<int64_t> backup_workers;
  // For GroupOptions, in seconds.
  double peer_timeout = 60;
  double join_timeout = 60;      // seconds
  bool allow_plaintext = false;  // GroupOptions
  // dist/collective/options.h: auto, tcp, shared; or mpi, all through MPI
  // (dist/mpi/mpi_group.h), whose launcher alone is asked then; or nccl, what
  // GPUs compute through NCCL (MeetOnGpus), the rest as with auto.
  std::string transport = "auto";
  // For dist/collective/options.h, too. overlap: auto, on, off. all_reduce:
  // auto, ring, halving-doubling, hierarchical.
  std::string overlap = "auto";
  std::string all_reduce = "auto";
  // Whether processes may come and go meanwhile, as an elastic job's do.
  bool may_change = true;
  // Whether all_reduce auto must not choose by hosts, which would change bits.
  bool deterministic = false;
  // Examples of a step in each process; 0: RunContext::batch_size is the job's.
  int64_t batch_size_per_worker = 0;
  // Whether the learning rate is multiplied by the number of processes.
  bool scale_learning_rate = false;
  bool sync_batch_norm = false;  // RunContext
  int pipeline_stages = 1;       // PipelineStages::count
  // Micro-batches of each replica in each step; 0: as many as suit the stages
  // or, with one stage, as TrainingOptions::virtual_workers says.
  int64_t micro_batches = 0;

  // The number of micro-batches; 0: virtual workers are left as they are.
  int64_t MicroBatches() const;
};

// The job that this process belongs to, as its launcher (dist/launch_info.h)
// says.
struct Job {
  // Null if this process is alone.
  std::shared_ptr<Collective> workers;
  // The number of hosts that the workers are on, which changes with an elastic
  // job; null: not known.
  std::function<int()> hosts;
  // The number of threads if --threads is not given: this process's part of the
  // host's cores; 0: one per core that it may use.
  int threads = 0;
  // This process's rank among the job's processes on this host, and their
  // number, as the job was started.
  int local_rank = 0;
  int local_size = 1;
  int most = 0;             // of an elastic one: as many as there may ever be
  TrainingServers servers;  // of the job's parameters, if it has some
  PipelineStages pipeline;
  bool ends_servers = false;  // which end when they are told
  // If this process is a parameter server rather than a worker: the server; and
  // the process that started it, if that ends it.
  std::shared_ptr<dist::JobServer> server;
  std::optional<int> launcher;
  // Whether this process is no worker but evaluates what the others save.
  bool evaluates = false;

  // Workers that each step's batch is shared out to.
  int64_t sharing() const;

  bool leads() const { return workers == nullptr || workers->rank() == 0; }
  // Hosts; where they are not known each is taken to have as many processes as
  // this one, or less.
  int nodes() const;
};

// Runs a parameter server until it is told to end, or there is no training to
// serve. Returns the exit code: 128 + the signal that came. Throws Error if the
// training has not ended.
int Serve(const Job& job);

// Converts a flag's value in seconds.
inline std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// Joins the job. Waits for the other processes. Throws Error, and does so if
// several processes would each train alone in one folder, `log_dir`.
Job JoinJob(const JobFlags& flags, const std::string& log_dir);
// With --transport nccl: lets the steps of several processes meet on their
// GPUs, of which `device` is this process's (dist/nccl/nccl_group.h). Waits for
// the others. Throws Error for a job that NCCL cannot serve.
void MeetOnGpus(const JobFlags& flags, const std::string& device,
                bool virtual_workers, Job* job);
// Throws Error where a launcher has started several processes for `what`, which
// is for one.
void RequireAlone(std::string_view what);
// Tells the other processes that this one has failed.
void TellFailure(const Job& job, std::string_view message);
// TrainingServers::lead of --consistency. Throws Error for what is none.
std::optional<int64_t> LeadOf(const std::string& consistency);
// Returns when rank 0 is about to end, and the others may: a launcher ends
// those that are left when one has failed. Servers that nobody else ends are
// told where the training has `ended`; where it was interrupted they miss the
// workers, so that who starts these again starts them, too.
void EndTogether(const Job& job, bool ended);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_JOB_H_
