// --first-bucket and --bucket: what gradients are joined to on their way.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/launched.h"
#include "tests/support/mnist_program.h"
#include "tests/support/newest_tensors.h"

namespace sluice {
namespace {

using testing::CheckMnistError;
using testing::Contains;
using testing::NewestTensors;
using testing::OnMnist;
using testing::Outcome;
using testing::TemporaryFolder;

TEST_CASE("buckets of no bytes are refused in a line") {
  for (const std::string flag : {"--first-bucket", "--bucket"}) {
    for (const std::string bytes : {"0", "-1", "many"}) {
      CheckMnistError(testing::RunMnist(OnMnist("train", {flag, bytes})), 2,
                      "wanted a number from 1");
    }
  }
}

// Two processes add in any order to the same bits.
TEST_CASE("buckets of any size make the same training") {
  TemporaryFolder folder;
  const std::vector<std::vector<std::string>> sizes = {
      {"524288", "524288"}, {"1", "1"}, {"1000", "100000000"}};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string log = folder / std::to_string(i);
    const Outcome outcome = testing::RunProgram(
        testing::kLauncher,
        testing::Launched(
            2, testing::kMnist,
            OnMnist("train",
                    {"--steps", "6", "--threads", "1", "--log-dir", log,
                     "--first-bucket", sizes[i][0], "--bucket", sizes[i][1]})));
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    testing::CheckSameTensors(NewestTensors(log), NewestTensors(folder / "0"));
  }
}

TEST_CASE("processes of other buckets are refused, and both are named") {
  for (const std::string flag : {"--first-bucket", "--bucket"}) {
    std::string line =
        "[ $SLUICE_RANK = 1 ] && b=1000; exec " + std::string(testing::kMnist);
    for (const std::string& word : OnMnist("train", {"--steps", "2"})) {
      line += " '" + word + "'";
    }
    line.append(" ").append(flag).append(" ${b:-2000}");
    const Outcome outcome = testing::RunJob(2, line);
    CAPTURE(outcome.err);
    CHECK(outcome.code == 1);
    CHECK(Contains(outcome.err,
                   "the choice of bucket sizes of rank 1 of 2 is "
                   "another than that of rank 0 of 2: '"));
    CHECK(Contains(outcome.err, "1000"));
    CHECK(Contains(outcome.err, "2000"));
  }
}

}  // namespace
}  // namespace sluice
