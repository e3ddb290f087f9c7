#include "apps/sluicerun/supervisor.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "apps/sluicerun/job.h"
#include "apps/sluicerun/relay.h"

namespace sluice::launcher {

namespace {

constexpr std::chrono::seconds kBetweenGrowths(1);

// How much later than another's end a relay may hear of its rank's.
constexpr std::chrono::milliseconds kRelaysLate(300);

// Of a thread's file in /proc; true also where it has just gone.
bool IsExiting(const std::filesystem::path& stat) {
  constexpr unsigned kExiting = 0x4;  // PF_EXITING
  std::ifstream file(stat);
  std::string line;
  std::getline(file, line);
  // Behind the name, which may be anything: state, five numbers, flags.
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string skipped;
  for (int i = 0; i < 6; ++i) fields >> skipped;
  unsigned flags = 0;
  return !(fields >> flags) || (flags & kExiting) != 0;
}

// Whether the kernel is at it: none of its threads will run again.
bool IsEnding(pid_t pid) {
  std::error_code error;
  std::filesystem::directory_iterator thread(fmt::format("/proc/{}/task", pid),
                                             error);
  const std::filesystem::directory_iterator end;
  for (; !error && thread != end; thread.increment(error)) {
    if (!IsExiting(thread->path() / "stat")) return false;
  }
  return !error;
}

}  // namespace

bool RunningRank::out_of_reach() const {
  return remote && signal == kOutOfReach;
}
bool RunningRank::unanswered() const {
  // Servers stay where they were, as others know them.
  return never_reached && comes_later && !serves();
}

std::string HowItEnded(const RunningRank& rank) {
  if (rank.out_of_reach()) return rank.name + " is out of reach";
  return rank.name + " ended " +
         (rank.signal != 0 ? "by " + SignalName(rank.signal)
                           : fmt::format("with code {}", *rank.code));
}

namespace {

// With what it has said last; one that a signal has ended has explained nothing
// on stdout.
std::string Explained(const RunningRank& rank) {
  const auto lines =
      rank.signal == 0 ? rank.tails->Lines() : rank.tails->err.Lines();
  std::string text = HowItEnded(rank);
  if (!lines.empty()) text += "; its last lines:";
  for (const std::string& line : lines) text += "\n  " + line;
  return text;
}

}  // namespace

Supervisor::Supervisor(double timeout_kill, double peer_timeout,
                       const std::vector<std::unique_ptr<Sink>>& sinks,
                       SignalQueue& signals)
    : timeout_kill_(timeout_kill),
      peer_timeout_(peer_timeout),
      sinks_(sinks),
      signals_(signals) {}

Supervisor::~Supervisor() {
  KillAll();
  for (const RunningRank& rank : ranks_) waitpid(rank.pid, nullptr, 0);
}

const RunningRank& Supervisor::Add(RunningRank rank) {
  ++running_;
  if (!rank.serves()) ++working_;
  if (roster_ != nullptr) {
    roster_->Add(rank.rank, std::move(rank.roster), rank.host);
  }
  return ranks_.emplace_back(std::move(rank));
}

bool Supervisor::HeedSignals() {
  TakeSignals();
  return interrupt_ == 0 && !first_failure_;
}

int Supervisor::Run() {
  while (running_ > 0 || !OutputDone()) {
    Poll();
    if (end_at_ && Clock::now() >= *end_at_) EndOthers();
    if (kill_at_ && Clock::now() >= *kill_at_) KillAll();
    EndStill();
    if (killed_ && running_ == 0) CloseSilent();
    SayLate();
  }
  if (!first_failure_ && !well_) first_failure_ = lost_;
  return Report();
}

bool Supervisor::rank_failed() const {
  return first_failure_ && interrupt_ == 0 &&
         std::all_of(sinks_.begin(), sinks_.end(),
                     [](const auto& sink) { return sink->error() == 0; });
}

void Supervisor::Poll() {
  polled_.clear();
  readers_.clear();
  polled_.push_back({signals_.descriptor(), POLLIN, 0});
  for (RunningRank& rank : ranks_) {
    for (Stream* stream : {&rank.out, &rank.err}) {
      if (!stream->wants_read()) continue;
      polled_.push_back({stream->descriptor(), POLLIN, 0});
      readers_.push_back(stream);
    }
  }
  for (const auto& sink : sinks_) {
    if (sink->pending()) polled_.push_back({sink->descriptor(), POLLOUT, 0});
  }
  if (roster_ != nullptr) roster_->AddPolled(&polled_);
  const auto left = TimeLeft();
  if (ppoll(polled_.data(), polled_.size(), left ? &*left : nullptr, nullptr) <
      0) {
    return;  // EINTR
  }
  if (polled_[0].revents != 0) TakeSignals();
  // Each time another begins: who writes most must not be the only one heard.
  ++turn_;
  for (size_t k = 0; k < readers_.size(); ++k) {
    const size_t i = (turn_ + k) % readers_.size();
    if (polled_[1 + i].revents != 0 && readers_[i]->wants_read()) {
      readers_[i]->Read();
    }
  }
  if (roster_ != nullptr) KeepRoster();
  for (const auto& sink : sinks_) sink->Flush();
  for (RunningRank& rank : ranks_) {
    rank.out.CloseIfUnheard();
    rank.err.CloseIfUnheard();
  }
}

// nullopt: until something comes.
std::optional<timespec> Supervisor::TimeLeft() const {
  Clock::duration left = Clock::duration::max();
  for (const auto& at : {end_at_, kill_at_}) {
    if (!at) continue;
    left = std::min(left, std::max(Clock::duration(0), *at - Clock::now()));
  }
  if (roster_ != nullptr) {
    left = std::min<Clock::duration>(left, dist::RosterKeeper::kTick);
  }
  if (AnyStill()) left = std::min<Clock::duration>(left, kStandstillTick);
  if (left == Clock::duration::max()) return std::nullopt;
  const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
  return timespec{.tv_sec = seconds.count(),
                  .tv_nsec = std::chrono::nanoseconds(left - seconds).count()};
}

void Supervisor::TakeSignals() {
  while (const auto arrival = signals_.Next()) {
    if (arrival->signal == SIGCHLD) {
      NoteEnds(arrival->pid);
    } else if (arrival->signal == SIGTSTP) {
      Suspend();
    } else if (arrival->signal == SIGCONT) {
      SignalAll(SIGCONT);
    } else if (IsInterrupt(arrival->signal)) {
      Interrupt(arrival->signal);
    } else if (IsForRanks(arrival->signal)) {
      SignalRanks(arrival->signal);
    }
  }
}

void Supervisor::Interrupt(int signal) {
  const bool second = interrupts_.Comes(signal);
  if (interrupt_ == 0) interrupt_ = signal;
  given_up_ = running_ == 0;
  if (roster_ != nullptr) roster_->WindUp();
  SignalRanks(signal);
  if (working_ == 0) EndServers();
  SignalAll(SIGCONT);  // one that stands still would not hear it
  if (second) StartCountdown();
}

// By one of the interrupts that have come, or with its exit code. Which of
// several was its first is the kernel's choice.
bool Supervisor::EndedAsTold(const RunningRank& rank) const {
  const int signal = *rank.code - kSignalBase;
  return IsInterrupt(signal) && interrupts_.Has(signal);
}

// Ctrl-Z: the shell wants to see us stopped, and the ranks are to stop too.
void Supervisor::Suspend() {
  SignalAll(SIGTSTP);
  kill(getpid(), SIGSTOP);
}

// Children that end together give one SIGCHLD, which names the first.
void Supervisor::NoteEnds(pid_t first) {
  const size_t before = running_;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].pid == first) NoteEnd(i);
  }
  for (size_t i = 0; i < ranks_.size(); ++i) NoteEnd(i);
  if (running_ == before) return;
  if (working_ == 0) EndServers();
  if (running_ == 0) StartCountdown();
}

void Supervisor::NoteEnd(size_t i) {
  RunningRank& rank = ranks_[i];
  if (rank.code) return;
  rank.still.Look(rank.pid);
  siginfo_t info = {};
  const auto pid = static_cast<id_t>(rank.pid);
  if (waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return;
  if (info.si_pid == 0) return;  // it runs
  --running_;
  if (!rank.serves()) --working_;
  rank.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
  rank.code = info.si_status + (rank.signal == 0 ? 0 : kSignalBase);
  if (rank.out_of_reach()) rank.code = kSshFailed;
  if (rank.remote && rank.signal == kNeverReached) {
    rank.never_reached = true;
    rank.signal = 0;  // it is as ssh has ended
    rank.code = kSshFailed;
  }
  if (rank.code == 0 && !rank.serves()) NoteWell();
  const bool goes_on = roster_ != nullptr && GoesOn(i);
  if (goes_on || (rank.serves() ? served_ : *rank.code == 0)) return;
  if (rank.serves() && Replaced(rank)) return;
  const bool as_told = EndedAsTold(rank);
  // Told once to end, it has met what the others do not know of; told twice,
  // these have ended at once, and it for want of them.
  const bool by_itself =
      !as_told && rank.signal == 0 && !ending_ && !kill_at_ && !killed_;
  if (!first_failure_ || KilledBefore(rank) ||
      (by_itself && EndedAsTold(ranks_[*first_failure_]))) {
    first_failure_ = i;
  }
  if (as_told) return;
  if (rank.remote && rank.signal == 0 && !ending_) {
    if (!end_at_) end_at_ = Clock::now() + kRelaysLate;
  } else {
    EndOthers();
  }
}

// A process's connections are closed before it has ended, which may take
// seconds of one with much memory, and who had one may be faster. Not what we
// have told to end.
bool Supervisor::KilledBefore(const RunningRank& rank) const {
  return rank.signal != 0 && ranks_[*first_failure_].signal == 0 &&
         (!ending_ || rank.was_ending);
}

// Whether it is lost, and no failure. One that says what has gone wrong, by its
// exit code, would say so again: where it came late and has not come in,
// another would, but those that are in do not know of it.
bool Supervisor::GoesOn(size_t i) {
  const RunningRank& rank = ranks_[i];
  const bool well = *rank.code == 0 || EndedAsTold(rank);
  const bool came_in = roster_->CameIn(rank.rank);
  const bool unneeded = roster_->Ended(
      rank.rank, well,
      rank.unanswered() ? rank.name + " does not answer" : HowItEnded(rank));
  if (unneeded) return true;
  if (well || ending_ || killed_) return false;
  const bool by_code = rank.signal == 0 && !rank.unanswered();
  const bool late = rank.signal == 0 && rank.comes_later && !came_in;
  if (by_code && !late) {
    roster_->End(fmt::format("{} has failed", rank.name));
    return false;
  }
  lost_ = i;
  const bool replaced = !by_code && !roster_->over() && Replaced(rank);
  if (late && !replaced) late_.push_back(i);
  return true;
}

// When all that they have said has come.
void Supervisor::SayLate() {
  std::erase_if(late_, [this](size_t i) {
    const RunningRank& rank = ranks_[i];
    if (rank.out.open() || rank.err.open()) return false;
    Say(Explained(rank));
    return true;
  });
}

void Supervisor::GrowInTime() {
  const Clock::time_point now = Clock::now();
  if (!grow_ || now < grow_at_) return;
  grow_at_ = now + kBetweenGrowths;
  if (interrupt_ != 0 || first_failure_ || ending_ || roster_->over()) return;
  // The job has ended, or is about to.
  if (running_ == 0 || well_ || kill_at_ || killed_) return;
  std::set<int> running;
  for (const RunningRank& rank : ranks_) {
    if (!rank.code) running.insert(rank.rank);
  }
  for (RunningRank& other : grow_(running)) Add(std::move(other));
}

void Supervisor::KeepRoster() {
  roster_->Keep();
  GrowInTime();
  for (const int seat : roster_->TakeCondemned()) {
    for (const RunningRank& rank : ranks_) {
      if (rank.rank != seat || rank.code) continue;
      if (rank.remote) {
        roster_->TellToKill(seat);  // its relay ends then
      } else {
        kill(-rank.pid, SIGKILL);
      }
    }
  }
}

void Supervisor::NoteWell() {
  if (std::exchange(well_, true)) return;
  for (const RunningRank& rank : ranks_) {
    if (rank.remote && !rank.serves() && !rank.code) {
      kill(rank.pid, kOthersEnded);
    }
  }
}

bool Supervisor::AnyStill() const {
  return well_ &&
         std::any_of(ranks_.begin(), ranks_.end(), [](const RunningRank& rank) {
           return !rank.code && rank.still.stopped();
         });
}

void Supervisor::EndStill() {
  const Clock::time_point now = Clock::now();
  const auto passed = now - std::exchange(looked_, now);
  if (!well_) return;
  for (RunningRank& rank : ranks_) {
    if (rank.code || rank.serves()) continue;
    rank.still.Pass(passed);
    if (rank.still.time() < peer_timeout_) continue;
    Say(fmt::format("{}, of a job that others have ended, {}", rank.name,
                    rank.still.KilledText()));
    kill(-rank.pid, SIGKILL);
    rank.still = {};
  }
}

bool Supervisor::Replaced(const RunningRank& ended) {
  if (interrupt_ != 0 || first_failure_ || !replace_) return false;
  std::optional<RunningRank> other = replace_(ended);
  if (!other) return false;
  Add(*std::move(other));
  return true;
}

void Supervisor::EndOthers() {
  end_at_.reset();
  if (std::exchange(ending_, true)) return;
  for (RunningRank& rank : ranks_) {
    rank.was_ending = !rank.code && IsEnding(rank.pid);
  }
  SignalRanks(SIGTERM);
  SignalAll(SIGCONT);
  StartCountdown();
}

void Supervisor::EndServers() {
  if (std::exchange(served_, true)) return;
  for (const RunningRank& rank : ranks_) {
    if (rank.serves()) kill(-rank.pid, SIGTERM);
  }
  StartCountdown();
}

void Supervisor::StartCountdown() {
  if (killed_ || kill_at_) return;
  kill_at_ =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout_kill_);
}

void Supervisor::KillAll() {
  killed_ = true;
  kill_at_.reset();
  SignalAll(SIGKILL);
}

void Supervisor::SignalAll(int signal) const {
  for (const RunningRank& rank : ranks_) kill(-rank.pid, signal);
}

// The first last: where they still meet all others wait for it, and would take
// its end for what ends the job.
void Supervisor::SignalRanks(int signal) const {
  for (auto rank = ranks_.rbegin(); rank != ranks_.rend(); ++rank) {
    if (!rank->serves()) kill(-rank->pid, signal);
  }
}

bool Supervisor::OutputDone() const {
  if (given_up_) return true;
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const RunningRank& rank) {
                       return !rank.out.open() && !rank.err.open();
                     }) &&
         std::none_of(sinks_.begin(), sinks_.end(),
                      [](const auto& sink) { return sink->pending(); });
}

// All that wrote are dead but for processes that have left their group; these
// are not waited for.
void Supervisor::CloseSilent() {
  for (RunningRank& rank : ranks_) {
    for (Stream* stream : {&rank.out, &rank.err}) {
      while (stream->wants_read() && stream->Read()) {
      }
      if (stream->wants_read()) stream->Close();
    }
  }
}

int Supervisor::Report() const {
  int code = 0;
  for (const auto& sink : sinks_) {
    if (sink->error() == 0) continue;
    Say(fmt::format("cannot write {}: {}", sink->name(),
                    std::generic_category().message(sink->error())));
    code = kFailure;
  }
  if (!first_failure_) return code;
  const RunningRank& rank = ranks_[*first_failure_];
  if (EndedAsTold(rank)) return *rank.code;
  Say(Explained(rank));
  return *rank.code == 0 ? kFailure : *rank.code;  // of a server's
}

}  // namespace sluice::launcher
