// The clock of workers with their own speeds, under random schedules: nobody
// leads by more than was said, all come to each meeting with the same number of
// rounds behind them, and nothing is ever stuck.
#include "dist/servers/pace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "tests/support/error_text.h"

namespace sluice::dist {
namespace {

using sluice::testing::Contains;
using Reply = Pace::Reply;

// Workers as threads would be: asking, computing a round or in a meeting, in
// any order. It keeps books of its own.
class Schedule {
 public:
  Schedule(uint32_t seed, int workers, int64_t lead, int64_t rounds)
      : random_(seed),
        lead_(lead),
        rounds_(rounds),
        pace_(workers, lead),
        workers_(static_cast<size_t>(workers)),
        weights_(static_cast<size_t>(workers)) {
    // Some are far slower than others.
    for (int& weight : weights_) weight = 1 << (random_() % 6);
  }

  void Run() {
    std::discrete_distribution<size_t> next(weights_.begin(), weights_.end());
    // In vain: waits, of all workers, since one moved.
    int vain = 0;
    while (!AllEnded()) {
      const size_t rank = next(random_);
      vain = Move(rank) ? 0 : vain + 1;
      REQUIRE(vain < 20'000);
    }
    for (const Worker& worker : workers_) CHECK(worker.done == rounds_);
  }

  int meetings() const { return meetings_; }
  int64_t largest_lead() const { return largest_lead_; }

 private:
  enum class State { kAsks, kComputes, kMeets, kEnded };
  struct Worker {
    State state = State::kAsks;
    int64_t done = 0, begun = 0, said = 0;
    bool wants = false;
  };

  bool AllEnded() const {
    return std::all_of(
        workers_.begin(), workers_.end(),
        [](const Worker& worker) { return worker.state == State::kEnded; });
  }
  int64_t Fewest() const {
    int64_t fewest = rounds_;
    for (const Worker& worker : workers_) {
      fewest = std::min(fewest, worker.done);
    }
    return fewest;
  }
  int64_t FewestSaid() const {
    int64_t fewest = rounds_;
    for (const Worker& worker : workers_) {
      fewest = std::min(fewest, worker.said);
    }
    return fewest;
  }
  int64_t Most() const {
    int64_t most = 0;
    for (const Worker& worker : workers_) most = std::max(most, worker.begun);
    return most;
  }

  // Whether something changed.
  bool Move(size_t rank) {
    Worker& worker = workers_[rank];
    switch (worker.state) {
      case State::kAsks:
        return Ask(rank);
      case State::kComputes:
        worker.done = worker.begun;
        worker.state = State::kAsks;
        if (worker.done == rounds_) worker.state = State::kEnded;
        return true;
      case State::kMeets:
        return Meet();
      case State::kEnded:
        return false;
    }
    return false;
  }

  bool Ask(size_t rank) {
    Worker& worker = workers_[rank];
    if (random_() % 40 == 0) worker.wants = true;
    if (worker.wants && !expected_) expected_ = Most();
    const Reply answer =
        pace_.Ask({static_cast<int>(rank), worker.done, worker.wants})
            .ValueOrThrow()
            .reply;
    worker.said = worker.done;
    const bool meets = expected_ && worker.done == *expected_;
    CHECK((answer == Reply::kMeet) == meets);
    if (!meets) {
      // That the others have done more than they have said is not known.
      CHECK((answer == Reply::kWait) == (worker.done - FewestSaid() > lead_));
    }
    if (answer == Reply::kMeet) {
      worker.state = State::kMeets;
      return true;
    }
    if (answer == Reply::kWait) return false;
    // A meeting has no rounds behind it until all are there.
    if (expected_) CHECK(worker.done < *expected_);
    largest_lead_ = std::max(largest_lead_, worker.done - Fewest());
    worker.begun = worker.done + 1;
    worker.state = State::kComputes;
    return true;
  }

  // As a barrier: the last lets all go.
  bool Meet() {
    for (const Worker& worker : workers_) {
      if (worker.state != State::kMeets) return false;
    }
    ++meetings_;
    for (Worker& worker : workers_) {
      CHECK(worker.done == *expected_);
      CHECK(worker.begun == *expected_);
      worker.state = State::kAsks;
      worker.wants = false;
    }
    expected_.reset();
    return true;
  }

  std::mt19937 random_;
  const int64_t lead_, rounds_;
  Pace pace_;
  std::vector<Worker> workers_;
  std::vector<int> weights_;
  std::optional<int64_t> expected_;  // where the next meeting is
  int meetings_ = 0;
  int64_t largest_lead_ = 0;
};

TEST_CASE("random schedules keep the lead, meet together and never stick") {
  std::set<int64_t> leads_seen;
  int meetings = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const int64_t leads[] = {0, 1, 3, Pace::kAnyLead};
    const int64_t lead = leads[seed % 4];
    Schedule schedule(seed, 1 + static_cast<int>(seed / 4 % 5), lead,
                      /*rounds=*/60);
    schedule.Run();
    CHECK(schedule.largest_lead() <= lead);
    meetings += schedule.meetings();
    if (lead != Pace::kAnyLead) leads_seen.insert(schedule.largest_lead());
  }
  CHECK(meetings > 300);
  CHECK(leads_seen.contains(3));  // what is allowed happens
}

TEST_CASE("the fast one waits for the slowest, and with any lead never does") {
  Pace bound(2, 2), any(2, Pace::kAnyLead);
  for (int64_t round = 0; round < 3; ++round) {
    CHECK(bound.Ask({0, round, false})->reply == Reply::kGo);
  }
  CHECK(bound.Ask({0, 3, false})->reply == Reply::kWait);
  CHECK(bound.Ask({1, 0, false})->reply == Reply::kGo);
  CHECK(bound.Ask({0, 3, false})->reply == Reply::kWait);  // it is not done
  CHECK(bound.Ask({1, 1, false})->reply == Reply::kGo);
  CHECK(bound.Ask({0, 3, false})->reply == Reply::kGo);
  for (int64_t round = 0; round < 100; ++round) {
    CHECK(any.Ask({0, round, false})->reply == Reply::kGo);
  }
}

TEST_CASE("who waits hears for whom, and rank 0 how all are doing") {
  Pace pace(3, 0);
  const auto ask = [&](int rank, int64_t round, int64_t examples) {
    return pace.Ask({rank, round, false, {examples, 2, 1}}).ValueOrThrow();
  };
  CHECK(ask(2, 0, 5).times.empty());
  const Pace::Answer first = ask(0, 0, 6);
  CHECK(first.times ==
        std::vector<WorkerTimes>{{6, 2, 1}, {0, 0, 0}, {5, 2, 1}});
  CHECK(ask(2, 1, 7) == Pace::Answer{Reply::kWait, {2}, 0});
  CHECK(ask(0, 1, 8) == Pace::Answer{Reply::kWait, {0, 2}, 1});
  CHECK(ask(1, 0, 9) == Pace::Answer{Reply::kGo});
  CHECK(ask(1, 1, 9).reply == Reply::kGo);  // all have done one
  // Who goes on waits no more.
  CHECK(ask(0, 1, 8).times[1] == WorkerTimes{9, 2, 1});
  CHECK(ask(1, 2, 9) == Pace::Answer{Reply::kWait, {1, 2}, 0});
}

TEST_CASE("a meeting is where nobody has been, and the others come to it") {
  Pace pace(2, Pace::kAnyLead);
  for (int64_t round = 0; round < 5; ++round) {
    CHECK(pace.Ask({0, round, false})->reply == Reply::kGo);
  }
  CHECK(pace.Ask({1, 0, true})->reply == Reply::kGo);
  CHECK(pace.Ask({0, 5, false})->reply == Reply::kMeet);
  for (int64_t round = 1; round < 5; ++round) {
    CHECK(pace.Ask({1, round, true})->reply == Reply::kGo);
  }
  CHECK(pace.Ask({1, 5, true})->reply == Reply::kMeet);
  CHECK(pace.Ask({1, 5, false})->reply == Reply::kGo);
  CHECK(pace.Ask({0, 5, false})->reply == Reply::kGo);
}

TEST_CASE("who asks nonsense is told so") {
  Pace pace(2, 1);
  for (const auto& [rank, round] :
       {std::pair(-1, 0), {2, 0}, {0, 1}, {0, -1}}) {
    const auto answer = pace.Ask({rank, round, false});
    CHECK(answer.status().code() == Code::kInvalidArgument);
  }
  CHECK(pace.Ask({0, 0, false}).ok());
  CHECK_FALSE(pace.Ask({0, 0, false}).ok());  // it has begun
}

TEST_CASE("leads and calls as text") {
  CHECK(*ParseLead("async") == Pace::kAnyLead);
  CHECK(*ParseLead("ssp:0") == 0);
  CHECK(*ParseLead("ssp:17") == 17);
  for (const char* text : {"", "ssp", "ssp:", "ssp:-1", "ssp:1.5", "ssp:3 ",
                           "sync", "Async", "ssp:99999999999999999999"}) {
    CAPTURE(text);
    const auto lead = ParseLead(text);
    REQUIRE_FALSE(lead.ok());
    CHECK(Contains(lead.status().message(), "async or ssp:STEPS"));
  }
  const PaceCall call = {4, 3, Pace::kAnyLead, {2, 7, true, {100, 9, 8}}};
  const PaceCall read = ParsePaceCall(TextOf(call)).ValueOrThrow();
  CHECK(read.workers == 3);
  CHECK(read.lead == Pace::kAnyLead);
  CHECK(read.question.rank == 2);
  CHECK(read.question.round == 7);
  CHECK(read.question.to_meet);
  CHECK(read.question.times == call.question.times);
  for (const Reply reply : {Reply::kGo, Reply::kWait, Reply::kMeet}) {
    const Pace::Answer bare = {
        reply, std::vector<int64_t>(reply == Reply::kWait ? 1 : 0)};
    CHECK(*ParseAnswer(TextOf(bare)) == bare);
  }
  const Pace::Answer waits = {Reply::kWait, {0, 2}, 1};
  CHECK(*ParseAnswer(TextOf(waits)) == waits);
  const Pace::Answer tells = {
      Reply::kGo, {}, 0, {{1, 2, 3}, {4, 5, INT64_MAX}}};
  CHECK(*ParseAnswer(TextOf(tells)) == tells);
  for (const char* text :
       {"stop", "go", R"({"reply":"stop"})", R"({"reply":"wait"})",
        R"({"reply":"wait","waiting":[],"slowest":0})",
        R"({"reply":"go","examples":[1],"trained":[1,2],"waited":[1]})",
        R"({"reply":"go","examples":[0.5]})"}) {
    CAPTURE(text);
    CHECK_FALSE(ParseAnswer(text).ok());
  }
  for (const char* text :
       {"", "[]", "{}", R"({"workers":3})",
        R"({"workers":0,"lead":1,"rank":0,"round":0,"meet":false})",
        R"({"workers":2,"lead":-1,"rank":0,"round":0,"meet":false})",
        R"({"workers":2,"lead":1,"rank":2,"round":0,"meet":false})",
        R"({"workers":9999999999,"lead":1,"rank":0,"round":0,"meet":false})",
        R"({"workers":2,"lead":1,"rank":0,"round":-1,"meet":false})"}) {
    CAPTURE(text);
    CHECK_FALSE(ParsePaceCall(text).ok());
  }
}

}  // namespace
}  // namespace sluice::dist
