// The evaluator of TF_CONFIG, and eval --follow: they evaluate what a training
// saves, whenever that begins, and end with it.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/checkpoints/checkpoint.h"
#include "models/cli/run_record.h"
#include "tests/support/await.h"
#include "tests/support/config_jobs.h"
#include "tests/support/error_text.h"
#include "tests/support/last_object.h"
#include "tests/support/mnist_program.h"
#include "tests/support/newest_tensors.h"

namespace sluice {
namespace {

using testing::AwaitTrue;
using testing::Contains;
using testing::Joined;
using testing::LastObject;
using testing::OnMnist;
using testing::Outcome;
using testing::Process;
using testing::RunMnist;
using testing::TemporaryFolder;
using testing::Words;

// What TensorFlow's evaluator is told: a cluster that it is no part of.
std::unique_ptr<Process> Evaluator(const Words& flags,
                                   const Words& variables = {}) {
  const Words config = {
      R"(TF_CONFIG={"cluster": {"chief": ["h:1"], "worker": ["h:2"]},
          "task": {"type": "evaluator", "index": 0}})"};
  return testing::TrainWithVariables(Joined(config, variables), flags);
}

// Results that were printed, by the steps that they are of.
std::vector<int64_t> StepsOf(const std::string& out) {
  std::vector<int64_t> steps;
  const std::string key = "\"steps\":";
  for (size_t at = 0; (at = out.find(key, at)) != std::string::npos;) {
    at += key.size();
    steps.push_back(std::stoll(out.substr(at)));
  }
  return steps;
}

double AccuracyIn(const std::string& line) {
  const std::string key = "\"test_accuracy\":";
  const size_t at = line.rfind(key);
  REQUIRE(at != std::string::npos);
  return std::stod(line.substr(at + key.size()));
}

TEST_CASE("an evaluator evaluates what is saved, and ends with the training") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  const auto evaluator = Evaluator({"--log-dir", log, "--json"});
  const auto training = [&](const Words& more) {
    return OnMnist("train",
                   Joined({"--log-dir", log, "--epochs", "100000", "--json",
                           "--save-every", "50", "--evaluate-every", "0"},
                          more));
  };
  // A training that is interrupted has not ended.
  const Process begun(testing::kMnist, training({"--log-every", "5"}));
  REQUIRE(begun.WaitFor("\"step\":120,"));
  kill(begun.pid(), SIGINT);
  CHECK(begun.Wait() == 128 + SIGINT);
  REQUIRE(evaluator->WaitFor("\"event\":\"result\""));
  const int64_t last = testing::SavedStep(log) + 200;
  const Outcome rest =
      RunMnist(training({"--max-steps", std::to_string(last)}));
  CAPTURE(rest.err);
  REQUIRE(rest.code == 0);
  CHECK(evaluator->Wait() == 0);
  CAPTURE(evaluator->err());
  const std::vector<int64_t> steps = StepsOf(evaluator->out());
  CHECK(steps.size() >= 2);
  CHECK(std::is_sorted(steps.begin(), steps.end()));
  CHECK(steps.back() == last);
  CHECK(AccuracyIn(evaluator->out()) == AccuracyIn(rest.out));
  // TensorBoard's, in a folder of their own.
  CHECK(!std::filesystem::is_empty(log + "/evaluator"));
  // The same by hand, of one that has ended.
  const Outcome follow =
      RunMnist({"eval", "--log-dir", log, "--follow", "--json"});
  CAPTURE(follow.err);
  CHECK(follow.code == 0);
  CHECK(StepsOf(follow.out) == std::vector<int64_t>{last});
}

TEST_CASE("an evaluator without a folder, or that is told to end, does") {
  const auto lost = Evaluator({});
  CHECK(lost->Wait() == 1);
  CHECK(Contains(lost->err(), "wants its --log-dir"));
  const TemporaryFolder folder;
  const auto evaluator = Evaluator({"--log-dir", folder / "none"});
  AwaitTrue([&] { return testing::MnistHandles(evaluator->pid(), SIGTERM); });
  kill(evaluator->pid(), SIGTERM);
  CHECK(evaluator->Wait() == 128 + SIGTERM);
}

TEST_CASE("an evaluator does not evaluate the batches that are overfitted") {
  const TemporaryFolder folder;
  const auto evaluator =
      Evaluator({"--log-dir", folder / "log", "--overfit-batches", "2"});
  CHECK(evaluator->Wait(std::chrono::seconds(30)) == 1);
  CHECK(Contains(evaluator->err(), "mnist: --overfit-batches: an evaluator "));
}

// With these flags, to its end.
Outcome Train(const std::string& log, const Words& more,
              const std::string& model = "mlp") {
  Outcome outcome = RunMnist(
      OnMnist("train", Joined({"--log-dir", log, "--json"}, more), model));
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  return outcome;
}

// Longer than whoever has nothing to wait for takes to end.
void Pause() {
  std::this_thread::sleep_for(std::chrono::seconds(1));
}

TEST_CASE("an evaluator takes no earlier training's end for the one's") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  Train(log, {"--epochs", "2"});
  const auto evaluator =
      Evaluator({"--log-dir", log, "--json", "--epochs", "4"});
  REQUIRE(evaluator->WaitFor("\"event\":\"result\""));
  // A backup of what is evaluated makes no other of it.
  std::filesystem::create_hard_link(
      CheckpointManager::ForReading(log).PathOf(20), folder / "backup");
  Pause();
  CHECK(testing::StateOf(evaluator->pid()) != 'Z');
  Train(log, {"--epochs", "4"});
  CHECK(evaluator->Wait() == 0);
  CHECK(StepsOf(evaluator->out()).back() == 40);
  // One that does not go on is waited for as processes of a job are.
  const auto alone =
      Evaluator({"--log-dir", log, "--json", "--join-timeout", "1"});
  CHECK(alone->Wait(std::chrono::seconds(30)) == 0);
  CHECK(StepsOf(alone->out()) == std::vector<int64_t>{40});
}

TEST_CASE("an evaluator waits for a training that is long in beginning") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  Train(log, {"--epochs", "2"});
  // Another has come together, and no further.
  REQUIRE(NoteBegin(log));
  const auto evaluator =
      Evaluator({"--log-dir", log, "--json", "--join-timeout", "0.1"});
  REQUIRE(evaluator->WaitFor("\"event\":\"result\""));
  Pause();
  CHECK(testing::StateOf(evaluator->pid()) != 'Z');
  Train(log, {"--epochs", "4"});
  CHECK(evaluator->Wait() == 0);
  CHECK(StepsOf(evaluator->out()).back() == 40);
}

TEST_CASE("an evaluator tells a training that began anew from the one before") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  Train(log, {"--epochs", "2"});
  const auto evaluator =
      Evaluator({"--log-dir", log, "--json", "--epochs", "2"});
  REQUIRE(evaluator->WaitFor("\"event\":\"result\""));
  const Outcome anew =
      Train(log, {"--restart", "--seed", "2", "--learning-rate", "0.02",
                  "--epochs", "2", "--evaluate-every", "0"});
  CHECK(evaluator->Wait() == 0);
  CAPTURE(evaluator->err());
  const std::vector<int64_t> steps = StepsOf(evaluator->out());
  CHECK(steps.size() >= 2);
  for (const int64_t step : steps) CHECK(step == 20);
  CHECK(AccuracyIn(evaluator->out()) == AccuracyIn(anew.out));
}

TEST_CASE("an evaluator leaves out what its training is to set aside") {
  const Words flags = {"--epochs", "2", "--evaluate-every", "0",
                       "--deterministic"};
  // Another model, other values of the same one, and the very same ones.
  const std::pair<const char*, const char*> kBefore[] = {
      {"softmax", "1"}, {"mlp", "2"}, {"mlp", "1"}};
  for (const auto& [model, seed] : kBefore) {
    CAPTURE(model);
    CAPTURE(seed);
    const TemporaryFolder folder;
    const std::string log = folder / "log";
    Train(log, Joined(flags, {"--seed", seed}), model);
    // The next has come together, and no further: it is waited for.
    REQUIRE(NoteBegin(log));
    const Words anew = Joined(flags, {"--restart"});
    const auto evaluator = Evaluator(
        Joined({"--log-dir", log, "--json", "--join-timeout", "1"}, anew));
    AwaitTrue([&] { return testing::MnistHandles(evaluator->pid(), SIGTERM); });
    const auto trained = LastObject(Train(log, anew).out);
    CHECK(evaluator->Wait() == 0);
    CAPTURE(evaluator->err());
    int results = 0;
    for (const auto& event : testing::Objects(evaluator->out())) {
      if (event.value("event", "") != "result") continue;
      ++results;
      for (const char* key : {"model", "steps", "test_accuracy"}) {
        CHECK(event[key] == trained[key]);
      }
    }
    CHECK(results == 1);
  }
}

TEST_CASE("an evaluator that comes when its training has begun anew") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  Train(log, {"--epochs", "2"}, "softmax");
  const Words job = {"SLUICE_JOB=one"};
  const Words flags = {"--log-dir", log, "--json",
                       "--epochs",  "2", "--restart"};
  const auto train = testing::TrainWithVariables(job, flags);
  REQUIRE(train->Wait() == 0);
  const double accuracy = AccuracyIn(train->out());
  // By its job's name it knows that this is no other's.
  const auto told = Evaluator(flags, job);
  REQUIRE(told->WaitFor("\"event\":\"result\""));
  told->Kill(SIGTERM);
  CHECK(told->Wait() == 128 + SIGTERM);
  CHECK(AccuracyIn(told->out()) == accuracy);
  // Without it, when no other has come.
  const auto late = Evaluator(Joined(flags, {"--join-timeout", "0.1"}));
  CHECK(late->Wait() == 0);
  CAPTURE(late->err());
  CHECK(StepsOf(late->out()) == std::vector<int64_t>{20});
  CHECK(AccuracyIn(late->out()) == accuracy);
}

#if SLUICE_HAVE_PROTOBUF
TEST_CASE("an evaluator's events are of one training") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  Train(log, {"--epochs", "2"});
  const auto evaluator =
      Evaluator({"--log-dir", log, "--json", "--epochs", "3"});
  REQUIRE(evaluator->WaitFor("\"event\":\"result\""));
  Train(log, {"--epochs", "3", "--restart"});
  CHECK(evaluator->Wait() == 0);
  CHECK(StepsOf(evaluator->out()).back() == 30);
  for (const std::string& training : {log + "/previous-1", log}) {
    CAPTURE(training);
    CHECK(!std::filesystem::is_empty(training + "/evaluator"));
  }
}
#endif

TEST_CASE("who follows a training from before its beginning goes by its data") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  const Words follow = {"eval", "--follow", "--json", "--log-dir"};
  const Process follower(testing::kMnist, Joined(follow, {log}));
  const Process interrupted(testing::kMnist, Joined(follow, {folder / "none"}));
  Pause();
  const auto trained = LastObject(Train(log, {"--epochs", "2"}).out);
  CHECK(follower.Wait() == 0);
  CAPTURE(follower.err());
  const auto followed = LastObject(follower.out());
  for (const char* key : {"model", "dataset", "steps", "test_accuracy"}) {
    CHECK(followed[key] == trained[key]);
  }
  AwaitTrue([&] { return testing::MnistHandles(interrupted.pid(), SIGINT); });
  interrupted.Kill(SIGINT);
  CHECK(interrupted.Wait() == 128 + SIGINT);
}

}  // namespace
}  // namespace sluice
