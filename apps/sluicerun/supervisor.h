// Watches the processes of a job: passes on what they print and the signals
// that come for them, and ends the rest when one has failed.
#ifndef SLUICE_APPS_SLUICERUN_SUPERVISOR_H_
#define SLUICE_APPS_SLUICERUN_SUPERVISOR_H_

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/sluicerun/output.h"
#include "apps/sluicerun/signals.h"
#include "apps/sluicerun/standstill.h"
#include "dist/membership/roster_keeper.h"
#include "dist/net/descriptor.h"
#include "models/cli/second_signal.h"

namespace sluice::launcher {

// A rank or parameter server that runs, or has ended.
struct RunningRank {
  pid_t pid;  // and its process group
  Stream out, err;
  std::unique_ptr<Tails> tails;
  std::string name = {};  // "rank 1 on hostB", "parameter server 0"
  int server = -1;  // which parameter server; below 0: a rank, which works
  int rank = -1;    // which one, of those
  dist::Descriptor roster = {};  // of an elastic job's, until it is added
  dist::RosterHost host = {};    // where it is, of one
  bool remote = false;           // its process is a relay (relay.h)
  bool comes_later = false;      // for one that was lost, or as one more
  bool never_reached = false;    // ssh found no way to its host
  bool serves() const { return server >= 0; }
  std::optional<int> code =
      {};                   // once ended: its exit code, or 128 + the signal
  int signal = 0;           // that ended it
  bool was_ending = false;  // when the others were told to
  Standstill still = {};
  // For a rank that has ended: whether the way to its host is lost; and whether
  // there was none when it was to start.
  bool out_of_reach() const;
  bool unanswered() const;
};

// How a rank has ended: "rank 1 ended by SIGKILL", "rank 1 ended with code 1".
std::string HowItEnded(const RunningRank& rank);

// One thread, one loop around poll(2). A rank stays a zombie until the end, so
// that its number cannot become another's while we still signal its group.
//
// - Parameter servers are told to end (SIGTERM) when every rank has ended, and
//   hear no interrupt: ranks that end want to save what these have. One that
//   ends before is replaced, or has failed, whatever its code.
// - The first rank that fails ends the others: SIGTERM, and SIGKILL when the
//   time is up. One that a signal was ending, of which another has noticed and
//   has ended before it, is the first: a rank of this host that the kernel was
//   at; of ranks on hosts one of which that is heard within 0.3 s, for which
//   the others have to wait. A rank that ends as the interrupt asked for has
//   not failed; nor has one that ends otherwise after it, of the second.
// - When one has ended well, others have all they need of each other, and
//   nobody misses one that stands still from then on: it is killed when it has
//   for the peer timeout, and has failed. What is stopped before is for the
//   others to name, or all of it is, by a user who means it.
// - In an elastic job a rank that a signal has ended, which it did not expect,
//   is lost and may be replaced; the others go on
//   (dist/membership/roster.h). So is one that comes later and says itself what
//   is wrong before it has come in: that is its own, or its host's; no other
//   takes its place.
// - An interrupt (Ctrl-C, SIGTERM, ...) goes to every rank once each time that
//   it comes. From a second on (models/cli/second_signal.h) time runs too, and
//   when none is left but output that nobody reads, any ends us.
// - SIGUSR1 and SIGUSR2 go to every rank, too, and are no interrupts.
// - When all ranks have ended, processes that they left behind and that hold
//   their output have as much time to end; then they are killed.
class Supervisor {
 public:
  // The times in seconds. The others outlive this.
  Supervisor(double timeout_kill, double peer_timeout,
             const std::vector<std::unique_ptr<Sink>>& sinks,
             SignalQueue& signals);
  ~Supervisor();  // kills what is left and reaps
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  const RunningRank& Add(RunningRank rank);
  // For an elastic job.
  void SetRoster(std::unique_ptr<dist::RosterKeeper> roster) {
    roster_ = std::move(roster);
  }
  // Asked for another process in the place of a server that has ended by
  // itself, or of a lost rank, while the job works: where it gives one the
  // former has not failed.
  using Replace =
      std::function<std::optional<RunningRank>(const RunningRank& ended)>;
  void SetReplace(Replace replace) { replace_ = std::move(replace); }
  // Asked every second, while an elastic job works, for ranks to be added to
  // those that run.
  using Grow =
      std::function<std::vector<RunningRank>(const std::set<int>& running)>;
  void SetGrow(Grow grow) { grow_ = std::move(grow); }
  // While the others are yet to be added: does what signals that have come ask
  // for. False where the job ends by one.
  bool HeedSignals();
  // Runs until every rank has ended and its output is written. Returns the exit
  // code of the job.
  int Run();
  // After Run: whether its exit code is because of a rank, not of a signal that
  // came or output that cannot be written.
  bool rank_failed() const;

 private:
  using Clock = std::chrono::steady_clock;

  void Poll();
  void TakeSignals();
  void Interrupt(int signal);
  bool EndedAsTold(const RunningRank& rank) const;
  void Suspend();
  void NoteEnds(pid_t first);
  void NoteEnd(size_t rank);
  bool KilledBefore(const RunningRank& rank) const;
  bool Replaced(const RunningRank& ended);
  bool GoesOn(size_t rank);
  void KeepRoster();
  void GrowInTime();
  void SayLate();
  void NoteWell();
  bool AnyStill() const;
  void EndStill();
  void EndOthers();
  void EndServers();
  void StartCountdown();
  std::optional<timespec> TimeLeft() const;
  void KillAll();
  void SignalAll(int signal) const;
  void SignalRanks(int signal) const;
  bool OutputDone() const;
  void CloseSilent();
  int Report() const;

  const std::chrono::duration<double> timeout_kill_, peer_timeout_;
  const std::vector<std::unique_ptr<Sink>>& sinks_;
  SignalQueue& signals_;
  Replace replace_;
  Grow grow_;
  Clock::time_point grow_at_ = Clock::now();    // not before
  std::unique_ptr<dist::RosterKeeper> roster_;  // of an elastic job, else null
  std::optional<size_t> lost_;                  // the last
  // Ranks that came later and have ended before they came in, until that is
  // said.
  std::vector<size_t> late_;
  std::deque<RunningRank> ranks_;            // at their addresses for good
  size_t running_ = 0;                       // servers too
  size_t working_ = 0;                       // ranks alone
  bool served_ = false;                      // servers were told to end
  bool well_ = false;                        // a rank has ended so
  Clock::time_point looked_ = Clock::now();  // who stands still
  std::optional<size_t> first_failure_;
  int interrupt_ = 0;  // the first that came
  SecondSignal interrupts_;
  bool ending_ = false;    // SIGTERM was sent to all
  bool killed_ = false;    // and SIGKILL
  bool given_up_ = false;  // on output that nobody reads
  std::optional<Clock::time_point> end_at_, kill_at_;
  // Used within one Poll, kept for their memory.
  std::vector<pollfd> polled_;
  std::vector<Stream*> readers_;
  size_t turn_ = 0;
};

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_SUPERVISOR_H_
