#include "apps/sluicerun/job_run.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "apps/sluicerun/hosts.h"
#include "apps/sluicerun/output.h"
#include "apps/sluicerun/rank.h"
#include "apps/sluicerun/starting.h"
#include "apps/sluicerun/supervisor.h"
#include "dist/membership/roster_keeper.h"
#include "dist/net/descriptor.h"

namespace sluice::launcher {
namespace {

std::string ErrorText(int error) {
  return std::generic_category().message(error);
}

// What cannot be run, or was not understood, will not be the next time.
bool Hopeless(int code) {
  return code == kUsage || code == kNotFound || code == kNotRunnable;
}

class JobRun {
 public:
  JobRun(const JobOptions& options, JobOutputs& outputs, SignalQueue& signals,
         rlimit open_files, int* restarts)
      : options_(options),
        outputs_(outputs),
        restarts_(*restarts),
        starting_(options, signals, open_files),
        supervisor_(options.timeout_kill, options.peer_timeout, outputs.sinks(),
                    signals),
        hostfile_(options.hostfile, Say) {}

  JobEnd Run();

 private:
  // The exit code where one could not be started.
  std::optional<int> StartServers();
  std::optional<int> StartRanks();
  int CannotRun(int error, const std::string& as) const;

  using OutputOf = Stream (JobOutputs::*)(int, dist::Descriptor, bool, Tail*);
  RunningRank Running(Started& started, OutputOf output_of, int number,
                      std::string name);
  RunningRank RunningServer(int server, Started started);
  RunningRank RunningWorker(int rank, Started started);

  // As the supervisor asks for them.
  std::optional<RunningRank> Replace(const RunningRank& ended);
  std::vector<RunningRank> Grow(const std::set<int>& running);

  const JobOptions& options_;
  JobOutputs& outputs_;
  int& restarts_;
  Starting starting_;
  Supervisor supervisor_;
  HostFile hostfile_;
  const Starting::Heed heed_ = [this] { return supervisor_.HeedSignals(); };
  bool all_ = true;  // false: the job ends before all were started
};

JobEnd JobRun::Run() {
  if (const auto code = StartServers()) return {*code};
  if (options_.least > 0) {
    const std::chrono::duration<double> patience(options_.join_timeout);
    supervisor_.SetRoster(std::make_unique<dist::RosterKeeper>(
        options_.least,
        std::chrono::duration_cast<std::chrono::milliseconds>(patience), Say));
  }
  supervisor_.SetReplace(
      [this](const RunningRank& ended) { return Replace(ended); });
  if (options_.Grows()) {
    supervisor_.SetGrow(
        [this](const std::set<int>& running) { return Grow(running); });
  }
  if (const auto code = StartRanks()) return {*code};
  starting_.GiveUpListener();
  if (restarts_ == options_.max_restarts) starting_.GiveUpServerListeners();
  const int code = supervisor_.Run();
  return {code, supervisor_.rank_failed() && !Hopeless(code)};
}

std::optional<int> JobRun::StartServers() {
  for (int server = 0; all_ && server < options_.servers; ++server) {
    Started started = starting_.StartServer(server);
    if (started.error != 0) {
      return CannotRun(started.error,
                       fmt::format(" as parameter server {}", server));
    }
    const RunningRank& running =
        supervisor_.Add(RunningServer(server, std::move(started)));
    all_ = starting_.AwaitServer(server, running.out.descriptor(), heed_);
  }
  return std::nullopt;
}

std::optional<int> JobRun::StartRanks() {
  for (int rank = 0; all_ && rank < options_.size; ++rank) {
    Started started = starting_.Start(rank);
    if (started.error != 0) {
      return CannotRun(started.error,
                       rank == 0 ? "" : fmt::format(" as rank {}", rank));
    }
    const RunningRank& running =
        supervisor_.Add(RunningWorker(rank, std::move(started)));
    if (rank == 0) {
      all_ = starting_.AwaitCoordinator(running.out.descriptor(), heed_);
    }
  }
  return std::nullopt;
}

int JobRun::CannotRun(int error, const std::string& as) const {
  Say(fmt::format("cannot run '{}'{}: {}", options_.command[0], as,
                  ErrorText(error)));
  return error == ENOENT ? kNotFound : kNotRunnable;
}

RunningRank JobRun::Running(Started& started, OutputOf output_of, int number,
                            std::string name) {
  auto tails = std::make_unique<Tails>();
  Stream out =
      (outputs_.*output_of)(number, std::move(started.out), false, &tails->out);
  Stream err =
      (outputs_.*output_of)(number, std::move(started.err), true, &tails->err);
  RunningRank running = {started.pid, std::move(out), std::move(err),
                         std::move(tails), std::move(name)};
  running.remote = starting_.elsewhere();
  return running;
}

RunningRank JobRun::RunningServer(int server, Started started) {
  RunningRank running = Running(started, &JobOutputs::OfServer, server,
                                starting_.NameOfServer(server));
  running.server = server;
  return running;
}

RunningRank JobRun::RunningWorker(int rank, Started started) {
  RunningRank running =
      Running(started, &JobOutputs::OfRank, rank, starting_.NameOf(rank));
  running.rank = rank;
  running.roster = std::move(started.roster);
  running.host = starting_.PlaceOf(rank);
  return running;
}

std::optional<RunningRank> JobRun::Replace(const RunningRank& ended) {
  if (!all_) return std::nullopt;  // the job has not begun
  if (!ended.serves()) starting_.Lost(ended.rank);
  const bool moves = ended.unanswered();  // which is no other restart
  if (moves ? !starting_.SeatElsewhere(ended.rank)
            : restarts_ == options_.max_restarts || Hopeless(*ended.code)) {
    return std::nullopt;
  }
  if (!moves && !ended.serves() && !starting_.Listed(ended.rank) &&
      !starting_.SeatAnew(ended.rank)) {
    return std::nullopt;
  }
  Started started = ended.serves() ? starting_.StartServer(ended.server)
                                   : starting_.Start(ended.rank);
  if (started.error != 0) return std::nullopt;
  if (moves) {
    Say(fmt::format("{} does not answer; started as {}", ended.name,
                    starting_.NameOf(ended.rank)));
  } else {
    ++restarts_;
    Say(fmt::format("{}; started again (restart {} of {})", HowItEnded(ended),
                    restarts_, options_.max_restarts));
  }
  if (restarts_ == options_.max_restarts) starting_.GiveUpServerListeners();
  RunningRank other = ended.serves()
                          ? RunningServer(ended.server, std::move(started))
                          : RunningWorker(ended.rank, std::move(started));
  other.comes_later = true;
  return other;
}

// Where the hosts have become others: those that are missing, which are no
// restarts, as far as there are slots.
std::vector<RunningRank> JobRun::Grow(const std::set<int>& running) {
  std::vector<RunningRank> others;
  const auto hosts = hostfile_.Changed();
  if (!hosts) return others;
  starting_.SetHosts(*hosts);
  std::vector<int> missing;
  for (int rank = 0; rank < options_.Most(); ++rank) {
    if (running.contains(rank)) continue;
    starting_.Lost(rank);
    missing.push_back(rank);
  }
  for (const int rank : missing) {
    if (!starting_.SeatAnew(rank)) break;
    Started started = starting_.Start(rank);
    if (started.error != 0) {
      starting_.Lost(rank);
      Say(fmt::format("{} cannot be started: {}", starting_.NameOf(rank),
                      ErrorText(started.error)));
      break;
    }
    Say(fmt::format("{} is started ({} has changed)", starting_.NameOf(rank),
                    options_.hostfile));
    others.push_back(RunningWorker(rank, std::move(started)));
    others.back().comes_later = true;
  }
  return others;
}

}  // namespace

JobEnd RunOnce(const JobOptions& options, JobOutputs& outputs,
               SignalQueue& signals, rlimit open_files, int* restarts) {
  return JobRun(options, outputs, signals, open_files, restarts).Run();
}

}  // namespace sluice::launcher
