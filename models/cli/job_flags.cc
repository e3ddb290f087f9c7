#include "models/cli/job_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <utility>

#include "models/cli/flag_checks.h"

namespace sluice {
namespace {

// More than processes, or examples in a batch.
constexpr int64_t kMostVirtualWorkers = 65536;
void CheckVirtualWorkers(const std::string& text) {
  CheckDecimal(text);
  char* end = nullptr;
  const int64_t number = std::strtoll(text.c_str(), &end, 10);
  const bool power =
      number > 0 && std::has_single_bit(static_cast<uint64_t>(number));
  if (*end == '\0' && power && number <= kMostVirtualWorkers) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("wanted a power of two up to {}, got '{}'",
                          kMostVirtualWorkers, text));
}

void AddBucket(CLI::App* sub, const char* name, size_t& bytes,
               const char* text) {
  sub->add_option(name, bytes, text)
      ->check(Between(1, static_cast<double>(int64_t{1} << 40)))
      ->capture_default_str();
}

// Of those about parameter servers.
std::string WrongWithServers(const CommandLine& line) {
  const JobFlags& job = line.job;
  if (job.strategy != "ps") {
    if (!job.consistency.empty()) return "--consistency is of --strategy ps";
    return job.backup_workers ? "--backup-workers is of --strategy ps" : "";
  }
  std::optional<int64_t> lead;
  try {
    lead = LeadOf(job.consistency);
  } catch (const Error& error) {
    return error.what();
  }
  if (lead && job.backup_workers) {
    return fmt::format(
        "--backup-workers is of --consistency sync: with {} "
        "no step waits for another's",
        job.consistency);
  }
  if (lead && job.scale_learning_rate) {
    return fmt::format(
        "--scale-learning-rate: with --consistency {} each update is of one "
        "process's batch",
        job.consistency);
  }
  if (!lead && !job.backup_workers) return "";
  for (const auto& [flag, given] :
       {std::pair("--sync-batch-norm", job.sync_batch_norm),
        std::pair("--virtual-workers", line.training.virtual_workers > 0),
        std::pair("--compress-gradients",
                  line.training.gradients_between != DType::kFloat32)}) {
    if (!given) continue;
    return fmt::format(
        "{} is for processes that do each step together: not with {}", flag,
        lead ? "--consistency " + job.consistency : "--backup-workers");
  }
  return "";
}

// Of those about devices of one process.
std::string WrongWithMirrored(const CommandLine& line,
                              const GivenFlags& given) {
  const bool mirrored = line.job.strategy == "mirrored";
  const bool devices = line.training.mirrored.any();
  if (!mirrored && devices) return "--devices is of --strategy mirrored";
  if (!mirrored && line.job.strategy != "ps" && !given.variables.empty()) {
    return "--variables is of --strategy mirrored and ps";
  }
  if (!mirrored) return "";
  if (!devices) {
    return "--strategy mirrored wants --devices, such as /gpu:0,/gpu:1";
  }
  if (line.job.sync_batch_norm) {
    return "--sync-batch-norm is for several processes: not with --strategy "
           "mirrored";
  }
  return "";
}

// Of those about stages and micro-batches.
std::string WrongWithStages(const CommandLine& line) {
  const JobFlags& job = line.job;
  if (job.MicroBatches() == 0) return "";
  const bool staged = job.pipeline_stages > 1;
  const std::string_view flag =
      staged ? "--pipeline-stages" : "--micro-batches";
  if (job.MicroBatches() < job.pipeline_stages) {
    return fmt::format("--micro-batches {}: fewer than the {} stages",
                       job.micro_batches, job.pipeline_stages);
  }
  if (staged && line.training.virtual_workers > 0) {
    return "--virtual-workers: with --pipeline-stages say --micro-batches, of "
           "each replica";
  }
  if (!job.strategy.empty() && job.strategy != "ring") {
    return fmt::format("{} is not for --strategy {}", flag, job.strategy);
  }
  if (job.batch_size_per_worker > 0 || job.scale_learning_rate) {
    return fmt::format(
        "{}: give --batch-size and --learning-rate, of the job, in place of "
        "--batch-size-per-worker and --scale-learning-rate",
        flag);
  }
  if (!staged) return "";
  if (job.sync_batch_norm) {
    return "--sync-batch-norm is not for --pipeline-stages";
  }
  return "";
}

}  // namespace

void AddGroupFlags(CLI::App* sub, CommandLine& line) {
  sub->add_option("--peer-timeout", line.job.peer_timeout,
                  "Seconds after which a process that shows no sign of life is "
                  "given up, and the job with it")
      ->check(Between(0.001, 1e6))
      ->capture_default_str();
  sub->add_option("--join-timeout", line.job.join_timeout,
                  "Seconds that the first processes wait for the last at the "
                  "start")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
  sub->add_flag("--allow-plaintext", line.job.allow_plaintext,
                "Talk to other hosts without encryption where there are no "
                "credentials");
  sub->add_option("--transport", line.job.transport,
                  "What processes exchange goes through from one to the next: "
                  "auto, memory that processes of one host share, TCP "
                  "elsewhere; tcp; shared, an error where it cannot be; mpi, "
                  "for processes that mpirun or srun starts; nccl, from GPU to "
                  "GPU, for --device /gpu, each of one process")
      ->check(CLI::IsMember({"auto", "tcp", "shared", "mpi", "nccl"}))
      ->capture_default_str();
}

void AddStepFlags(CLI::App* sub, CommandLine& line, GivenFlags& given) {
  sub->add_option(
         "--strategy", line.job.strategy,
         "How the processes that a launcher started train: ring, one "
         "model, each with its share of every batch; none, each by "
         "itself; ps, one model, which parameter servers keep "
         "(sluicerun --ps) (default: ring where there are several). Of one "
         "process: mirrored, on several --devices")
      ->check(CLI::IsMember({"ring", "ps", "none", "mirrored"}));
  sub->add_option_function<std::string>(
         "--devices",
         [&mirrored = line.training.mirrored](const std::string& text) {
           mirrored.devices = ParseMirroredDevices(text);
         },
         "Of --strategy mirrored: such as /gpu:0,/gpu:1, each with its share "
         "of every batch")
      ->check(Parses("DEVICES", ParseMirroredDevices))
      ->excludes("--device");
  sub->add_option("--variables", given.variables,
                  "Of --strategy mirrored: cpu, on the CPU, which updates, and "
                  "devices read copies; host, the same; gpu, on each device, "
                  "which updates its own (default: gpu where --devices are "
                  "GPUs, else cpu). Of --strategy ps: what servers have them "
                  "on, and update with, gpu of each its own (default: cpu)")
      ->check(CLI::IsMember({"cpu", "gpu", "host"}));
  AddGroupFlags(sub, line);
  sub->add_option("--batch-size-per-worker", line.job.batch_size_per_worker,
                  "Examples of a step in each process, or mirrored device, in "
                  "place of --batch-size, which is that of all together")
      ->check(Between(1, kLargest / 4096))
      ->excludes("--batch-size");
  CLI::Option* const sync =
      sub->add_flag("--sync-batch-norm", line.job.sync_batch_norm,
                    "Batch normalisation by the batches of all processes "
                    "together, in models that look at it (resnet50 does): "
                    "for small batches in each");
  sub->add_option("--virtual-workers", line.training.virtual_workers,
                  "A power of two: train as so many processes would, "
                  "whatever the number of them, up to that; with "
                  "--deterministic any has the same bits, also where a "
                  "training goes on with another (default: none)")
      ->check(Parses("NUMBER", CheckVirtualWorkers))
      ->excludes(sync);
  sub->add_option("--pipeline-stages", line.job.pipeline_stages,
                  "Cut the model by its layers: so many processes have one "
                  "together, each a stage, and exchange what goes from layer "
                  "to layer; twice as many are two such replicas")
      ->check(Between(1, 1024))
      ->capture_default_str();
  sub->add_option("--micro-batches", line.job.micro_batches,
                  "Parts of each replica's share of a batch that are computed "
                  "one by one, or on their way through the stages at once; "
                  "with as many --virtual-workers as all replicas' together a "
                  "training has the same bits (default: one; with stages four "
                  "times as many, rounded up to a power of two)")
      ->check(Parses("NUMBER", CheckVirtualWorkers))
      ->excludes("--virtual-workers")
      ->excludes(sync);
  sub->add_option("--compress-gradients", given.compress,
                  "What gradients are rounded to on their way between "
                  "processes: none, bf16, or fp16, which wants --precision "
                  "fp16 and its loss scaling; half the bytes")
      ->check(CLI::IsMember({"none", "fp16", "bf16"}))
      ->default_str("none");
  AddBucket(sub, "--first-bucket", line.training.buckets.first,
            "Join small gradients until they have so many bytes, for the "
            "first that are reduced");
  AddBucket(sub, "--bucket", line.training.buckets.others,
            "The same for all others; larger gradients travel by themselves");
  sub->add_option("--overlap", line.job.overlap,
                  "Reduce gradients while others are computed: on; off, "
                  "afterwards; auto, on where processes are on several hosts "
                  "(not with MPI) or leave a core free")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  sub->add_option("--all-reduce", line.job.all_reduce,
                  "How sums are made; auto goes by their size and the hosts, "
                  "and with --deterministic is ring")
      ->check(
          CLI::IsMember({"auto", "ring", "halving-doubling", "hierarchical"}))
      ->capture_default_str();
}

void AddJobFlags(CLI::App* sub, CommandLine& line, GivenFlags& given) {
  AddStepFlags(sub, line, given);
  sub->add_option(
      "--consistency", line.job.consistency,
      "Of --strategy ps: sync, all processes do each step together, of "
      "--batch-size examples; async, each updates with as many of its own "
      "when it has them; ssp:S, the same, but none begins a step when it is "
      "more than S ahead of the slowest (default: sync)");
  sub->add_option("--backup-workers", line.job.backup_workers,
                  "Of --consistency sync: a step goes on without the last so "
                  "many processes, whose gradients of it are dropped when they "
                  "come; it is then of the examples of the others (default: "
                  "none, gradients are reduced among the processes)")
      ->check(Between(0, kMostVirtualWorkers - 1));
  sub->add_option_function<std::string>(
         "--scale-learning-rate",
         [&job = line.job](const std::string& how) {
           job.scale_learning_rate = how == "linear";
         },
         "linear: the learning rate times the number of processes, or mirrored "
         "devices (default: none)")
      ->check(CLI::IsMember({"none", "linear"}));
}

std::string WrongJobFlags(const CommandLine& line, const GivenFlags& given) {
  if (std::string stages = WrongWithStages(line); !stages.empty()) {
    return stages;
  }
  if (line.job.overlap == "on" &&
      (line.training.virtual_workers > 0 || line.job.MicroBatches() > 0 ||
       line.training.mirrored.any())) {
    return fmt::format(
        "--overlap on is not for {}, whose gradients are "
        "reduced when all have been computed",
        line.training.mirrored.any()  ? "--strategy mirrored"
        : line.job.MicroBatches() > 0 ? "--micro-batches"
                                      : "--virtual-workers");
  }
  const std::string wrong = WrongWithMirrored(line, given);
  return wrong.empty() ? WrongWithServers(line) : wrong;
}

}  // namespace sluice
