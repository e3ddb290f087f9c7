#include "models/cli/main.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "dist/launch_info.h"
#include "engine/device.h"
#include "engine/note.h"
#include "engine/standard_streams.h"
#include "engine/threads.h"
#include "io/remote/register.h"
#include "models/cli/benchmark.h"
#include "models/cli/command_line.h"
#include "models/cli/commands.h"
#include "models/cli/console.h"
#include "models/cli/event_names.h"
#include "models/cli/interrupt.h"
#include "models/cli/job.h"
#include "models/train/workers/workers.h"

namespace sluice {
namespace {

// What the first signal does, for whom it is sent by.
const char* OnSignal(const CommandLine& line, const Job& job) {
  if (!job.leads()) return nullptr;  // rank 0 says it
  const bool tries = line.fast_dev_run || line.find_rate;
  if (line.command != CommandLine::Command::kTrain || tries) return "ending";
  return line.training.log_dir.empty()
             ? "ending after this step; there is no --log-dir to save in"
             : "saving after this step; once more ends at once, without saving";
}

// Threads that read and decode examples, as RunContext has them.
int ThreadsForInput(const CommandLine& line, const Job& job) {
  if (line.input_threads == kAutomatic) return 0;
  if (line.input_threads > 0) return line.input_threads;
  const int cores = job.threads > 0 ? job.threads : AvailableCores();
  const DeviceName device =
      ParseDeviceName(line.training.session.devices[0]).ValueOrThrow();
  const auto devices = static_cast<int>(line.training.mirrored.devices.size());
  const int computing = device.type == DeviceType::kCuda
                            ? std::max(1, devices)
                            : ComputeThreads().threads();
  return std::max(1, cores - computing);
}

// The same part of the host's free memory for each process of the job there.
size_t DefaultInputBytes(const Job& job) {
  if (job.local_size == 1) return 0;
  return std::max<size_t>(
      1, Dataset::DefaultAheadBytes() / static_cast<size_t>(job.local_size));
}

bool IsElastic(const Job& job) {
  return job.workers != nullptr && job.workers->elastic();
}

// Of a process that evaluates what the others of its job save.
void MakeEvaluator(CommandLine* line) {
  if (line->overfit_batches > 0) {
    throw Error(Code::kInvalidArgument,
                "--overfit-batches: an evaluator evaluates the test data; "
                "leave it out of the job");
  }
  line->command = CommandLine::Command::kEval;
  line->follow = true;
  // As of those that train (TrainInJob).
  if (IsTrainingOf(dist::JobName(), line->training.log_dir)) {
    line->training.restart = false;
  }
  // They may need as long to come together, and have begun later.
  line->await_training =
      std::chrono::duration<double>(2 * line->job.join_timeout);
}

void SettleVirtualWorkers(const Job& job, CommandLine* line) {
  int64_t& virtual_workers = line->training.virtual_workers;
  if (const int64_t micro_batches = line->job.MicroBatches();
      micro_batches > 0) {
    if (IsElastic(job)) {
      throw Error(Code::kInvalidArgument,
                  "--micro-batches: the number of processes of an elastic job "
                  "changes; give --virtual-workers");
    }
    const int processes = job.workers == nullptr ? 1 : job.workers->size();
    virtual_workers = micro_batches * (processes / job.pipeline.count);
  }
  if (virtual_workers > 0 && virtual_workers < job.most) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--virtual-workers {}: of up to {} processes "
                            "(--elastic) each must have one",
                            virtual_workers, job.most));
  }
}

// What goes by their number, once that of virtual ones is settled.
void SettleByWorkers(const Job& job, CommandLine* line) {
  const int64_t virtual_workers = line->training.virtual_workers;
  const MirroredDevices& mirrored = line->training.mirrored;
  const Workers sharing(job.workers.get(), virtual_workers,
                        mirrored.devices.size(), job.pipeline.count);
  if ((job.workers != nullptr || sharing.in_leaves()) &&
      line->run.bad_examples->limit() > 0) {
    throw Error(Code::kInvalidArgument,
                "--skip-bad is for one process with one device: several, or "
                "virtual workers, would pass over different examples");
  }
  if (IsElastic(job) && virtual_workers == 0 &&
      (line->job.batch_size_per_worker > 0 || line->job.scale_learning_rate)) {
    throw Error(Code::kInvalidArgument,
                "--batch-size-per-worker and --scale-learning-rate: the number "
                "of processes of an elastic job changes; give --batch-size, or "
                "--virtual-workers, by which they go then");
  }
  // That the training is defined by.
  const int64_t workers =
      sharing.in_leaves() ? sharing.leaves() : job.sharing();
  if (line->job.batch_size_per_worker > 0) {
    line->run.batch_size = workers * line->job.batch_size_per_worker;
    line->training.batch_by_workers = virtual_workers == 0;
  }
  line->run.sync_batch_norm =
      line->job.sync_batch_norm && (workers > 1 || IsElastic(job));
  if (line->job.scale_learning_rate) {
    line->optimizing.rate_scale = static_cast<double>(workers);
  }
}

// What flags mean in this job. Waits for its others, where it meets on GPUs.
void SettleWithJob(CommandLine* line, Job* job) {
  line->training.pipeline = job->pipeline;
  SettleVirtualWorkers(*job, line);
  SettleByWorkers(*job, line);
  line->run.local_rank = job->local_rank;
  if (line->gpu_of_process) {
    line->training.session.devices = {
        DeviceName{.type = DeviceType::kCuda, .index = job->local_rank}
            .ToString()};
  }
  if (line->job.transport == "nccl") {
    MeetOnGpus(line->job, line->training.session.devices[0],
               line->training.virtual_workers > 0, job);
  }
}

void TellOfJob(const Job& job, CommandLine* line) {
  line->training.session.collective = job.workers;
  line->training.servers = job.servers;
  line->training.most_workers = job.most;
  line->nodes = [&job] { return job.nodes(); };
  line->record.job = dist::JobName();
  // Of an elastic job any process may lead later on.
  if (line->command == CommandLine::Command::kTrain && line->training.restart &&
      (job.leads() || IsElastic(job)) &&
      IsTrainingOf(line->record.job, line->training.log_dir)) {
    line->training.restart = false;
    console::Note("this job has begun anew before, and goes on (" +
                  std::string(dist::kJobName) + ")");
  }
}

int RunCommand(const TrainerSpec& spec, const CommandLine& line) {
  switch (line.command) {
    case CommandLine::Command::kTrain:
      return commands::Train(spec, line);
    case CommandLine::Command::kEval:
      return line.follow ? commands::Follow(spec, line)
                         : commands::Evaluate(spec, line);
    case CommandLine::Command::kPredict:
      return commands::Predict(spec, line);
    case CommandLine::Command::kExport:
      return commands::Export(spec, line);
    case CommandLine::Command::kBench:
      return commands::Bench(spec, line);
  }
  return 1;
}

int RunInJob(const TrainerSpec& spec, CommandLine line, const Job& job) {
  TellOfJob(job, &line);
  int code = 0;
  try {
    code = RunCommand(spec, line);
  } catch (const std::exception& error) {
    TellFailure(job, error.what());
    // Others have ended for the same reason, which the launcher knows.
    const auto* const known = dynamic_cast<const Error*>(&error);
    if (known == nullptr || job.workers == nullptr ||
        line.training.StopReason().empty()) {
      throw;
    }
    throw Error(
        known->status().WithContext("after this process was told to end"));
  }
  EndTogether(job, /*ended=*/code == 0);
  return code;
}

// What of it is for one process; empty: several do it together.
std::string ForOneProcess(const CommandLine& line) {
  switch (line.command) {
    case CommandLine::Command::kTrain:
      return "";
    case CommandLine::Command::kEval:
      if (!line.report.empty()) return "eval --report";
      return line.follow ? "eval --follow" : "";
    case CommandLine::Command::kPredict:
      return "predict";
    case CommandLine::Command::kExport:
      return "export";
    case CommandLine::Command::kBench:
      if (IsPlanOnly(line.training.session)) return "bench --device /null:0";
      return line.benchmark.inference ? "bench --inference" : "";
  }
  return "";
}

Job JoinFor(const CommandLine& line) {
  const std::string alone = ForOneProcess(line);
  if (alone.empty()) return JoinJob(line.job, line.training.log_dir);
  RequireAlone(alone);
  return {};
}

int Run(const TrainerSpec& spec, CommandLine line) {
  console::Reporter reporter;
  const InterruptToken interrupted;
  line.training.reporter = &reporter;
  line.training.stop = &interrupted;
  const bool trains = line.command == CommandLine::Command::kTrain;
  line.job.may_change = trains && !line.fast_dev_run && !line.find_rate;
  // Of servers and evaluators, too.
  if (trains) IgnoreClosedPipes();
  Job job = JoinFor(line);
  if (!trains && job.workers != nullptr) IgnoreClosedPipes();
  if (job.evaluates && trains) MakeEvaluator(&line);
  if (job.server != nullptr) {
    SetComputeThreads(line.threads > 0 ? line.threads : job.threads);
    return Serve(job);
  }
  if (!job.leads()) console::Mute();
  SettleWithJob(&line, &job);
  for (const std::string& note : line.notes) console::Note(note);
  SetComputeThreads(line.threads > 0 ? line.threads : job.threads);
  line.run.input_threads = ThreadsForInput(line, job);
  if (line.run.input_bytes == 0) line.run.input_bytes = DefaultInputBytes(job);
  NoteInterrupts(OnSignal(line, job));
  return RunInJob(spec, std::move(line), job);
}

}  // namespace

int Main(int argc, const char* const* argv, const TrainerSpec& spec) {
  OpenStandardStreams();
  SetNotes(console::Note);
  const auto fail = [&](std::string message) {
    // More than is read says less.
    constexpr size_t kMost = 800;
    if (message.size() > kMost) message = message.substr(0, kMost - 4) + " ...";
    console::ClearStatus();
    console::NoteError(fmt::format("{}: {}", spec.name, message));
    return 1;
  };
  try {
    RegisterRemoteFiles();
    const ParsedCommandLine parsed = ParseCommandLine(argc, argv, spec);
    if (parsed.exit_code) return *parsed.exit_code;
    const int code = Run(WithCheckedNames(spec), parsed.line);
    // A reader that has gone has had what it wanted.
    const int unprinted = console::OutputError();
    if (unprinted == 0 || unprinted == EPIPE || code != 0) return code;
    return fail(fmt::format("the results cannot be printed: {}",
                            std::generic_category().message(unprinted)));
  } catch (const std::bad_alloc&) {
    return fail("out of memory: try a smaller --batch-size");
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}

}  // namespace sluice
