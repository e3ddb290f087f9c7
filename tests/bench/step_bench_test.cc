// step_bench's rows have what is judged by them (scripts/gpu_rows.py).
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/places.h"
#include "tests/support/program.h"

namespace sluice::testing {
namespace {

TEST_CASE("a model's row says who computes it, and whether it is captured") {
  const Outcome outcome =
      RunProgram(SLUICE_BIN_DIR "/step_bench",
                 {"--json", "--model", "mnist_softmax", "--batch", "2",
                  "--blocks", "1", "--steps", "1"});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  REQUIRE(Lines(outcome.out) == 1);
  const auto row = nlohmann::json::parse(outcome.out);
  CHECK(row["device"] == "/cpu:0");
  CHECK_FALSE(row["providers"].empty());
  CHECK(row.contains("refused"));
  CHECK(row["why_not_captured"] == "");  // as on every CPU
}

}  // namespace
}  // namespace sluice::testing
