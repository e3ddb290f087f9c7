// The learning rates that resnet50 trains with beside --optimizer, against the
// schedule's formula, and flags of it that would do nothing.
#include <doctest/doctest.h>

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "models/train/hooks/scalar_log.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/resnet50_program.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::CheckResNet50Error;
using testing::CheckSameTensors;
using testing::NewestTensors;
using testing::Outcome;
using testing::RunResNet50;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

// 256 synthetic pictures, which are 32 steps.
Words Of(const std::string& log_dir, const Words& more) {
  Words words = {
      "train",        "--model", "resnet20",        "--log-dir",   log_dir,
      "--batch-size", "8",       "--deterministic", "--log-every", "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void Train(const std::string& log_dir, const Words& more) {
  const Outcome outcome = RunResNet50(Of(log_dir, more));
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
}

// Of steps 1, 2, ...
std::vector<double> Rates(const std::string& log_dir) {
  std::vector<double> rates;
  for (const ScalarRow& row : ReadScalars(log_dir).ValueOrThrow()) {
    if (row.name == "learning_rate") rates.push_back(row.value);
  }
  return rates;
}

// Of half a cosine over all steps, to whose value at its end the warm-up rises.
std::vector<double> WarmedCosine(double rate, int warm_up, int steps) {
  const auto cosine = [&](int step) {
    return rate / 2 * (1 + std::cos(std::numbers::pi * step / steps));
  };
  std::vector<double> rates;
  for (int step = 0; step < steps; ++step) {
    rates.push_back(step < warm_up ? cosine(warm_up) * step / warm_up
                                   : cosine(step));
  }
  return rates;
}

void CheckRates(const std::vector<double>& rates,
                const std::vector<double>& wanted) {
  REQUIRE(rates.size() == wanted.size());
  for (size_t i = 0; i < rates.size(); ++i) {
    CAPTURE(i);
    CHECK(rates[i] == doctest::Approx(wanted[i]).epsilon(1e-5));
  }
}

TEST_CASE("another optimizer with the program's rate") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  const Words lars = {"--optimizer", "lars", "--base-rate", "2"};
  const auto with = [&](Words words) {
    words.insert(words.begin(), lars.begin(), lars.end());
    return words;
  };
  // 2 * 8 / 256 at most; an eighth of an epoch are four steps.
  const Words falling = with(
      {"--schedule", "cosine", "--warm-up-epochs", "0.125", "--steps", "12"});
  Train(log, falling);
  CheckRates(Rates(log), WarmedCosine(0.0625, 4, 12));
  // The same goes on without its flags.
  const std::string parts = folder / "parts";
  Words some = falling;
  some.insert(some.end(), {"--max-steps", "5"});
  Train(parts, some);
  Train(parts, {});
  CheckSameTensors(NewestTensors(parts), NewestTensors(log));
  // It is that optimizer.
  const Words constant = {"--schedule", "constant",         "--steps",
                          "3",          "--warm-up-epochs", "0"};
  Train(folder / "base", with(constant));
  Train(folder / "rate",
        {"--optimizer", "lars", "--learning-rate", "0.0625", "--steps", "3"});
  CheckSameTensors(NewestTensors(folder / "base"),
                   NewestTensors(folder / "rate"));
  // Alone it has its own, with which a training goes on.
  Train(folder / "own", {"--optimizer", "momentum", "--steps", "2"});
  Train(folder / "own", {"--steps", "3"});
  CheckRates(Rates(folder / "own"), {0.01, 0.01, 0.01});
  // --scale-learning-rate has nothing to add to what goes by the batch.
  Train(folder / "scaled",
        with({"--schedule", "constant", "--steps", "1", "--warm-up-epochs", "0",
              "--virtual-workers", "2", "--scale-learning-rate", "linear"}));
  CheckRates(Rates(folder / "scaled"), {0.0625});
}

TEST_CASE("a flag of the rate that would do nothing is an error") {
  const TemporaryFolder folder;
  const auto fails = [&](const Words& more, const std::string& part) {
    CheckResNet50Error(RunResNet50(Of(folder / "log", more)), 2, part);
  };
  for (const Words& flag : {Words{"--base-rate", "2"},
                            {"--schedule", "cosine"},
                            {"--warm-up-epochs", "10"}}) {
    fails({"--learning-rate", "0.1", flag[0], flag[1]},
          flag[0] +
              " is of the program's learning rate, which "
              "--learning-rate takes the place of");
    if (flag[0] == "--base-rate") continue;
    fails({"--optimizer", "lars", flag[0], flag[1]}, "give --base-rate, too");
  }
}

}  // namespace
}  // namespace sluice
