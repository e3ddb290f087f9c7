// Two workers with speeds of their own, by a script of who does what when.
#ifndef SLUICE_TESTS_SUPPORT_TURNS_H_
#define SLUICE_TESTS_SUPPORT_TURNS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/runtime/trace.h"
#include "models/train/trainer.h"

namespace sluice::testing {

// Rank 1 does so many steps as it is told to, and rank 0 tells it: in the
// middle of each of its own, and between two of them. Both do one a round.
class Turns : public Hook, public Observer {
 public:
  struct Round {
    int64_t within = 0, after = 0;
  };
  // `halfway`: an instruction of rank 0's step that has read the variables and
  // comes before its updates. `after_step` is called by one worker at a time.
  Turns(std::vector<Round> rounds,
        std::function<bool(const InstructionLabel& ran)> halfway,
        std::function<void(TrainingRun& run)> after_step)
      : rounds_(std::move(rounds)),
        is_halfway_(std::move(halfway)),
        after_step_(std::move(after_step)) {}

  void Begin(TrainingRun& run) override {
    if (!run.workers().leads()) return AwaitTurn();
    run.session().SetObserver(this);
  }
  void AfterStep(TrainingRun& run) override {
    after_step_(run);
    if (!run.workers().leads()) {
      ++done_;
      return AwaitTurn();
    }
    HaveDone(rounds_[static_cast<size_t>(round_++)].after);
    halfway_ = false;
  }
  void End(TrainingRun& run) override { run.session().SetObserver(nullptr); }

  Status AfterInstruction(const RanInstruction& ran) override {
    if (!is_halfway_(ran.label) || halfway_.exchange(true)) return {};
    const int64_t within = rounds_[static_cast<size_t>(round_)].within;
    if (within == 0) return {};
    // What a server reads for itself alone, such as a counter, it has read by
    // now: no instruction of rank 0's tells of it.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    HaveDone(within);
    return {};
  }

  // The one hook of both.
  void AddTo(Trainer& trainer) {
    trainer.AddHook(std::make_unique<Forward>(*this));
  }

 private:
  class Forward : public Hook {
   public:
    explicit Forward(Hook& to) : to_(to) {}
    void Begin(TrainingRun& run) override { to_.Begin(run); }
    void AfterStep(TrainingRun& run) override { to_.AfterStep(run); }
    void End(TrainingRun& run) override { to_.End(run); }

   private:
    Hook& to_;
  };

  void AwaitTurn() const {
    const auto all = static_cast<int64_t>(rounds_.size());
    while (done_ < all && done_ == allowed_) Doze();
  }
  void HaveDone(int64_t steps) {
    allowed_ += steps;
    while (done_ < allowed_) Doze();
  }
  static void Doze() {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  const std::vector<Round> rounds_;
  const std::function<bool(const InstructionLabel& ran)> is_halfway_;
  const std::function<void(TrainingRun& run)> after_step_;
  std::atomic<int64_t> allowed_{0}, done_{0};
  std::atomic<int64_t> round_{0};
  std::atomic<bool> halfway_{false};
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_TURNS_H_
