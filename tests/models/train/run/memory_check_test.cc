// What is said of a step that does not fit into memory.
#include "models/train/run/memory_check.h"

#include <doctest/doctest.h>

#include "tests/support/error_text.h"

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
}

TEST_CASE("this machine has memory, and this process has used some") {
  CHECK(AvailableMemory() > 1'000'000);
  CHECK(PeakMemory() > 100'000);
  CHECK(FormatBytes(1500) == "1.5 kB");
}

}  // namespace
}  // namespace sluice
