// The other processes that train with this one. Internal to models/cli.
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
  // With strategy ps: what servers have variables on.
  DeviceType variables = DeviceType::kCpu;
  // With sync: TrainingServers::backups.
  std::optional<int64_t> backup_workers;
  // Seconds, of GroupOptions.
  double peer_timeout = 60;
  double join_timeout = 60;      // seconds
  bool allow_plaintext = false;  // GroupOptions
  // dist/collective/options.h: auto, tcp, shared; or mpi, all through MPI
  // (dist/mpi/mpi_group.h), whose launcher alone is asked then; or nccl, what
  // GPUs compute through NCCL (MeetOnGpus), the rest as with auto.
  std::string transport = "auto";
  // Of the same header: auto, on, off; and auto, ring, halving-doubling,
  // hierarchical.
  std::string overlap = "auto";
  std::string all_reduce = "auto";
  // auto must not go by hosts then, which would change bits.
  bool deterministic = false;
  // Examples of a step in each process; 0: RunContext::batch_size is the job's.
  int64_t batch_size_per_worker = 0;
  // Whether the learning rate is times the number of processes.
  bool scale_learning_rate = false;
  bool sync_batch_norm = false;  // RunContext
  int pipeline_stages = 1;       // PipelineStages::count
  // Of each replica of the model in each step; 0: as many as suit the stages,
  // or, where there is one stage, what TrainingOptions::virtual_workers says.
  int64_t micro_batches = 0;

  // 0: virtual workers are what they are.
  int64_t MicroBatches() const;
};

// What a launcher (dist/launch_info.h) says of the job that this process is of.
struct Job {
  // Null where this process is alone.
  std::shared_ptr<Collective> workers;
  // How many hosts they are on, which changes with an elastic job; null: not
  // known.
  std::function<int()> hosts;
  // For --threads, where it is not given: this process's part of the host's
  // cores; 0: one per core that it may use.
  int threads = 0;
  // This process among those of the job on this host, as it was started.
  int local_rank = 0;
  int local_size = 1;
  int most = 0;             // of an elastic one: as many as there may ever be
  TrainingServers servers;  // of the job's parameters, if it has some
  PipelineStages pipeline;
  bool ends_servers = false;  // which end when they are told
  // Where this process is one of them, and no worker; and the process that
  // started it, where that ends it.
  std::shared_ptr<dist::JobServer> server;
  std::optional<int> launcher;
  // Where it is the one that evaluates what the others save, and no worker.
  bool evaluates = false;

  // Workers that each step's batch is shared out to.
  int64_t sharing() const;

  bool leads() const { return workers == nullptr || workers->rank() == 0; }
  // Hosts; where they are not known each is taken to have as many processes as
  // this one, or less.
  int nodes() const;
};

// Until it is told to end, or there is no training to serve. Its exit code: 128
// + the signal that came. Throws Error where the training has not ended.
int Serve(const Job& job);

// Of flags in seconds.
inline std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// Joins it, for training. Waits for the others. Throws Error, also where
// several processes would each train by themselves in one folder, `log_dir`.
Job JoinJob(const JobFlags& flags, const std::string& log_dir);
// With --transport nccl: has the steps of several processes meet on their GPUs,
// of which `device` is this one's (dist/nccl/nccl_group.h). Waits for the
// others. Throws Error for what NCCL is not for.
void MeetOnGpus(const JobFlags& flags, const std::string& device,
                bool virtual_workers, Job* job);
// Throws Error where a launcher has started several processes, for a command
// that is for one.
void RequireAlone();
// This process has failed: what the others are told of it.
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
