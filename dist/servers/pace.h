// The clock of workers that train with parameter servers each at its own speed:
// how far ahead of the others one may be, and where all of them meet.
#ifndef SLUICE_DIST_SERVERS_PACE_H_
#define SLUICE_DIST_SERVERS_PACE_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dist/worker_times.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// Workers that a question to a server may speak of, at most.
inline constexpr int64_t kMostWorkers = 1 << 16;

// Rounds have numbers from 0 on; a worker that asks to begin round r has done
// all before. Not thread-safe.
//
// A meeting falls into the gap before the round that no worker has begun when
// one of them first wants it: those behind still do their rounds up to there,
// and then all have done the same ones. The next meeting is not before all have
// been told of that one.
class Pace {
 public:
  static constexpr int64_t kAnyLead = std::numeric_limits<int64_t>::max();

  // `lead`: how many rounds more than the slowest a worker may have done when
  // it begins another (Ho et al., 2013: stale synchronous parallel).
  Pace(int workers, int64_t lead);

  struct Question {
    int rank = 0;
    int64_t round = 0;     // to begin
    bool to_meet = false;  // before it, if that can be
    WorkerTimes times = {};
  };
  enum class Reply {
    kGo,
    kWait,  // and ask again
    kMeet,  // now, before the round; ask again afterwards
  };
  struct Answer {
    Reply reply = Reply::kWait;
    // With kWait: the ranks that wait so, and the rank that they wait for, the
    // slowest.
    std::vector<int64_t> waiting = {};
    int64_t slowest = 0;
    // With the other replies, to rank 0, which reports to users: the last times
    // of each worker.
    std::vector<WorkerTimes> times = {};

    friend bool operator==(const Answer&, const Answer&) = default;
  };
  // kInvalidArgument for a rank that is none, or a round that is not the next
  // of that rank.
  Result<Answer> Ask(const Question& question);

 private:
  struct Worker {
    int64_t done = 0, begun = 0;  // rounds
    bool told = false;            // of the meeting
    bool waits = false;
    WorkerTimes times;
  };
  int64_t Slowest() const;
  int64_t MostBegun() const;
  Reply ReplyTo(const Question& question);

  const int64_t lead_;
  std::vector<Worker> workers_;
  std::optional<int64_t> meeting_;  // before this round
};

// Parses what users write: "async" is any lead, "ssp:3" a lead of 3.
// kInvalidArgument for anything else.
Result<int64_t> ParseLead(std::string_view text);

// A question as it is put to a server (WorkerOptions::answer): it makes the
// Pace that it asks, where there is none of its era yet.
struct PaceCall {
  // The workers' era: all begin at round 0 with each, and a later era ends
  // those before.
  int64_t era = 0;
  int workers = 0;
  int64_t lead = 0;
  Pace::Question question;
};
std::string TextOf(const PaceCall& call);
Result<PaceCall> ParsePaceCall(const std::string& text);
std::string TextOf(const Pace::Answer& answer);
Result<Pace::Answer> ParseAnswer(std::string_view text);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_SERVERS_PACE_H_
