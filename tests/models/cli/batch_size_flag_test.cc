// Whether a person asked for a batch size, which an input may not pass over.
#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "models/cli/command_line.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::TemporaryFolder;
using testing::ToySpec;

RunContext RunOf(std::vector<const char*> arguments) {
  TrainerSpec spec = ToySpec();
  spec.defaults = [](RunContext& run) { run.batch_size = 40; };
  arguments.insert(arguments.begin(), {"toy", "train"});
  const ParsedCommandLine parsed = ParseCommandLine(
      static_cast<int>(arguments.size()), arguments.data(), spec);
  REQUIRE_FALSE(parsed.exit_code.has_value());
  return parsed.line.run;
}

TEST_CASE("a program's own batch size is not what somebody asked for") {
  CHECK(RunOf({}).batch_size == 40);
  CHECK_FALSE(RunOf({}).batch_size_given);
  CHECK_FALSE(RunOf({"--epochs", "3"}).batch_size_given);
  for (const char* size : {"7", "40"}) {
    const RunContext run = RunOf({"--batch-size", size});
    CHECK(run.batch_size == std::stoi(size));
    CHECK(run.batch_size_given);
  }
  CHECK(RunOf({"--batch-size-per-worker", "7"}).batch_size_given);

  const TemporaryFolder folder;
  const std::string config = folder / "config.json";
  std::ofstream(config) << R"({"batch-size": 9})";
  const RunContext run = RunOf({"--config", config.c_str()});
  CHECK(run.batch_size == 9);
  CHECK(run.batch_size_given);
}

}  // namespace
}  // namespace sluice
