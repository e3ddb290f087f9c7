// What is said of a step that does not fit into memory.
#include "models/train/run/memory_check.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "tests/support/error_text.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;

TEST_CASE("a need that fits is fine, a larger one is told with what fits") {
  const MemoryNeed need = {.examples = 100,
                           .arena = 4'000'000'000,
                           .variables = 500'000'000,
                           .batches = 1'000'000'000};
  CHECK(CheckMemory(need, 5'500'000'000).ok());
  const Status status = CheckMemory(need, 3'000'000'000);
  CHECK(status.code() == Code::kResourceExhausted);
  CHECK(Contains(status.message(),
                 "a batch of 100 needs 5.5 GB of memory (arena 4.0 GB, "
                 "variables 500.0 MB, batches 1.0 GB) and 3.0 GB are free; "
                 "about --batch-size 50 fits"));
  CHECK(Contains(CheckMemory(need, 400'000'000).message(),
                 "not even one example fits"));
  // A fourth of a batch, of which four such come one after another.
  MemoryNeed share = need;
  share.batch = 400;
  const std::string message = CheckMemory(share, 3'000'000'000).message();
  CAPTURE(message);
  CHECK(Contains(message, "a batch of 400 needs 5.5 GB of memory"));
  CHECK(Contains(message, "about --batch-size 200 fits"));
  CHECK(Contains(CheckMemory(share, 400'000'000).message(),
                 "not even one example fits"));
}

// Nothing of it is computed on a device that only plans.
TEST_CASE("what does not fit is told as the batch that was asked for") {
  constexpr int64_t kBatch = int64_t{1} << 36;
  TrainerSpec spec = testing::ToyWithUnits(16, "logits");
  spec.input = [](const RunContext& run) {
    Dataset few =
        datasets::FromTensors({{"x", Tensor::Zeros(DType::kFloat32, {4, 3})},
                               {"label", Tensor::Zeros(DType::kInt64, {4})}});
    if (run.training()) few = few.Repeat();
    return few.Batch(run.batch_size);
  };
  spec.optimizer = [](const RunContext&) { return optimizers::Sgd(0.1); };
  RunContext run;
  run.batch_size = kBatch;
  run.steps = 1;
  TrainingOptions options;
  options.virtual_workers = 4;
  options.session.devices = {"/null:0"};
  const std::string error =
      testing::ErrorOf([&] { TrainingRun(spec, run, options); });
  CAPTURE(error);
  CHECK(Contains(error, fmt::format("a batch of {} needs ", kBatch)));
}

TEST_CASE("this machine has memory, and this process has used some") {
  CHECK(AvailableMemory() > 1'000'000);
  CHECK(PeakMemory() > 100'000);
  CHECK(FormatBytes(1500) == "1.5 kB");
}

}  // namespace
}  // namespace sluice
