// The mnist program when it is interrupted, killed, not listened to and not
// alone: what was trained is not lost.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <map>
#include <random>

#include "io/checkpoints/checkpoint.h"
#include "io/summaries/event_file.h"
#include "models/train/hooks/scalar_log.h"
#include "tests/support/await.h"
#include "tests/support/error_text.h"
#include "tests/support/last_object.h"
#include "tests/support/mnist_program.h"
#include "tests/support/newest_tensors.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
using testing::AwaitTrue;
using testing::CheckMnistError;
using testing::Contains;
using testing::kMnist;
using testing::LastObject;
using testing::Lines;
using testing::MnistHandles;
using testing::OnMnist;
using testing::Outcome;
using testing::Process;
using testing::RunMnist;
using testing::TemporaryFolder;

TEST_CASE(
    "SIGTERM, Ctrl-C and a closed terminal save and end; the next run "
    "resumes") {
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) {
    TemporaryFolder folder;
    const std::vector<std::string> train = OnMnist(
        "train", {"--epochs", "100000", "--json", "--log-every", "1",
                  "--evaluate-every", "0", "--log-dir", folder / "log"});
    const Process process(kMnist, train);
    REQUIRE(process.WaitFor("\"step\":5,"));
    process.Kill(signal);
    CHECK(process.Wait() == 128 + signal);
    CHECK(Contains(process.err(), "saved "));
    const Json last = LastObject(process.out());
    CHECK(last["event"] == "interrupted");
    const int64_t step = last["steps"];
    CHECK(step >= 5);

    std::vector<std::string> resume = train;
    resume.insert(resume.end(), {"--max-steps", std::to_string(step + 1)});
    const Outcome resumed = RunMnist(resume);
    CHECK(resumed.code == 0);
    CHECK(
        Contains(resumed.err, fmt::format("resuming from step {} of ", step)));
  }
}

TEST_CASE("a second signal ends at once and says so") {
  for (const auto& [first, second] :
       {std::pair(SIGTERM, SIGINT), {SIGTERM, SIGTERM}, {SIGHUP, SIGTERM}}) {
    TemporaryFolder folder;
    const std::string pipe = folder / "pipe";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    std::vector<std::string> shell = {"-c", "exec \"$0\" \"$@\" > " + pipe,
                                      kMnist};
    for (const std::string& argument :
         OnMnist("train", {"--epochs", "100000", "--json", "--log-every", "1",
                           "--save-every", "1", "--log-dir", folder / "log"})) {
      shell.push_back(argument);
    }
    const Process process("/bin/sh", shell);
    const int reader = open(pipe.c_str(), O_RDONLY);
    REQUIRE(reader >= 0);
    const auto pause = [] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    };
    const auto wait_for = [&](const std::string& text) {
      for (int i = 0; i < 200; ++i, pause()) {
        if (process.err().find(text) != std::string::npos) return;
      }
      FAIL("not said: ", text);
    };
    wait_for("step 9/");
    // Nobody empties the pipe, and with it full nothing is written any more,
    // not even the last word of a training that ends: however slow all is, this
    // one is under way when the second signal comes.
    const int writer = open(pipe.c_str(), O_WRONLY | O_NONBLOCK);
    REQUIRE(writer >= 0);
    while (write(writer, "\n", 1) == 1) {
    }
    REQUIRE(errno == EAGAIN);
    process.Kill(first);
    wait_for("saving after this step");
    pause();  // two that come at once are one
    process.Kill(second);
    // One of each may be what ends a session.
    for (int more = 0; first == SIGHUP && more < 3; ++more) {
      pause();
      process.Kill(second);
    }
    CHECK(process.Wait() == -second);
    close(writer);
    close(reader);
    CHECK(Contains(process.err(), "ending at once"));
    // What was saved before is there.
    const auto newest = CheckpointManager::ForReading(folder / "log")
                            .RestoreNewest()
                            .ValueOrThrow();
    REQUIRE(newest);
    CHECK(newest->warnings.empty());
  }
}

TEST_CASE("nohup: a closed terminal does not matter") {
  TemporaryFolder folder;
  std::vector<std::string> shell = {"-c", "trap '' HUP; exec \"$@\"", "sh",
                                    kMnist};
  for (const std::string& argument :
       OnMnist("train", {"--steps", "300", "--json", "--log-every", "1",
                         "--log-dir", folder / "log"})) {
    shell.push_back(argument);
  }
  const Process process("/bin/sh", shell);
  REQUIRE(process.WaitFor("\"step\":5,"));
  process.Kill(SIGHUP);
  CHECK(process.Wait() == 0);
  CHECK(LastObject(process.out())["steps"] == 300);
}

// Runs a line of sh with the program as $0 and the arguments as $@.
Outcome Shell(const std::string& line, const std::vector<std::string>& with) {
  std::vector<std::string> arguments = {"-c", line, kMnist};
  arguments.insert(arguments.end(), with.begin(), with.end());
  return testing::RunProgram("/bin/sh", arguments);
}

TEST_CASE("who stops reading does not end a training") {
  TemporaryFolder folder;
  const auto train = OnMnist("train", {"--steps", "60", "--json", "--log-every",
                                       "1", "--log-dir", folder / "log"});
  const Outcome outcome =
      Shell("{ \"$0\" \"$@\"; echo code $? >&2; } | head -n 3", train);
  CHECK(Lines(outcome.out) == 3);
  CHECK(Contains(outcome.err, "code 0"));
  CHECK(Contains(outcome.err, "nobody reads stdout"));
  CHECK(CheckpointManager::ForReading(folder / "log").Steps()->back() == 60);
  // Neither output is read.
  const auto more = OnMnist("train", {"--steps", "90", "--json", "--log-every",
                                      "1", "--log-dir", folder / "log"});
  Shell("\"$0\" \"$@\" 2>&1 | head -n 1", more);
  CHECK(CheckpointManager::ForReading(folder / "log").Steps()->back() == 90);
}

TEST_CASE("results that cannot be printed are an error") {
  TemporaryFolder folder;
  REQUIRE(
      RunMnist(OnMnist("train", {"--steps", "5", "--log-dir", folder / "log"}))
          .code == 0);
  for (const char* command : {"eval", "predict"}) {
    const Outcome full =
        Shell("\"$0\" \"$@\" > /dev/full",
              OnMnist(command, {"--json", "--log-dir", folder / "log"}));
    CHECK(full.code == 1);
    CHECK(Contains(full.err, "No space left"));
  }
}

TEST_CASE("wrong usage that cannot be said is wrong usage") {
  CHECK(Shell("\"$0\" \"$@\" 2>&-", {"train", "--nope"}).code == 2);
}

TEST_CASE("where streams are closed nothing is printed into the files") {
  for (const char* closed : {"<&- >&- 2>&-", ">&- 2>&-"}) {
    CAPTURE(closed);
    const TemporaryFolder folder;
    const std::string log = folder / "log";
    const Outcome outcome =
        Shell(fmt::format("\"$0\" \"$@\" {}", closed),
              OnMnist("train", {"--steps", "60", "--json", "--log-every", "1",
                                "--evaluate-every", "2", "--log-dir", log}));
    CHECK(outcome.code == 1);  // as the results cannot be printed
    CHECK(CheckpointManager::ForReading(log).Steps()->back() == 60);
    CHECK(ReadScalars(log).ok());
#if SLUICE_HAVE_PROTOBUF
    for (const char* part : {"train", "eval"}) {
      for (const auto& entry :
           std::filesystem::directory_iterator(log + "/" + part)) {
        const EventFile events =
            ReadEvents(entry.path().string()).ValueOrThrow();
        CHECK(events.warning == "");
      }
    }
#endif
  }
}

TEST_CASE("a benchmark that is interrupted ends as other commands do") {
  const Process process(kMnist, OnMnist("bench", {"--steps", "1000000000"}));
  AwaitTrue([&] { return MnistHandles(process.pid(), SIGINT); });
  process.Kill(SIGINT);
  CHECK(process.Wait() == 128 + SIGINT);
  CHECK(process.out() == "");
}

// Whose first step, or training, has more batches than anyone waits for.
TEST_CASE("a trial that is interrupted does not say that it saves") {
  for (const char* trial : {"--find-rate", "--fast-dev-run"}) {
    CAPTURE(trial);
    const TemporaryFolder folder;
    const Process process(
        kMnist,
        OnMnist("train", {"--log-dir", folder / "log", "--epochs", "1000000",
                          "--accumulate", "1000000", trial}));
    AwaitTrue([&] { return MnistHandles(process.pid(), SIGINT); });
    process.Kill(SIGINT);
    CHECK(process.Wait() == 128 + SIGINT);
    CHECK(Contains(process.err(), "\nending\n"));
    CHECK(process.err().find("saving") == std::string::npos);
    CHECK(!std::filesystem::exists(folder / "log"));
  }
}

// The bytes of all tensors of the newest checkpoint, which is of `step`.
std::map<std::string, std::string> Tensors(const std::string& log_dir,
                                           int64_t step) {
  const auto newest =
      CheckpointManager::ForReading(log_dir).RestoreNewest().ValueOrThrow();
  CHECK(newest->checkpoint.state.step == step);
  std::map<std::string, std::string> bytes;
  for (const auto& [name, tensor] : newest->checkpoint.tensors) {
    bytes[name].assign(static_cast<const char*>(tensor.raw()), tensor.bytes());
  }
  return bytes;
}

TEST_CASE("killed again and again while it saves, it loses next to nothing") {
  TemporaryFolder folder;
  const auto train = [&](const std::string& log,
                         const std::vector<std::string>& more) {
    std::vector<std::string> arguments =
        OnMnist("train",
                {"--deterministic", "--threads", "1", "--steps", "1000000",
                 "--evaluate-every", "0", "--log-dir", folder / log},
                "softmax");
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  // As many as fit into a while, where programs start slowly.
  constexpr int kKills = 100;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(90);
  std::mt19937 random(7);
  int64_t step = 0;
  int under_way = 0;
  for (int kill = 0; kill < kKills && std::chrono::steady_clock::now() < end;
       ++kill) {
    const Process process(kMnist,
                          train("killed", {"--save-every", "1", "--json"}));
    // Before the first save, and, however slow the machine, beside some.
    REQUIRE(process.WaitFor(random() % 2 != 0 ? "\"event\":\"start\""
                                              : "\"event\":\"first_step\""));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 100000));
    process.Kill(SIGKILL);
    if (process.Wait() == -SIGKILL) ++under_way;
    const auto newest = CheckpointManager::ForReading(folder / "killed")
                            .RestoreNewest()
                            .ValueOrThrow();
    if (!newest) continue;
    CHECK(newest->warnings.empty());
    CHECK(newest->checkpoint.state.step >= step);
    step = newest->checkpoint.state.step;
  }
  MESSAGE("killed ", under_way, " times under way, then at step ", step);
  CHECK(under_way > 0);
  // And then goes on as if nothing had been.
  const std::string last = std::to_string(step + 30);
  CHECK(RunMnist(train("killed", {"--max-steps", last})).code == 0);
  CHECK(RunMnist(train("whole", {"--max-steps", last})).code == 0);
  CHECK(Tensors(folder / "killed", step + 30) ==
        Tensors(folder / "whole", step + 30));
}

TEST_CASE("half precision goes on bit for bit after stops in the middle") {
  TemporaryFolder folder;
  const auto train = [&](const std::string& log,
                         const std::vector<std::string>& more) {
    std::vector<std::string> arguments =
        OnMnist("train",
                {"--precision", "fp16", "--batch-size", "20", "--deterministic",
                 "--steps", "1000000", "--json", "--log-every", "1",
                 "--save-every", "7", "--log-dir", folder / log},
                "cnn");
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  // It stops where the signal finds it; a killed one goes on from its last
  // save. The numbers of threads differ, too.
  std::mt19937 random(11);
  int64_t at = 0;
  for (const int signal : {SIGINT, SIGKILL, SIGTERM, SIGKILL}) {
    at += 2 + static_cast<int64_t>(random() % 6);
    const Process process(
        kMnist,
        train("parts", {"--threads", std::to_string(1 + random() % 3)}));
    REQUIRE(process.WaitFor(fmt::format("\"step\":{},", at)));
    process.Kill(signal);
    process.Wait();
    // Where the signal came late more was done, and nobody does that again.
    at = std::max(at, testing::SavedStep(folder / "parts"));
  }
  const int64_t last = at + 15;
  const std::vector<std::string> to_last = {"--max-steps",
                                            std::to_string(last)};
  const Outcome rest = RunMnist(train("parts", to_last));
  CHECK(rest.code == 0);
  CHECK(Contains(rest.err, "resuming from step "));
  REQUIRE(RunMnist(train("whole", to_last)).code == 0);
  const auto whole = Tensors(folder / "whole", last);
  CHECK(whole.contains("loss_scale/scale"));
  CHECK(Tensors(folder / "parts", last) == whole);
}

TEST_CASE("a folder has one training, and readers do not disturb it") {
  TemporaryFolder folder;
  const std::string log = folder / "log";
  // Saves several times a second.
  const std::vector<std::string> train =
      OnMnist("train", {"--epochs", "100000", "--evaluate-every", "1", "--json",
                        "--log-dir", log});
  const Process process(kMnist, train);
  // What one evaluation has judged is saved before the next.
  REQUIRE(process.WaitFor("\"step\":30,"));
  for (int i = 0; i < 8; ++i) {
    const char* command = i % 4 == 3 ? "predict" : "eval";
    const Outcome beside = RunMnist(OnMnist(command, {"--log-dir", log}));
    CHECK(beside.code == 0);
    CHECK(!Contains(beside.err, "cannot be used"));
  }
  CheckMnistError(RunMnist(train), 1,
                  "belongs to a training that is under way (process ");
  std::vector<std::string> anew = train;
  anew.emplace_back("--restart");
  CheckMnistError(RunMnist(anew), 1, "belongs to a training that is under way");
  REQUIRE(waitpid(-1, nullptr, WNOHANG) == 0);  // it goes on

  // A killed one leaves nothing that would refuse the next.
  process.Kill(SIGKILL);
  CHECK(process.Wait() == -SIGKILL);
  const auto steps = CheckpointManager::ForReading(log).Steps().ValueOrThrow();
  REQUIRE(!steps.empty());
  std::vector<std::string> resume = train;
  resume.insert(resume.end(),
                {"--max-steps", std::to_string(steps.back() + 1)});
  const Outcome resumed = RunMnist(resume);
  CHECK(resumed.code == 0);
  CHECK(Contains(resumed.err, "resuming from step "));
}

}  // namespace
}  // namespace sluice
