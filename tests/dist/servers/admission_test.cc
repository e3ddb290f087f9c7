// Who is admitted to steps that do not wait for all workers, under random
// schedules against books of the test's own: the first that come and nobody
// else, each round applied once, by one of them, all others counted.
#include "dist/servers/admission.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/error_text.h"

namespace sluice::dist {
namespace {

using sluice::testing::Contains;
using Kind = Admission::Kind;
using Reply = Admission::Reply;

// A worker's share as a loop over the rows says it.
struct Batch {
  int64_t full = 0, whole = 0;  // examples, that it may have and has
};
int64_t RowsOf(const Batch& batch, int rank, int workers) {
  int64_t rows = 0;
  for (int64_t row = 0; row < batch.whole; ++row) {
    rows += row >= batch.full * rank / workers &&
            row < batch.full * (rank + 1) / workers;
  }
  return rows;
}

// Workers as threads would be, each asking in its turn.
class Schedule {
 public:
  Schedule(uint32_t seed, int workers, int64_t backups, int64_t rounds)
      : random_(seed),
        backups_(backups),
        admission_(workers, backups),
        workers_(static_cast<size_t>(workers)),
        weights_(static_cast<size_t>(workers)),
        dropped_(static_cast<size_t>(workers)) {
    for (int& weight : weights_) weight = 1 << (random_() % 6);
    for (int64_t round = 0; round < rounds; ++round) {
      // Some have not something for all.
      Batch& batch = batches_.emplace_back();
      batch.whole =
          1 + static_cast<int64_t>(random_() % 3 == 0 ? random_() % workers
                                                      : random_() % 40);
      // And some end early, so that the last workers may have nothing.
      batch.full = batch.whole + (random_() % 3 == 0 ? random_() % 60 : 0);
    }
  }

  // Until all have done all rounds or, where some die, nobody can go on.
  void Run(bool some_die) {
    std::discrete_distribution<size_t> next(weights_.begin(), weights_.end());
    int vain = 0;
    while (std::any_of(workers_.begin(), workers_.end(), [&](const auto& each) {
      return !each.dead && each.round < rounds();
    })) {
      const size_t rank = next(random_);
      if (some_die && random_() % 200 == 0) workers_[rank].dead = true;
      if (random_() % 8 == 0) AskNonsense(rank);
      vain = Move(rank) ? 0 : vain + 1;
      if (vain < 4000) continue;
      REQUIRE(MayBeStuck());
      stuck_ = true;
      return;
    }
    CHECK(open_ == (AnyAlive() ? rounds() : open_));
  }

  bool stuck() const { return stuck_; }
  int64_t dropped() const { return late_; }

 private:
  enum class State { kBegins, kComputes, kApplies, kAwaits };
  struct Worker {
    State state = State::kBegins;
    int64_t round = 0;
    bool dead = false;
  };

  int workers() const { return static_cast<int>(workers_.size()); }
  int64_t rounds() const { return static_cast<int64_t>(batches_.size()); }
  const Batch& batch() const { return batches_[static_cast<size_t>(open_)]; }
  bool AnyAlive() const {
    return std::any_of(workers_.begin(), workers_.end(),
                       [](const Worker& each) { return !each.dead; });
  }
  size_t Needed() const {
    int64_t with_rows = 0;
    for (int rank = 0; rank < workers(); ++rank) {
      with_rows += RowsOf(batch(), rank, workers()) > 0;
    }
    return static_cast<size_t>(std::min(workers() - backups_, with_rows));
  }
  // Who should apply is dead, or too few are left.
  bool MayBeStuck() const {
    if (open_ == rounds()) return false;
    if (admitted_.size() == Needed()) {
      return workers_[static_cast<size_t>(admitted_.back())].dead;
    }
    size_t can = admitted_.size();
    for (int rank = 0; rank < workers(); ++rank) {
      const bool in = std::count(admitted_.begin(), admitted_.end(), rank) > 0;
      const bool has = RowsOf(batch(), rank, workers()) > 0;
      can += !in && has && !workers_[static_cast<size_t>(rank)].dead;
    }
    return can < Needed();
  }

  // Through the texts that travel.
  Result<Admission::Answer> Ask(const Admission::Question& question) {
    const std::string text =
        TextOf(AdmissionCall{3, workers(), backups_, question});
    REQUIRE(IsAdmissionCall(text));
    const AdmissionCall call = ParseAdmissionCall(text).ValueOrThrow();
    CHECK(call.era == 3);
    CHECK(call.workers == workers());
    CHECK(call.backups == backups_);
    Result<Admission::Answer> answer = admission_.Ask(call.question);
    if (!answer.ok()) return answer;
    return ParseAdmissionAnswer(TextOf(*answer));
  }

  static float LossOf(int rank, int64_t round) {
    return static_cast<float>(rank + 1) + static_cast<float>(round) / 8;
  }

  // Whether a worker came further.
  bool Move(size_t i) {
    Worker& worker = workers_[i];
    const int rank = static_cast<int>(i);
    if (worker.dead || worker.round == rounds()) return false;
    Admission::Question question = {.rank = rank, .round = worker.round};
    const Batch& mine = batches_[static_cast<size_t>(worker.round)];
    question.rows = RowsOf(mine, rank, workers());
    question.whole_rows = mine.whole;
    question.full_rows = mine.full;
    switch (worker.state) {
      case State::kBegins: {
        if (question.rows == 0) {
          worker.state = State::kAwaits;
          return true;
        }
        const Admission::Answer answer = Ask(question).ValueOrThrow();
        const bool over = worker.round < open_;
        const bool full = !over && admitted_.size() == Needed();
        CHECK(answer.reply == (over   ? Reply::kOver
                               : full ? Reply::kWait
                                      : Reply::kGo));
        if (answer.reply == Reply::kWait) return false;
        worker.state = over ? State::kAwaits : State::kComputes;
        return true;
      }
      case State::kComputes:
        return Offer(worker, question);
      case State::kApplies: {
        question.kind = Kind::kApplied;
        CloseBooks();
        CheckOver(worker.round, Ask(question).ValueOrThrow());
        worker.state = State::kAwaits;
        return true;
      }
      case State::kAwaits: {
        question.kind = Kind::kAwait;
        const Admission::Answer answer = Ask(question).ValueOrThrow();
        const bool over = worker.round < open_;
        CHECK(answer.reply == (over ? Reply::kOver : Reply::kWait));
        if (!over) return false;
        CheckOver(worker.round, answer);
        ++worker.round;
        worker.state = State::kBegins;
        return true;
      }
    }
    return false;
  }

  bool Offer(Worker& worker, Admission::Question question) {
    question.kind = Kind::kOffer;
    // What comes late may be anything.
    const bool late = worker.round < open_ || admitted_.size() == Needed();
    question.loss = late ? std::numeric_limits<float>::quiet_NaN()
                         : LossOf(question.rank, question.round);
    question.rate = static_cast<float>(question.round);
    const Admission::Answer answer = Ask(question).ValueOrThrow();
    worker.state = State::kAwaits;
    if (late) {
      CHECK(answer.reply ==
            (worker.round < open_ ? Reply::kOver : Reply::kWait));
      return true;
    }
    admitted_.push_back(question.rank);
    if (admitted_.size() < Needed()) {
      CHECK(answer.reply == Reply::kWait);
      return true;
    }
    REQUIRE(answer.reply == Reply::kApply);
    std::vector<int64_t> rows(workers_.size());
    for (const int rank : admitted_) {
      rows[static_cast<size_t>(rank)] = RowsOf(batch(), rank, workers());
    }
    CHECK(answer.admitted == rows);
    worker.state = State::kApplies;
    return true;
  }

  void CloseBooks() {
    double loss = 0, rows = 0;
    for (int rank = 0; rank < workers(); ++rank) {
      const auto has = static_cast<double>(RowsOf(batch(), rank, workers()));
      const bool in = std::count(admitted_.begin(), admitted_.end(), rank) > 0;
      if (in) {
        // The mean over its examples is v, which the offer had weighted.
        loss += LossOf(rank, open_);
        rows += has;
      } else if (has > 0) {
        ++dropped_[static_cast<size_t>(rank)];
        ++late_;
      }
    }
    rows_ += static_cast<int64_t>(rows);
    losses_.push_back(loss /
                      (rows * workers() / static_cast<double>(batch().whole)));
    admitted_.clear();
    ++open_;
  }

  void CheckOver(int64_t round, const Admission::Answer& answer) {
    REQUIRE(answer.reply == Reply::kOver);
    CHECK(answer.rows == rows_);
    CHECK(answer.dropped == dropped_);
    CHECK(answer.loss == doctest::Approx(losses_[static_cast<size_t>(round)]));
    CHECK(answer.rate == static_cast<float>(round));
  }

  // What nobody in its senses asks is refused, and changes nothing, as the
  // books show afterwards.
  void AskNonsense(size_t i) {
    if (open_ == rounds()) return;
    const int rank = static_cast<int>(i);
    const int64_t rows = RowsOf(batch(), rank, workers());
    Admission::Question question = {Kind::kOffer,  rank, open_, rows,
                                    batch().whole, 0,    0,     batch().full};
    switch (random_() % 5) {
      case 0:
        question.rank = random_() % 2 == 0 ? -1 : workers();
        CHECK(!admission_.Ask(question).ok());
        return;
      case 1:
        question.round = open_ + 1 + static_cast<int64_t>(random_() % 9);
        question.kind = static_cast<Kind>(random_() % 4);
        break;
      case 2:
        question.kind = Kind::kApplied;
        if (workers_[i].state == State::kApplies) return;
        break;
      case 3:
        question.rows += 1;
        break;
      case 4:
        if (std::count(admitted_.begin(), admitted_.end(), rank) == 0) return;
        break;
    }
    CHECK(Ask(question).status().code() == Code::kInvalidArgument);
  }

  std::mt19937 random_;
  const int64_t backups_;
  Admission admission_;
  std::vector<Worker> workers_;
  std::vector<int> weights_;
  std::vector<Batch> batches_;  // by round
  // The books.
  int64_t open_ = 0;
  std::vector<int> admitted_;  // to it, in order
  std::vector<int64_t> dropped_;
  int64_t late_ = 0;
  std::vector<double> losses_;
  int64_t rows_ = 0;
  bool stuck_ = false;
};

TEST_CASE("the first that come are admitted, all others dropped and counted") {
  int64_t dropped = 0;
  for (uint32_t seed = 0; seed < 105; ++seed) {
    CAPTURE(seed);
    const int workers = 1 + static_cast<int>(seed % 7);
    const int64_t backups = seed / 7 % workers;
    Schedule schedule(seed, workers, backups, 30);
    schedule.Run(/*some_die=*/false);
    CHECK(!schedule.stuck());
    if (backups == 0) CHECK(schedule.dropped() == 0);
    dropped += schedule.dropped();
  }
  CHECK(dropped > 0);
}

TEST_CASE("who dies contributes nothing, and holds up nobody who is enough") {
  int stuck = 0, went_on = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const int workers = 2 + static_cast<int>(seed % 5);
    Schedule schedule(seed, workers, seed / 5 % workers, 40);
    schedule.Run(/*some_die=*/true);
    ++(schedule.stuck() ? stuck : went_on);
  }
  CHECK(stuck > 0);
  CHECK(went_on > 0);
}

TEST_CASE("a loss that is no number is one of the admitted") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Admission admission(3, 1);
  const auto offer = [&](int rank, float loss) {
    return admission.Ask({Kind::kOffer, rank, 0, 2, 6, loss, 0.5F, 6})
        .ValueOrThrow();
  };
  CHECK(offer(2, nan).reply == Reply::kWait);
  CHECK(offer(0, 1).reply == Reply::kApply);
  CHECK(offer(1, 1).reply == Reply::kWait);  // late
  const Admission::Answer over =
      admission.Ask({Kind::kApplied, 0, 0}).ValueOrThrow();
  CHECK(std::isnan(ParseAdmissionAnswer(TextOf(over)).ValueOrThrow().loss));
  CHECK(over.dropped == std::vector<int64_t>{0, 1, 0});
  CHECK(over.rows == 4);
}

TEST_CASE("who waits hears for whom") {
  Admission admission(4, 1);
  const auto ask = [&](Kind kind, int rank) {
    // Of six examples two each: rank 3 has none.
    const Admission::Answer answer =
        admission.Ask({kind, rank, 0, 2, 6, 1, 0.5F, 8}).ValueOrThrow();
    CHECK(ParseAdmissionAnswer(TextOf(answer))->awaited == answer.awaited);
    return answer;
  };
  using Ranks = std::vector<int64_t>;
  CHECK(ask(Kind::kAwait, 3).awaited == Ranks{0, 1, 2, 3});  // nothing is known
  CHECK(ask(Kind::kOffer, 1).awaited == Ranks{0, 2});
  CHECK(ask(Kind::kOffer, 0).awaited == Ranks{2});
  CHECK(ask(Kind::kAwait, 1).awaited == Ranks{2});
  CHECK(ask(Kind::kOffer, 2).reply == Reply::kApply);
  CHECK(ask(Kind::kAwait, 0).awaited == Ranks{2});
  CHECK(ask(Kind::kBegin, 3).awaited == Ranks{2});
}

TEST_CASE("texts that are no questions and no answers") {
  const std::string good = TextOf(
      AdmissionCall{1, 3, 1, {Kind::kOffer, 2, 5, 4, 12, 0.5F, 0.1F, 12}});
  REQUIRE(ParseAdmissionCall(good).ok());
  for (const auto& [from, to] : {std::pair("\"rank\":2", "\"rank\":3"),
                                 std::pair("\"rank\":2", "\"rank\":-1"),
                                 std::pair("\"backups\":1", "\"backups\":3"),
                                 std::pair("\"workers\":3", "\"workers\":0"),
                                 std::pair("\"round\":5", "\"round\":-5"),
                                 std::pair("\"rows\":4", "\"rows\":-4"),
                                 std::pair("\"admit\":1", "\"admit\":9")}) {
    CAPTURE(to);
    std::string bad = good;
    const size_t at = bad.find(from);
    REQUIRE(at != bad.npos);
    bad.replace(at, std::string(from).size(), to);
    CHECK(!ParseAdmissionCall(bad).ok());
  }
  for (size_t size = 0; size < good.size(); ++size) {
    CHECK(!ParseAdmissionCall(good.substr(0, size)).ok());
  }
  CHECK(!IsAdmissionCall("{\"era\":1}"));
  for (const char* text : {"", "{}", "{\"reply\":7}", "{\"reply\":3}"}) {
    CHECK(!ParseAdmissionAnswer(text).ok());
  }
}

}  // namespace
}  // namespace sluice::dist
