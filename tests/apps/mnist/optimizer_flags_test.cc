// --clip, --accumulate and --learning-rate-for, against what they are defined
// to equal.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "io/checkpoints/checkpoint.h"
#include "tests/support/error_text.h"
#include "tests/support/mnist_program.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::OnMnist;
using testing::Outcome;
using testing::RunMnist;
using testing::TemporaryFolder;

using Tensors = std::map<std::string, Tensor>;

// Trains with sgd on the same digits in the same order.
Tensors Train(const std::vector<std::string>& more) {
  TemporaryFolder folder;
  std::vector<std::string> flags = {
      "--optimizer", "sgd",       "--deterministic", "--evaluate-every",
      "0",           "--log-dir", folder / "log"};
  flags.insert(flags.end(), more.begin(), more.end());
  const Outcome outcome = RunMnist(OnMnist("train", flags, "softmax"));
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  const auto saved = CheckpointManager::ForReading(folder / "log")
                         .RestoreNewest()
                         .ValueOrThrow();
  Tensors tensors;
  for (const auto& [name, tensor] : saved->checkpoint.tensors) {
    if (IsFloating(tensor.dtype())) tensors[name] = tensor;
  }
  return tensors;
}

double Distance(const Tensor& a, const Tensor& b) {
  REQUIRE(a.elements() == b.elements());
  double sum = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    sum += (a.At(i) - b.At(i)) * (a.At(i) - b.At(i));
  }
  return std::sqrt(sum);
}
// Over all variables.
double Distance(const Tensors& a, const Tensors& b) {
  double sum = 0;
  for (const auto& [name, tensor] : b) {
    const double distance = Distance(a.at(name), tensor);
    sum += distance * distance;
  }
  return std::sqrt(sum);
}

const std::vector<std::string> kStart = {"--steps", "1", "--learning-rate",
                                         "0"};

TEST_CASE("two halves of a batch make the update of the whole") {
  const Tensors whole =
      Train({"--batch-size", "100", "--steps", "8", "--learning-rate", "0.5"});
  const Tensors halves = Train({"--batch-size", "50", "--steps", "16",
                                "--accumulate", "2", "--learning-rate", "0.5"});
  const Tensors other =
      Train({"--batch-size", "50", "--steps", "16", "--learning-rate", "0.5"});
  const Tensors start = Train(kStart);
  const double way = Distance(whole, start);
  CHECK(way > 0.1);
  for (const auto& [name, tensor] : whole) {
    CAPTURE(name);
    CHECK(Distance(halves.at(name), tensor) < 1e-5 * way);
  }
  CHECK(Distance(other, whole) > 0.01 * way);
}

TEST_CASE("more batches to an update than there are steps are refused") {
  std::vector<std::string> flags = {"--steps", "3", "--accumulate", "4"};
  for (const char* trial : {"", "--find-rate", "--fast-dev-run"}) {
    CAPTURE(trial);
    if (trial[0] != '\0') flags.emplace_back(trial);
    testing::CheckMnistError(
        RunMnist(OnMnist("train", flags)), 1,
        "--accumulate 4 is more batches to an update than there are steps, 3");
    flags.resize(4);
  }
  Train({"--steps", "3", "--accumulate", "3"});
}

TEST_CASE("a step is never longer than the clipped gradient allows") {
  const Tensors start = Train(kStart);
  const auto step = [&](const char* clip) {
    return Distance(
        Train({"--steps", "1", "--learning-rate", "2", "--clip", clip}), start);
  };
  const double free = step("0");
  CHECK(free > 0.2);
  CHECK(step("0.01") == doctest::Approx(0.02).epsilon(1e-4));
  CHECK(step("1000") == doctest::Approx(free).epsilon(1e-4));
}

TEST_CASE("some variables learn faster, others not at all") {
  const Tensors start = Train(kStart);
  const auto moved = [&](const std::vector<std::string>& more) {
    std::vector<std::string> flags = {"--steps", "1", "--learning-rate", "0.1"};
    flags.insert(flags.end(), more.begin(), more.end());
    std::map<std::string, double> by_name;
    for (const auto& [name, tensor] : Train(flags)) {
      by_name[name] = Distance(tensor, start.at(name));
    }
    return by_name;
  };
  const auto plain = moved({});
  const auto scaled = moved({"--learning-rate-for", "*bias=0,*weights=3"});
  REQUIRE(plain.size() == 2);
  for (const auto& [name, way] : plain) {
    CAPTURE(name);
    CHECK(way > 0);
    CHECK(scaled.at(name) ==
          doctest::Approx(name.ends_with("bias") ? 0 : 3 * way).epsilon(1e-4));
  }
  const Outcome wrong = RunMnist(
      OnMnist("train", {"--steps", "1", "--learning-rate-for", "conv*=2"}));
  CHECK(wrong.code == 1);
  CHECK(Contains(wrong.err, "'conv*' matches none"));
  for (const char* bad :
       {"fc", "=2", "fc=", "fc=x", "fc=-1", "fc=1,", "fc=inf", "fc=nan"}) {
    CAPTURE(bad);
    testing::CheckMnistError(
        RunMnist(OnMnist("train", {"--learning-rate-for", bad})), 2,
        "PATTERN=FACTOR");
  }
}

}  // namespace
}  // namespace sluice
