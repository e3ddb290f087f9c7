// Workers that train on parameter servers each at its own speed, and where they
// meet: to stop, and to save what all have done.
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

// Where the variables of a training are, if not with each worker, and how its
// workers use them (docs/distributed.md, "Parameter servers").
struct TrainingServers {
  std::shared_ptr<Cluster> cluster = nullptr;  // null: there are none
  // One of each server: of one that has them on a GPU that, and its tables are
  // on the CPU beside (dist/servers/placement.h).
  std::vector<std::string> devices = {};
  // Of several workers: nothing, where all do a step together; else how many
  // steps more than the slowest one may have done
  // (dist/servers/pace.h).
  std::optional<int64_t> lead = std::nullopt;
  // For how long one that is gone is waited for, to go on with it from what was
  // saved last; 0: a server's end is the training's. The workers' collective
  // has to be one that they can join again.
  std::chrono::milliseconds patience{0};
  // Tables of as many bytes, slots included, are cut by rows over the servers
  // (dist/servers/placement.h), and no worker has more of one than it reads;
  // the same for all.
  int64_t cut_from = 64 << 20;
  // Of other variables; nothing: what serves balance (dist::CutFrom).
  std::optional<int64_t> dense_from = std::nullopt;

  // Of several workers that do each step together: 0 or more, but not all, that
  // a step does not wait for (dist/servers/admission.h).
  std::optional<int64_t> backups = std::nullopt;

  bool any() const { return cluster != nullptr; }
  // Who hears, of every worker, for whom it waits, each time that this takes as
  // long again; null: nobody. The Trainer sets it.
  Reporter* reporter = nullptr;
  std::chrono::milliseconds stall_note = std::chrono::seconds(10);

  // Has the session's steps use them, and the CPUs beside their GPUs.
  void AddTo(SessionOptions* session) const;
};

// Waits until all servers are there, also those that were gone, and nothing
// that this worker had them do is under way any more. Throws Error, which says
// who is gone, where that takes longer than the patience or `stop`, unless
// null, has a reason. Every stall_note the reporter, unless null, is told.
void AwaitServers(const TrainingServers& servers, const StopToken* stop,
                  Reporter* reporter);

// What the first server, which answers all workers, says to a question: again
// and again while `waits` finds in the answer that this worker has to wait: who
// does so and for whom, as in "rank 0 has waited for rank 1", or "" where
// another one says that. Throws Error where a worker or the server is gone.
std::string AskFirstServer(
    const Workers& workers, const TrainingServers& servers,
    const std::string& question,
    const std::function<std::optional<std::string>(const std::string& answer)>&
        waits);

// One thread of a worker. Its questions go to the first server.
class Meetings {
 public:
  // Neither is copied. `era`, the same for all workers, is more than that of
  // meetings that these have had before (dist::PaceCall).
  Meetings(const Workers& workers, const TrainingServers& servers, int64_t era)
      : workers_(workers), servers_(servers), era_(era) {}

  // To be called before each step. Waits while this worker is too far ahead.
  // Whether all meet now, which they do with the same number of steps behind
  // them: it then is to be called again. False: the step is to be done.
  // A meeting comes at some time after one of the workers `wants` it. Throws
  // Error where a worker or the server is gone. `times` are for rank 0, which
  // hears those of all: times(), by rank, as of the last call.
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
