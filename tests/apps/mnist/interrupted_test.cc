// The mnist program when it is interrupted, killed, not listened to and not
// alone: what was trained is not lost.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>

#include "io/checkpoints/checkpoint.h"
#include "io/summaries/event_file.h"
#include "models/train/hooks/scalar_log.h"
#include "tests/support/await.h"
#include "tests/support/error_text.h"
#include "tests/support/last_object.h"
#include "tests/support/mnist_program.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
using testing::AwaitTrue;
using testing::CheckMnistError;
using testing::Contains;
using testing::kMnist;
using testing::LastObject;
using testing::Lines;
using testing::OnMnist;
using testing::Outcome;
using testing::Process;
using testing::RunMnist;
using testing::TemporaryFolder;
using testing::TextOf;

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
    // Training stands still once nobody empties the pipe.
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
    for (size_t before = 0; process.err().size() > before; pause()) {
      before = process.err().size();
      pause();
    }
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

// Whether it is the mnist program by now, and has a handler for the signal.
bool MnistHandles(pid_t process, int signal) {
  const std::string key = "SigCgt:";
  const std::string status = TextOf(fmt::format("/proc/{}/status", process));
  std::istringstream lines(status);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const auto caught = std::stoull(line.substr(key.size()), nullptr, 16);
    return status.starts_with("Name:\tmnist\n") &&
           ((caught >> (signal - 1)) & 1) != 0;
  }
  return false;
}

TEST_CASE("a benchmark that is interrupted ends as other commands do") {
  const Process process(kMnist, OnMnist("bench", {"--steps", "1000000000"}));
  AwaitTrue([&] { return MnistHandles(process.pid(), SIGINT); });
  process.Kill(SIGINT);
  CHECK(process.Wait() == 128 + SIGINT);
  CHECK(process.out() == "");
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
  constexpr int64_t kSteps = 36;
  const auto train = [&](const std::string& log) {
    return OnMnist(
        "train",
        {"--precision", "fp16", "--batch-size", "20", "--deterministic",
         "--steps", std::to_string(kSteps), "--json", "--log-every", "1",
         "--save-every", "7", "--log-dir", folder / log},
        "cnn");
  };
  REQUIRE(RunMnist(train("whole")).code == 0);
  // It stops where the signal finds it; a killed one goes on from its last
  // save. The numbers of threads differ, too.
  std::mt19937 random(11);
  int64_t at = 0;
  for (const int signal : {SIGINT, SIGKILL, SIGTERM, SIGKILL}) {
    at += 2 + static_cast<int64_t>(random() % 6);
    std::vector<std::string> arguments = train("parts");
    arguments.insert(arguments.end(),
                     {"--threads", std::to_string(1 + random() % 3)});
    const Process process(kMnist, arguments);
    REQUIRE(process.WaitFor(fmt::format("\"step\":{},", at)));
    process.Kill(signal);
    process.Wait();
  }
  const Outcome rest = RunMnist(train("parts"));
  CHECK(rest.code == 0);
  CHECK(Contains(rest.err, "resuming from step "));
  const auto whole = Tensors(folder / "whole", kSteps);
  CHECK(whole.contains("loss_scale/scale"));
  CHECK(Tensors(folder / "parts", kSteps) == whole);
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
