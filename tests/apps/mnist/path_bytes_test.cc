// Paths are any bytes, not UTF-8 alone: what a command has done in such a
// folder it also says, as JSON, too.
#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/error_text.h"
#include "tests/support/last_object.h"
#include "tests/support/mnist_program.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::kMnist;
using testing::LastObject;
using testing::MnistData;
using testing::OnMnist;
using testing::Outcome;
using testing::Process;
using testing::RunMnist;
using testing::TemporaryFolder;

TEST_CASE("folders whose names are no UTF-8 have their results as JSON") {
  const TemporaryFolder folder;
  const std::string log = folder / "caf\xe9";  // Latin-1
  const auto told = [&](const Outcome& outcome, const char* event) {
    CAPTURE(event);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(LastObject(outcome.out)["event"] == event);
  };
  told(
      RunMnist(OnMnist("train", {"--epochs", "1", "--log-dir", log, "--json"})),
      "result");
  told(RunMnist({"eval", "--log-dir", log, "--json"}), "result");
  told(RunMnist({"predict", "--log-dir", log, "--count", "1", "--json"}),
       "prediction");
  told(RunMnist(
           {"export", "--log-dir", log, "--output", folder / "\xff", "--json"}),
       "export");
  told(RunMnist(
           OnMnist("train", {"--find-rate", folder / "\xfe.html", "--json"})),
       "find_rate");

  // Interrupted, with a rate that needs no total.
  const Process process(
      kMnist, OnMnist("train", {"--epochs", "1000", "--learning-rate", "0.001",
                                "--log-dir", log, "--json"}));
  REQUIRE(process.WaitFor("\"event\":\"first_step\""));
  process.Kill(SIGINT);
  CHECK(process.Wait() == 128 + SIGINT);
  CHECK(Contains(process.out(), "\"event\":\"interrupted\""));
}

TEST_CASE("a training knows its data by a path that is no UTF-8") {
  const TemporaryFolder folder;
  const std::string data = folder /
                           "donn\xe9"
                           "es",
                    log = folder / "log";
  std::filesystem::create_directory_symlink(MnistData().path(), data);
  REQUIRE(RunMnist({"train", "--data-dir", data, "--model", "mlp", "--steps",
                    "3", "--log-dir", log})
              .code == 0);
  for (const char* command : {"eval", "train"}) {
    CAPTURE(command);
    const Outcome again = RunMnist({command, "--log-dir", log, "--json"});
    CAPTURE(again.err);
    CHECK(again.code == 0);
    CHECK(Contains(again.out, "\"dataset\":\"mnist\""));
  }
  // Once more, as what has gone on has a record of its own.
  CHECK(RunMnist({"eval", "--log-dir", log}).code == 0);
}

}  // namespace
}  // namespace sluice
