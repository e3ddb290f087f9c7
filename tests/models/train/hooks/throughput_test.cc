#include "models/train/hooks/throughput.h"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::ToyRun;
using testing::ToySpec;

class Watch : public Hook {
 public:
  explicit Watch(std::vector<Rates>* rates) : rates_(rates) {}
  void Begin(TrainingRun& run) override { throughput_.Start(run); }
  void AfterStep(TrainingRun& run) override {
    rates_->push_back(throughput_.Since(run));
  }

 private:
  std::vector<Rates>* rates_;
  Throughput throughput_;
};

TEST_CASE("the stage that the training waits for is named") {
  TrainerSpec spec = ToySpec();
  spec.input = [](const RunContext& run) {
    return testing::Points(run)
        .Map([](Example&) {}, {.name = "fast"})
        .Map(
            [](Example&) {
              std::this_thread::sleep_for(std::chrono::milliseconds(20));
            },
            {.name = "slow"})
        .Map([](Example&) {});
  };
  std::vector<Rates> rates;
  Trainer trainer(spec, ToyRun(1), {});
  trainer.AddHook(std::make_unique<Watch>(&rates));
  trainer.Train();
  REQUIRE(rates.size() == 10);
  for (const Rates& rate : rates) {
    CHECK(rate.input_wait > 0);
    CHECK(rate.input_wait <= 1);
    CHECK(rate.examples_per_second > 0);
    // Also after steps during which nothing was measured.
    CHECK(rate.input_stage == "slow");
  }
}

TEST_CASE("nothing is known of what was not trained") {
  class AtOnce : public Hook {
   public:
    void Begin(TrainingRun& run) override {
      Throughput throughput;
      throughput.Start(run);
      const Rates none = throughput.Since(run);
      CHECK(none.examples_per_second == 0);
      CHECK(none.input_wait == 0);
      CHECK(none.input_stage.empty());
    }
  };
  Trainer trainer(ToySpec(), ToyRun(0.1), {});
  trainer.AddHook(std::make_unique<AtOnce>());
  trainer.Train();
}

}  // namespace
}  // namespace sluice
