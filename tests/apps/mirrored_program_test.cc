// Programs with --strategy mirrored: several devices of one process.
#include <doctest/doctest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/support/last_object.h"
#include "tests/support/launched.h"
#include "tests/support/mnist_program.h"
#include "tests/support/newest_tensors.h"
#include "tests/support/resnet50_program.h"

namespace sluice {
namespace {

using testing::CheckMnistError;
using testing::CheckSameTensors;
using testing::Contains;
using testing::kLauncher;
using testing::Launched;
using testing::NewestTensors;
using testing::OnMnist;
using testing::Outcome;
using testing::RunMnist;
using testing::TemporaryFolder;

using Flags = std::vector<std::string>;

const Flags kTwo = {"--strategy", "mirrored", "--devices", "/cpu:0,/cpu:1"};

Flags With(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// A convolutional network with dropout.
Flags OnNetwork(const std::string& log_dir, const Flags& more) {
  return OnMnist("train",
                 With({"--log-dir", log_dir, "--batch-size", "50", "--json",
                       "--log-every", "1", "--deterministic"},
                      more),
                 "cnn");
}

Outcome Train(const std::string& log_dir, const Flags& more) {
  return RunMnist(OnNetwork(log_dir, more));
}

TEST_CASE("mirrored: devices leave the bits of as many virtual workers") {
  TemporaryFolder folder;
  const std::string wanted = folder / "virtual";
  REQUIRE(Train(wanted, {"--steps", "8", "--virtual-workers", "2"}).code == 0);
  for (const char* variables : {"", "cpu", "gpu", "host"}) {
    const std::string log = folder / (std::string("on") + variables);
    Flags flags = With(kTwo, {"--steps", "8"});
    if (*variables != '\0') flags = With(flags, {"--variables", variables});
    const Outcome outcome = Train(log, flags);
    CAPTURE(variables);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(Contains(outcome.out, "\"devices\":[\"/cpu:0\",\"/cpu:1\"]"));
    CheckSameTensors(NewestTensors(log), NewestTensors(wanted));
  }
}

TEST_CASE("mirrored: as devices, as processes, as one, it goes on") {
  TemporaryFolder folder;
  const std::string log = folder / "parts", whole = folder / "whole";
  const Flags four = {"--virtual-workers", "4", "--steps", "12",
                      "--evaluate-every",  "0"};
  REQUIRE(Train(whole, four).code == 0);
  const auto until = [&](const char* step, const Flags& more) {
    return With(With(four, {"--max-steps", step}), more);
  };
  const Outcome begun = Train(log, until("4", kTwo));
  CAPTURE(begun.err);
  CHECK(begun.code == 0);
  const Outcome processes = testing::RunProgram(
      kLauncher, Launched(3, testing::kMnist, OnNetwork(log, until("7", {}))));
  CAPTURE(processes.err);
  CHECK(processes.code == 0);
  const Outcome devices = Train(
      log, until("9", {"--strategy", "mirrored", "--devices",
                       "/cpu:0,/cpu:1,/cpu:2,/cpu:3", "--variables", "gpu"}));
  CAPTURE(devices.err);
  CHECK(devices.code == 0);
  // What is not given, the record has.
  const Outcome rest = RunMnist(OnMnist("train", {"--log-dir", log}, "cnn"));
  CAPTURE(rest.err);
  CHECK(rest.code == 0);
  CheckSameTensors(NewestTensors(log), NewestTensors(whole));
}

TEST_CASE("mirrored: that it goes on with fewer devices is said") {
  for (const bool defined : {false, true}) {
    CAPTURE(defined);
    const TemporaryFolder folder;
    const std::string log = folder / "log";
    Flags flags = {"--steps", "4", "--log-dir", log};
    if (defined) flags = With(flags, {"--virtual-workers", "2"});
    const Flags half = With(flags, {"--max-steps", "2"});
    const Outcome begun = RunMnist(OnMnist("train", With(kTwo, half)));
    REQUIRE_MESSAGE(begun.code == 0, begun.err);
    const std::string said = "it was trained by 2 processes or devices";
    const Outcome same = RunMnist(OnMnist("train", With(kTwo, half)));
    CHECK(same.code == 0);
    CHECK(!Contains(same.err, said));
    const Outcome rest = RunMnist({"train", "--log-dir", log});
    CHECK(rest.code == 0);
    CHECK(Contains(rest.err, said) == !defined);
  }
}

TEST_CASE("mirrored: a batch for each device, and a rate by their number") {
  TemporaryFolder folder;
  const Flags devices = With(kTwo, {"--steps", "6"});
  REQUIRE(RunMnist(OnMnist("train",
                           With(devices,
                                {"--log-dir", folder / "each",
                                 "--deterministic", "--batch-size-per-worker",
                                 "25", "--scale-learning-rate", "linear",
                                 "--learning-rate", "0.01"})))
              .code == 0);
  REQUIRE(RunMnist(OnMnist("train",
                           With(devices, {"--log-dir", folder / "all",
                                          "--deterministic", "--batch-size",
                                          "50", "--learning-rate", "0.02"})))
              .code == 0);
  CheckSameTensors(NewestTensors(folder / "each"),
                   NewestTensors(folder / "all"));
}

TEST_CASE("mirrored: what does not go with it is one line") {
  const auto refused = [](const Flags& flags, int code,
                          const std::string& part) {
    CheckMnistError(RunMnist(OnMnist("train", flags)), code, part);
  };
  refused({"--devices", "/cpu:0,/cpu:1"}, 2, "--devices is of --strategy");
  refused(With(kTwo, {"--strategy", "ring"}), 2, "--strategy");
  refused({"--strategy", "ring", "--devices", "/cpu:0,/cpu:1"}, 2,
          "--devices is of --strategy mirrored");
  refused({"--strategy", "mirrored"}, 2, "wants --devices, such as");
  refused({"--variables", "cpu"}, 2, "--variables is of --strategy mirrored");
  refused(With(kTwo, {"--variables", "disk"}), 2, "--variables");
  refused(With(kTwo, {"--device", "/cpu:0"}), 2, "--device");
  refused(With(kTwo, {"--sync-batch-norm"}), 2, "--sync-batch-norm");
  refused(With(kTwo, {"--overlap", "on"}), 2,
          "--overlap on is not for --strategy mirrored");
  refused(With(kTwo, {"--consistency", "async"}), 2, "--consistency");
  refused(With(kTwo, {"--skip-bad", "1"}), 1, "--skip-bad");
  refused(With(kTwo, {"--batch-size", "1"}), 1, "batches of 1");
  refused(With(kTwo, {"--transport", "mpi"}), 1, "--transport mpi");
  refused({"--strategy", "mirrored", "--devices", "/cpu:0,/cpu:1,/cpu:2",
           "--virtual-workers", "2"},
          1, "2 virtual workers for 3 devices");
  const auto devices = [&](const char* names, int code,
                           const std::string& part) {
    refused({"--strategy", "mirrored", "--devices", names}, code, part);
  };
  devices("/cpu:0,/cpu:0", 2, "'/cpu:0' is there twice");
  devices("/cpu:0,/gpu:0", 2, "of another kind");
  devices("/cpu:0,/tpu:0", 2, "unknown device '/tpu:0'");
  devices("/cpu:0,/null:0", 2, "computes nothing");
  devices("/gpu:98,/gpu:99", 1, "/gpu:98");
  const Outcome several = testing::RunProgram(
      kLauncher, Launched(2, testing::kMnist, OnMnist("train", kTwo)));
  CAPTURE(several.err);
  CHECK(several.code == 1);
  CHECK(Contains(several.err, "one process with several --devices, 2 were"));
}

TEST_CASE("mirrored: Ctrl-C saves, and a search tries the rates") {
  TemporaryFolder folder;
  const std::string log = folder / "log";
  const testing::Process process(
      testing::kMnist, OnNetwork(log, With(kTwo, {"--steps", "100000"})));
  REQUIRE(process.WaitFor("\"step\":5,"));
  kill(process.pid(), SIGINT);
  CHECK(process.Wait() == 128 + SIGINT);
  CHECK(!NewestTensors(log).empty());
  const Outcome search =
      RunMnist(OnMnist("train", With(kTwo, {"--batch-size", "20", "--find-rate",
                                            folder / "rates.html"})));
  CAPTURE(search.err);
  CHECK(search.code == 0);
  // What it suggests is what --learning-rate takes.
  const auto suggested = [&](const Flags& more) {
    const Outcome found = RunMnist(OnMnist(
        "train",
        With(With(kTwo, {"--batch-size", "20", "--deterministic", "--json",
                         "--find-rate", folder / "rates.html"}),
             more)));
    CAPTURE(found.err);
    REQUIRE(found.code == 0);
    return testing::LastObject(found.out)["suggested"].get<double>();
  };
  CHECK(suggested({"--scale-learning-rate", "linear"}) ==
        doctest::Approx(suggested({}) / 2));
  const Outcome tried =
      RunMnist(OnMnist("train", With(kTwo, {"--fast-dev-run"})));
  CAPTURE(tried.err);
  CHECK(tried.code == 0);
}

#if SLUICE_HAVE_PNG
// Batch normalisation, and pictures mixed within a share.
TEST_CASE("mirrored: statistics and mixed pictures") {
  TemporaryFolder folder;
  const std::string data = folder / "data";
  testing::WriteClasses(data + "/train", {"ant", "bee", "cat"}, 9);
  testing::WriteClasses(data + "/val", {"ant", "bee", "cat"}, 3);
  const auto train = [&](const std::string& log, const Flags& flags) {
    const Outcome outcome = testing::RunProgram(
        SLUICE_BIN_DIR "/resnet50",
        With({"train", "--data", data, "--model", "resnet20", "--batch-size",
              "13", "--steps", "5", "--augment", "mixup(0.4)",
              "--deterministic", "--log-dir", log},
             flags));
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    return NewestTensors(log);
  };
  const auto wanted = train(folder / "virtual", {"--virtual-workers", "2"});
  CheckSameTensors(train(folder / "cpu", kTwo), wanted);
  CheckSameTensors(train(folder / "gpu", With(kTwo, {"--variables", "gpu"})),
                   wanted);
}
#endif

}  // namespace
}  // namespace sluice
