// Meetings of workers that train on parameter servers, each at its own speed:
// to stop, and to save the steps that all have done.
#ifndef SLUICE_MODELS_TRAIN_WORKERS_MEETINGS_H_
#define SLUICE_MODELS_TRAIN_WORKERS_MEETINGS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "models/train/workers/reporter.h"
#include "models/train/workers/workers.h"

namespace SLUICE_PUBLIC sluice {

class Cluster;
struct SessionOptions;

// The parameter servers that have a training's variables, if any, and how its
// workers use them (docs/distributed.md, "Parameter servers").
struct TrainingServers {
  std::shared_ptr<Cluster> cluster = nullptr;  // null: there are none
  // One device of each server: its GPU if it has variables on one, with its
  // tables on the CPU beside (dist/servers/placement.h).
  std::vector<std::string> devices = {};
  // With several workers: nullopt if all do each step together; else how many
  // more steps than the slowest a worker may have done (dist/servers/pace.h).
  std::optional<int64_t> lead = std::nullopt;
  // How long to wait for a server that is gone, to go on with it from the last
  // checkpoint; 0: the end of a server ends the training. The workers'
  // collective must be one that they can join again.
  std::chrono::milliseconds patience{0};
  // Tables of at least this many bytes, slots included, are cut by rows over
  // the servers (dist/servers/placement.h), and no worker has more of one than
  // it reads. All workers must have the same value.
  int64_t cut_from = 64 << 20;
  // The same threshold for other variables; nullopt: a value that balances the
  // servers (dist::CutFrom).
  std::optional<int64_t> dense_from = std::nullopt;

  // With several workers that do each step together: the number of workers that
  // a step does not wait for, 0 or more, but not all
  // (dist/servers/admission.h).
  std::optional<int64_t> backups = std::nullopt;

  bool any() const { return cluster != nullptr; }
  // On every worker, told for whom the worker waits, each time that the wait
  // has taken `stall_note` more; null: nobody is. The Trainer sets it.
  Reporter* reporter = nullptr;
  std::chrono::milliseconds stall_note = std::chrono::seconds(10);

  // Makes the session's steps use the servers, and the CPUs beside their GPUs.
  void AddTo(SessionOptions* session) const;
};

// Waits until all servers are there, also those that were gone, and nothing
// that this worker made them do is still under way. Throws Error naming the
// servers that are gone if that takes longer than the patience, or if `stop`,
// unless null, has a reason. Tells the reporter, unless null, every stall_note.
void AwaitServers(const TrainingServers& servers, const StopToken* stop,
                  Reporter* reporter);

// Asks the first server, which answers all workers, until this worker need not
// wait, and returns the last answer. If an answer means that it has to wait,
// `waits` returns who waits for whom, as in "rank 0 has waited for rank 1", or
// "" if another worker reports that; else nullopt. Throws Error if a worker or
// the server is gone.
std::string AskFirstServer(
    const Workers& workers, const TrainingServers& servers,
    const std::string& question,
    const std::function<std::optional<std::string>(const std::string& answer)>&
        waits);

// One thread of a worker. Its questions go to the first server.
class Meetings {
 public:
  // Neither is copied. `era`, the same for all workers, must be greater than
  // that of their earlier meetings (dist::PaceCall).
  Meetings(const Workers& workers, const TrainingServers& servers, int64_t era)
      : workers_(workers), servers_(servers), era_(era) {}

  // To be called before each step. Waits while this worker is too far ahead.
  // Returns true if all workers meet now, having done the same number of steps;
  // it must then be called again. False: do the step. A meeting comes some time
  // after one of the workers `wants` it. Throws Error if a worker or the server
  // is gone. `times` are sent to rank 0, whose times() are those of all, by
  // rank, as of the last call.
  bool Now(bool wants, const WorkerTimes& times);
  const std::vector<WorkerTimes>& times() const { return times_; }

 private:
  const Workers& workers_;
  const TrainingServers& servers_;
  const int64_t era_;
  int64_t steps_ = 0;  // that were to be done
  std::vector<WorkerTimes> times_;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_TRAIN_WORKERS_MEETINGS_H_
