// Trainings in an object store: data, log folder, weights and pages are there,
// and what is trained is what a training on this machine gives.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "engine/tensor.h"
#include "io/images/png.h"
#include "tests/support/await.h"
#include "tests/support/last_object.h"
#include "tests/support/mnist_program.h"
#include "tests/support/same_bits.h"
#include "tests/support/store_program.h"

namespace sluice {
namespace {

using testing::CheckMnistError;
using testing::Contains;
using testing::CsvRowsOf;
using testing::kMnist;
using testing::KnowsStores;
using testing::MnistData;
using testing::ObjectStore;
using testing::Outcome;
using testing::Process;
using testing::RunMnist;
using testing::RunProgram;
using testing::SameBits;
using testing::StoreSettings;
using testing::TemporaryFolder;
using testing::TextOf;
using testing::Upload;
using Strings = std::vector<std::string>;

// Whether a checkpoint in the store has the bits of one in a local folder.
bool SameAsLocal(ObjectStore& store, const std::string& run,
                 const std::string& log, int64_t step) {
  const TemporaryFolder folder;
  const std::string name = fmt::format("/checkpoint-{}.safetensors", step);
  REQUIRE(store.Has(run + name));
  std::ofstream(folder.path() + name, std::ios::binary)
      << store.Get(run + name).bytes;
  return SameBits(folder.path(), log, step);
}

Strings Train(const std::string& data, const std::string& log,
              const Strings& more) {
  Strings arguments = {"train",        "--data-dir", data,
                       "--log-dir",    log,          "--model",
                       "mlp",          "--seed",     "4",
                       "--threads",    "1",          "--deterministic",
                       "--save-every", "10",         "--keep",
                       "100"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

void RequireRuns(const Outcome& outcome) {
  REQUIRE_MESSAGE(outcome.code == 0, outcome.out, outcome.err);
}

// A minute and more after a holder was killed his lease has run out.
constexpr std::time_t kPastLease = 120;

TEST_CASE("mnist in a store: killed, resumed, and the bits of a local run") {
  if (!KnowsStores()) return;
  ObjectStore store;
  const StoreSettings settings(store);
  const TemporaryFolder folder;
  Upload(store, MnistData().path(), "mnist");
  RequireRuns(RunMnist(
      Train(MnistData().path(), folder / "log", {"--max-steps", "200"})));

  const Strings remote =
      Train("s3://b/mnist", "s3://b/runs/a", {"--max-steps", "200"});
  int kills = 0;
  for (const int step : {20, 60}) {
    const Process process(kMnist, remote);
    const std::string key =
        fmt::format("runs/a/checkpoint-{}.safetensors", step);
    for (int i = 0; i < 30000 && !store.Has(key); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    process.Kill(SIGKILL);
    REQUIRE(process.Wait() == -SIGKILL);
    REQUIRE(store.Has(key));
    CHECK(store.Has("runs/a/training.lock"));
    store.SetClock(kPastLease * ++kills);
  }
  const Outcome resumed = RunMnist(remote);
  RequireRuns(resumed);
  CHECK(Contains(resumed.err, "resuming from step "));
  CHECK_FALSE(store.Has("runs/a/training.lock"));
  CHECK(SameAsLocal(store, "runs/a", folder / "log", 200));
  // As many rows as the run that was not killed has.
  CHECK(testing::Lines(store.Get("runs/a/scalars.csv").bytes) ==
        testing::Lines(TextOf(folder / "log/scalars.csv")));

  const std::string run = "s3://b/runs/a";
  const Strings json = {"eval",      "--data-dir", "s3://b/mnist",
                        "--log-dir", run,          "--json"};
  const Outcome there = RunMnist(json);
  RequireRuns(there);
  const Outcome here = RunMnist({"eval", "--data-dir", MnistData().path(),
                                 "--log-dir", folder / "log", "--json"});
  CHECK(testing::LastObject(there.out)["accuracy"] ==
        testing::LastObject(here.out)["accuracy"]);
  RequireRuns(RunMnist({"eval", "--data-dir", "s3://b/mnist", "--log-dir", run,
                        "--report", "s3://b/pages/eval.html"}));
  CHECK(Contains(store.Get("pages/eval.html").bytes, "<html"));
  RequireRuns(RunMnist(
      {"export", "--log-dir", run, "--output", "s3://b/exported/digits"}));
  CHECK(store.Has("exported/digits/weights.safetensors"));
  const Outcome predicted =
      RunMnist({"predict", "--data-dir", "s3://b/mnist", "--from",
                "s3://b/exported/digits", "--count", "5", "--csv"});
  RequireRuns(predicted);
  CHECK(predicted.out ==
        RunMnist({"predict", "--data-dir", MnistData().path(), "--log-dir",
                  folder / "log", "--count", "5", "--csv"})
            .out);
  const std::string tool = SLUICE_BIN_DIR "/sluice";
  RequireRuns(RunProgram(tool, {"inspect", run + "/checkpoint-200.safetensors",
                                folder / "log/checkpoint-200.safetensors"}));
  const Outcome report = RunProgram(
      tool, {"report", run, folder / "log", "--output", "s3://b/both.html"});
  RequireRuns(report);
  CHECK(Contains(report.out, "wrote s3://b/both.html: 2 runs"));
  RequireRuns(RunProgram(tool, {"report", run, "--output", "s3://b/one.html"}));
  CHECK(Contains(store.Get("one.html").bytes, run));

  // From its weights, with a trace.
  RequireRuns(RunMnist(
      Train("s3://b/mnist", "s3://b/runs/tuned",
            {"--max-steps", "5", "--weights",
             run + "/checkpoint-200.safetensors", "--profile", "steps=2:3"})));
  CHECK(store.Has("runs/tuned/checkpoint-5.safetensors"));
  CHECK(Contains(store.Get("runs/tuned/trace-2-3.json").bytes, "traceEvents"));
}

#if SLUICE_HAVE_PNG
TEST_CASE("mnist in a store: a picture that is refused leaves the others") {
  if (!KnowsStores()) return;
  ObjectStore store;
  const StoreSettings settings(store);
  const TemporaryFolder folder;
  RequireRuns(RunMnist(testing::OnMnist(
      "train", {"--steps", "2", "--log-dir", folder / "log"})));
  const std::string png =
      EncodePng(Tensor::Full(DType::kUInt8, {28, 28, 3}, 200)).ValueOrThrow();
  const std::string local = folder / "good.png";
  std::ofstream(local, std::ios::binary) << png;
  const std::string good = "s3://b/good.png", refused = "s3://b/refused.png";
  store.Put("good.png", png);
  store.Put("refused.png", png);
  store.Fail([](const testing::ServedRequest& request, int) {
    return request.target == "/b/refused.png" ? testing::StoreFault::kForbidden
                                              : testing::StoreFault::kNone;
  });
  const auto predict = [&](const Strings& files) {
    Strings arguments = {"predict", "--log-dir", folder / "log", "--csv"};
    arguments.insert(arguments.end(), files.begin(), files.end());
    return RunMnist(arguments);
  };
  const Outcome here = predict({local});
  RequireRuns(here);
  const Strings wanted = CsvRowsOf(local, here.out);
  REQUIRE(wanted.size() == 5);
  const Outcome there = predict({refused, good});
  CHECK_MESSAGE(there.code == 1, there.err);
  CHECK(CsvRowsOf(good, there.out) == wanted);
  const Strings errors = CsvRowsOf(refused, there.out);
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].starts_with(",,,,,"));
  CHECK(Contains(errors[0], "permission denied"));
}
#endif

TEST_CASE("mnist in a store: it says for whom it waits") {
  if (!KnowsStores()) return;
  ObjectStore store;
  const StoreSettings settings(store);
  store.Put("run/training.lock",
            R"({"format": "sluice.lease", "version": 1, "id": "7",)"
            R"( "holder": "process 7 on there", "seconds": 60})");
  const Process process(
      kMnist, Train(MnistData().path(), "s3://b/run", {"--max-steps", "5"}));
  testing::AwaitTrue([&] {
    return process.err().find(
               "'s3://b/run' is locked by process 7 on there; if that has "
               "ended, this goes on within ") != std::string::npos;
  });
  store.SetClock(kPastLease);
  CHECK(process.Wait() == 0);
  CAPTURE(process.err());
  CHECK(store.Has("run/checkpoint-5.safetensors"));
}

TEST_CASE("mnist in a store: of two trainings in one folder the second ends") {
  if (!KnowsStores()) return;
  ObjectStore store;
  const StoreSettings settings(store);
  Upload(store, MnistData().path(), "mnist");
  const Process first(
      kMnist, Train("s3://b/mnist", "s3://b/run", {"--epochs", "100000"}));
  for (int i = 0; i < 30000 && !store.Has("run/checkpoint-10.safetensors");
       ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CheckMnistError(
      RunMnist(Train("s3://b/mnist", "s3://b/run", {"--max-steps", "5"})), 1,
      "'s3://b/run' belongs to a training that is under way (process ");
  // Somebody takes its lease: it ends by itself, and writes nothing more.
  store.Put("run/training.lock",
            R"({"format": "sluice.lease", "version": 1, "id": "7",)"
            R"( "holder": "process 2 on there", "seconds": 1000})");
  CHECK(first.Wait() == 1);
  CHECK(Contains(first.err(), "the lock of 's3://b/run' was lost"));
  CHECK(Contains(first.err(), "process 2 on there"));
  CHECK(Contains(store.Get("run/training.lock").bytes, "process 2 on there"));
}

}  // namespace
}  // namespace sluice
