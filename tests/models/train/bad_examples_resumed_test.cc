// How many bad examples may be passed over is said of a training, in however
// many pieces it is trained: it ends alike, with the same error or none, and
// the same ones are listed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "io/pipeline/bad_examples.h"
#include "tests/support/error_text.h"
#include "tests/support/sanitizers.h"
#include "tests/support/toy_training.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::TemporaryFolder;
using testing::ToldAtQuestion;

constexpr int64_t kExamples = 30;

// Numbered from 0 to train on, and behind these to evaluate on.
TrainerSpec SpecWithBroken(const std::set<int64_t>& broken) {
  TrainerSpec spec = testing::ToySpec();
  spec.input = [broken](const RunContext& run) {
    Tensor number(DType::kInt64, {kExamples});
    for (int64_t i = 0; i < kExamples; ++i) {
      number.data<int64_t>()[i] = run.training() ? i : kExamples + i;
    }
    Dataset examples = datasets::FromTensors(
        {{"x", Tensor::Zeros(DType::kFloat32, {kExamples, 3})},
         {"label", Tensor::Zeros(DType::kInt64, {kExamples})},
         {"number", number}});
    if (run.training()) {
      examples = examples.Shuffle(kExamples, run.seed).Repeat();
    }
    const auto read = [broken](Example& example) {
      const int64_t n = example["number"].IntAt(0);
      if (!broken.contains(n)) return;
      // As of a file whose name is no UTF-8.
      throw Error(Code::kDataLoss, "\xff: " + std::to_string(n) + " is bad");
    };
    return examples.Map(read, {.bad = run.bad_examples}).Batch(run.batch_size);
  };
  return spec;
}

RunContext RunOfBatches() {
  RunContext run = testing::ToyRun(3);
  run.batch_size = 6;
  return run;
}

// In the order in which they are trained on.
std::vector<int64_t> NumbersInOrder() {
  Iterator batches = SpecWithBroken({}).input(RunOfBatches()).MakeIterator();
  std::vector<int64_t> numbers;
  Example batch;
  while (numbers.size() < static_cast<size_t>(kExamples)) {
    REQUIRE(batches.Next(&batch).ValueOrThrow());
    for (int64_t i = 0; i < batch["number"].elements(); ++i) {
      numbers.push_back(batch["number"].IntAt(i));
    }
  }
  return numbers;
}

// What comes of a process that trains on.
struct Ended {
  std::string error;  // "": none
  std::vector<std::string> listed;
  bool interrupted = false;
};
Ended TrainOn(const TrainerSpec& spec, int64_t limit,
              const TrainingOptions& options) {
  RunContext run = RunOfBatches();
  run.bad_examples = std::make_shared<BadExamples>(limit);
  Ended ended;
  try {
    const TrainingResult result = Trainer(spec, run, options).Train();
    ended.interrupted = !result.interrupted.empty();
  } catch (const Error& error) {
    ended.error = error.what();
  }
  ended.listed = run.bad_examples->messages();
  return ended;
}

// The messages as a checkpoint has them.
std::vector<std::string> Replaced(std::vector<std::string> messages) {
  for (std::string& message : messages) {
    if (message[0] == '\xff') message.replace(0, 1, "\xef\xbf\xbd");
  }
  return messages;
}

TEST_CASE("in pieces a training passes over no more than in one") {
  int failed = 0, cut = 0;
  for (uint32_t seed = 0; seed < testing::Rounds(30u); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::set<int64_t> broken;
    for (auto n = static_cast<int64_t>(1 + random() % 6); n > 0; --n) {
      broken.insert(static_cast<int64_t>(random() % (2 * kExamples)));
    }
    const TrainerSpec spec = SpecWithBroken(broken);
    const auto limit = static_cast<int64_t>(1 + random() % broken.size());
    const double evaluate_every[] = {0, 0.4, 1};
    const int64_t save_every[] = {0, 1, 3};
    const TemporaryFolder folder;
    TrainingOptions options{
        .log_dir = folder / "whole",
        .save_every = {.steps = save_every[random() % 3]},
        .evaluate_every = evaluate_every[random() % 3],
        .log_every = 1 + static_cast<int64_t>(random() % 4)};
    const Ended whole = TrainOn(spec, limit, options);
    const bool fails = static_cast<size_t>(limit) < broken.size();
    REQUIRE((whole.error != "") == fails);
    if (fails) CHECK(Contains(whole.error, "bad ones were passed over before"));
    failed += fails ? 1 : 0;

    options.log_dir = folder / "parts";
    Ended part;
    for (int piece = 0; piece == 0 || part.interrupted; ++piece) {
      REQUIRE(piece < 60);
      const ToldAtQuestion token(2 + static_cast<int>(random() % 16));
      options.stop = &token;
      part = TrainOn(spec, limit, options);
      cut += part.interrupted ? 1 : 0;
    }
    options.stop = nullptr;
    // It goes no further when it is tried again.
    for (const Ended& ended : {part, TrainOn(spec, limit, options)}) {
      CHECK(ended.error == whole.error);
      CHECK(Replaced(ended.listed) == Replaced(whole.listed));
    }
  }
  CHECK(failed > testing::Rounds(5));
  CHECK(cut > testing::Rounds(10));
}

TEST_CASE("another limit of bad examples is of the whole training, too") {
  // One in each of the first four batches.
  const std::vector<int64_t> numbers = NumbersInOrder();
  const TrainerSpec spec =
      SpecWithBroken({numbers[2], numbers[8], numbers[15], numbers[22]});
  const TemporaryFolder folder;
  TrainingOptions options{.log_dir = folder / "log"};
  const auto error = [&](int64_t limit) {
    return TrainOn(spec, limit, options).error;
  };
  CHECK(Contains(error(2), "; 2 bad ones were passed over before it"));
  CHECK(Contains(error(1), "; 2 bad ones were passed over before it"));
  CHECK(Contains(error(3), "; 3 bad ones were passed over before it"));
  const Ended ended = TrainOn(spec, 4, options);
  CHECK(ended.error == "");
  CHECK(ended.listed.size() == 4);
}

// So many bytes that a checkpoint's header cannot hold all, each of which takes
// six there.
TEST_CASE("a checkpoint keeps the first of very long messages") {
  std::vector<std::string> messages;
  for (char c = 'a'; c < 's'; ++c) {
    messages.push_back(c + std::string(size_t{1} << 20, '\x01'));
  }
  const TrainerSpec spec = SpecWithBroken({});
  const TemporaryFolder folder;
  const TrainingOptions options{.log_dir = folder / "log"};
  RunContext run = RunOfBatches();
  run.bad_examples = std::make_shared<BadExamples>(100);
  run.bad_examples->Know(messages);
  Trainer(spec, run, options).Train();
  const Ended later = TrainOn(spec, 100, options);
  CHECK(later.error == "");
  REQUIRE(!later.listed.empty());
  REQUIRE(later.listed.size() < messages.size());
  const bool first =
      std::equal(later.listed.begin(), later.listed.end(), messages.begin());
  CHECK(first);
}

}  // namespace
}  // namespace sluice
