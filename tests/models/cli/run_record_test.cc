// What a training was started with need not be told again.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "io/checkpoints/checkpoint.h"
#include "models/cli/run_record.h"
#include "tests/places.h"
#include "tests/support/error_text.h"
#include "tests/support/last_object.h"
#include "tests/support/mnist_program.h"
#include "tests/support/newest_tensors.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
using testing::CheckMnistError;
using testing::CheckSameTensors;
using testing::Contains;
using testing::kMnist;
using testing::LastObject;
using testing::MnistData;
using testing::NewestTensors;
using testing::OnMnist;
using testing::Outcome;
using testing::RunMnist;
using testing::RunProgram;
using testing::TemporaryFolder;
using testing::TextOf;

TEST_CASE("eval, predict, export and resume know the model and the data") {
  TemporaryFolder folder;
  const std::string log = folder / "log";
  REQUIRE(RunMnist(OnMnist("train", {"--steps", "20", "--batch-size", "50",
                                     "--log-dir", log}))
              .code == 0);
  const Outcome with = RunMnist(OnMnist("eval", {"--json", "--log-dir", log}));
  const Outcome without = RunMnist({"eval", "--json", "--log-dir", log});
  CHECK(without.code == 0);
  for (const char* key : {"model", "dataset", "steps", "test_accuracy"}) {
    CHECK(LastObject(without.out)[key] == LastObject(with.out)[key]);
  }
  CHECK(RunMnist({"predict", "--log-dir", log}).out ==
        RunMnist(OnMnist("predict", {"--log-dir", log})).out);
  CHECK(RunMnist({"export", "--log-dir", log}).code == 0);

  const Outcome resumed =
      RunMnist({"train", "--json", "--log-dir", log, "--steps", "30"});
  CHECK(resumed.code == 0);
  CHECK(Contains(resumed.err, "resuming from step 20"));
  CHECK(LastObject(resumed.out)["model"] == "mlp");
  CHECK(Contains(resumed.out, "\"batch_size\":50"));
  const Outcome done = RunMnist({"train", "--log-dir", log});
  CHECK(done.code == 0);
  CHECK(Contains(done.err, "nothing is left to do: all 30 steps"));

  // --restart begins with a clean slate.
  const Outcome anew =
      RunMnist({"train", "--json", "--log-dir", log, "--restart", "--steps",
                "1", "--model", "softmax", "--data-dir", MnistData().path()});
  CHECK(anew.code == 0);
  CHECK(Contains(anew.out, "\"batch_size\":100"));
}

TEST_CASE("flags that differ are said and hold") {
  TemporaryFolder folder;
  const std::string log = folder / "log";
  REQUIRE(RunMnist(OnMnist("train", {"--steps", "3", "--log-dir", log})).code ==
          0);
  const testing::IdxFolder other(20, 7);
  const Outcome eval =
      RunMnist({"eval", "--log-dir", log, "--data-dir", other.path()});
  CHECK(eval.code == 0);
  CHECK(Contains(eval.out, "(7 examples)"));
  CHECK(Contains(eval.err, "--data-dir is " + other.path()));
  const Outcome model =
      RunMnist({"eval", "--log-dir", log, "--model", "softmax"});
  CHECK(model.code == 1);
  CHECK(Contains(model.err, "--model is softmax"));
  CHECK(Contains(model.err, "had mlp"));
  CHECK(Contains(model.err, "does not fit this model"));
}

TEST_CASE("the record of a relative folder holds elsewhere, too") {
  TemporaryFolder folder;
  const std::filesystem::path data = MnistData().path();
  const std::string line = fmt::format(
      "cd {} && \"$0\" train --data-dir {} --model mlp --steps 2 --log-dir "
      "{}",
      data.parent_path().string(), data.filename().string(), folder / "log");
  REQUIRE(RunProgram("/bin/sh", {"-c", line, kMnist}).code == 0);
  CHECK(RunMnist({"eval", "--log-dir", folder / "log"}).code == 0);
}

TEST_CASE("a word is no path, though there is a folder of that name") {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "synthetic");
  const std::string line = fmt::format(
      "cd {} && {}/resnet50 train --data synthetic --model resnet20 --steps 1 "
      "--batch-size 4 --log-dir log",
      folder.path(), SLUICE_BIN_DIR);
  REQUIRE(RunProgram("/bin/sh", {"-c", line}).code == 0);
  CHECK(RunProgram(SLUICE_BIN_DIR "/resnet50",
                   {"eval", "--log-dir", folder / "log"})
            .code == 0);
}

TEST_CASE("a record that is none, or another program's, is told") {
  TemporaryFolder folder;
  const std::string log = folder / "log";
  REQUIRE(RunMnist(OnMnist("train", {"--steps", "3", "--log-dir", log})).code ==
          0);
  const Outcome other =
      RunProgram(SLUICE_BIN_DIR "/resnet50", {"eval", "--log-dir", log});
  CHECK(other.code == 1);
  CHECK(Contains(other.err, "holds a training of mnist, not of resnet50"));

  const std::string good = TextOf(log + "/run.json");
  std::mt19937 random(5);
  for (int round = 0; round < 16; ++round) {
    std::string bad = good;
    switch (random() % 3) {
      case 0:
        bad.resize(random() % good.size());
        break;
      case 1:
        bad[random() % bad.size()] = static_cast<char>(random() % 256);
        break;
      default:
        bad = "{\"format\":\"sluice.run\",\"version\":" +
              std::to_string(random()) + "}";
    }
    std::ofstream(log + "/run.json", std::ios::binary) << bad;
    const Outcome outcome = RunMnist({"eval", "--log-dir", log});
    // Some changes make another record: a flag that there is not is passed
    // over, a value that cannot be is told as one of the command line.
    CAPTURE(bad);
    CHECK((outcome.code == 0 || outcome.code == 1 || outcome.code == 2));
    if (outcome.code == 1) CHECK(Contains(outcome.err, "mnist: "));
  }
  // One from before there were records.
  std::filesystem::remove(log + "/run.json");
  CHECK(RunMnist(OnMnist("eval", {"--log-dir", log})).code == 0);
}

TEST_CASE("--config: flags of a file come behind those of the command line") {
  TemporaryFolder folder;
  const std::string file = folder / "flags.json", log = folder / "log";
  std::ofstream(file) << Json{{"model", "mlp"},
                              {"data-dir", MnistData().path()},
                              {"steps", 4},
                              {"batch-size", 20},
                              {"deterministic", true},
                              {"count", 3}};  // predict's
  const Outcome trained = RunMnist(
      {"train", "--config", file, "--steps", "6", "--json", "--log-dir", log});
  CHECK(trained.code == 0);
  CHECK(LastObject(trained.out)["steps"] == 6);
  CHECK(Contains(trained.out, "\"batch_size\":20"));
  CHECK(testing::Lines(
            RunMnist({"predict", "--config", file, "--log-dir", log}).out) ==
        3);
  // It may name the folder, whose record then counts.
  std::ofstream(file) << Json{{"log-dir", log}};
  CHECK(
      LastObject(RunMnist({"eval", "--json", "--config", file}).out)["model"] ==
      "mlp");
  std::ofstream(file) << Json{{"log-dir", log},
                              {"restart", true},
                              {"data-dir", MnistData().path()},
                              {"model", "softmax"},
                              {"steps", 1}};
  CHECK(Contains(RunMnist({"train", "--json", "--config", file}).out,
                 "\"batch_size\":100"));
  std::filesystem::copy_file(log + "/run.json", folder / "run.json");
  // A run.json is one.
  const Outcome same = RunMnist({"train", "--config", folder / "run.json",
                                 "--json", "--log-dir", folder / "again"});
  CHECK(LastObject(same.out)["steps"] == 1);

  std::ofstream(file) << "{\"modle\": \"mlp\"}";
  CheckMnistError(RunMnist({"train", "--config", file}), 1,
                  "there is no flag --modle");
  std::ofstream(file) << "{\"model\": [1]}";
  CheckMnistError(RunMnist({"train", "--config", file}), 1, "wanted text");
  std::ofstream(file) << "model = 'mlp'";
  CheckMnistError(RunMnist({"train", "--config", file}), 1, "no JSON object");
  CheckMnistError(RunMnist({"train", "--config", folder / "none"}), 1, "none");
}

TEST_CASE("the weights that a training began with are not what it trained") {
  TemporaryFolder folder;
  const std::string first = folder / "first", log = folder / "log";
  REQUIRE(
      RunMnist(OnMnist("train", {"--steps", "2", "--log-dir", first})).code ==
      0);
  REQUIRE(RunMnist({"export", "--log-dir", first}).code == 0);
  const std::string weights = first + "/export/weights.safetensors";
  REQUIRE(RunMnist(OnMnist("train", {"--steps", "40", "--log-dir", log,
                                     "--weights", weights}))
              .code == 0);
  const std::string record = log + "/run.json";
  REQUIRE(Contains(TextOf(record), weights));
  const auto by_record = [&](const char* command) {
    return RunMnist({command, "--json", "--config", record, "--log-dir", log});
  };
  const auto figures = [](const Outcome& outcome) {
    const auto result = LastObject(outcome.out);
    return Json{result["steps"], result["test_accuracy"]};
  };
  const Json wanted = figures(RunMnist({"eval", "--json", "--log-dir", log}));
  CHECK(wanted[0] == 40);
  CHECK(figures(by_record("eval")) == wanted);
  CHECK(by_record("predict").out ==
        RunMnist({"predict", "--json", "--log-dir", log}).out);
  CHECK(Contains(by_record("export").err, "using " + log + "/checkpoint-40"));
  CheckMnistError(RunMnist({"eval", "--config", record}), 2,
                  "no trained model");
  // Those that are given are meant.
  const Outcome given = RunMnist({"eval", "--json", "--config", record,
                                  "--log-dir", log, "--weights", weights});
  CHECK(LastObject(given.out)["steps"] == 0);
  // What is trained again begins with them.
  const std::string again = folder / "again";
  const Outcome trained =
      RunMnist({"train", "--config", record, "--log-dir", again});
  CHECK(trained.code == 0);
  CHECK(Contains(TextOf(again + "/run.json"), weights));
}

TEST_CASE("a record keeps what its training began with when that goes on") {
  const TemporaryFolder folder;
  const auto train = [&](const std::string& log, std::vector<std::string> more,
                         bool given = true) {
    more.insert(more.end(), {"--log-dir", folder / log});
    if (!given) {
      more.insert(more.begin(), "train");
      return RunMnist(more);
    }
    more.insert(more.end(), {"--steps", "4", "--deterministic"});
    return RunMnist(OnMnist("train", more));
  };
  const auto exported = [&](const std::string& log, const char* seed) {
    REQUIRE(train(log, {"--seed", seed}).code == 0);
    REQUIRE(RunMnist({"export", "--log-dir", folder / log}).code == 0);
    return folder / log + "/export/weights.safetensors";
  };
  const std::string weights = exported("first", "1");
  const std::string other = exported("other", "2");
  const auto recorded = [&](const std::string& log) {
    const auto flags = Json::parse(TextOf(folder / log + "/run.json"))["flags"];
    return std::pair(flags.value("weights", ""), flags.value("reset", ""));
  };
  const std::vector<std::string> begin = {"--weights", weights, "--reset",
                                          "logits/*"};
  const std::pair began(weights, std::string("logits/*"));
  REQUIRE(train("whole", begin).code == 0);
  std::vector<std::string> half = begin;
  half.insert(half.end(), {"--max-steps", "2"});
  REQUIRE(train("log", half).code == 0);
  CHECK(recorded("log") == began);
  REQUIRE(train("log", {}, false).code == 0);
  CHECK(recorded("log") == began);
  // What is done again by it begins so, too.
  const Outcome again =
      train("again", {"--config", folder / "log/run.json"}, false);
  REQUIRE(again.code == 0);
  CHECK(Contains(again.err, "beginning with the"));
  CheckSameTensors(NewestTensors(folder / "again"),
                   NewestTensors(folder / "whole"));

  const Outcome unused = train(
      "log", {"--steps", "6", "--weights", other, "--reset", "fc1/*"}, false);
  CHECK(unused.code == 0);
  CHECK(Contains(unused.err, other + " is not used"));
  CHECK(recorded("log") == began);
  const std::pair<std::string, std::string> none;
  REQUIRE(train("bare", {"--max-steps", "2"}).code == 0);
  REQUIRE(train("bare", begin, false).code == 0);
  CHECK(recorded("bare") == none);
  std::filesystem::remove(folder / "bare/run.json");  // as of before there were
  REQUIRE(train("bare", begin).code == 0);
  CHECK(recorded("bare") == none);
  // Another training in its place is another.
  REQUIRE(train("log", {"--weights", other, "--restart"}).code == 0);
  CHECK(recorded("log") == std::pair(other, std::string()));
}

TEST_CASE("trials in a fine-tuning's folder begin as it had begun") {
  const TemporaryFolder folder;
  const std::string first = folder / "first", log = folder / "log";
  REQUIRE(
      RunMnist(OnMnist("train", {"--steps", "60", "--log-dir", first})).code ==
      0);
  const std::vector<std::string> tuned = OnMnist(
      "train", {"--weights", first + "/checkpoint-60.safetensors", "--reset",
                "logits/*", "--steps", "4", "--deterministic"});
  std::vector<std::string> saving = tuned;
  saving.insert(saving.end(), {"--log-dir", log});
  REQUIRE(RunMnist(saving).code == 0);
  const std::string page = folder / "page.html";
  const auto sweep = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(),
                 {"--threads", "1", "--json", "--find-rate", page});
    const Outcome outcome = RunMnist(flags);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return LastObject(outcome.out).dump() + TextOf(page);
  };
  const std::string wanted = sweep(tuned);
  CHECK(sweep({"train", "--log-dir", log}) == wanted);
  CHECK(sweep(OnMnist("train", {"--steps", "4", "--deterministic"})) != wanted);
  const Outcome tried = RunMnist({"train", "--log-dir", log, "--fast-dev-run"});
  CHECK(tried.code == 0);
  CHECK(Contains(tried.err, "beginning with the "));
}

TEST_CASE("--micro-batches is remembered, and gives way to others") {
  const TemporaryFolder folder;
  const auto train = [&](const std::string& log,
                         std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "--log-dir", folder / log, "--json"});
    const Outcome outcome = RunMnist(more);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return outcome.out;
  };
  const auto given = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--data-dir", MnistData().path(), "--model", "mlp",
                             "--steps", "8", "--deterministic"});
    return more;
  };
  const std::string of_four = "\"virtual_workers\":4";
  train("whole", given({"--micro-batches", "4"}));
  train("parts", given({"--micro-batches", "4", "--max-steps", "4"}));
  CHECK(Contains(train("parts", {}), of_four));
  CHECK(Contains(train("again", {"--config", folder / "parts/run.json"}),
                 of_four));
  // In the place of which as many of these may come.
  train("virtual", given({"--micro-batches", "4", "--max-steps", "4"}));
  CHECK(Contains(train("virtual", {"--virtual-workers", "4"}), of_four));
  const std::string record = TextOf(folder / "virtual/run.json");
  CHECK(Contains(record, "virtual-workers"));
  CHECK(!Contains(record, "micro-batches"));
  for (const char* log : {"parts", "again", "virtual"}) {
    CAPTURE(log);
    CheckSameTensors(NewestTensors(folder / log),
                     NewestTensors(folder / "whole"));
  }
  train("synced", {"--config", folder / "parts/run.json", "--sync-batch-norm"});
  CHECK(!Contains(TextOf(folder / "synced/run.json"), "micro-batches"));
}

TEST_CASE("a flag that was given an empty value has it, and takes no other") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  REQUIRE(RunMnist(OnMnist("train", {"--class-weights", "", "--steps", "3",
                                     "--log-dir", log}))
              .code == 0);
  for (const char* command : {"eval", "train"}) {
    CAPTURE(command);
    const Outcome again = RunMnist({command, "--log-dir", log});
    CAPTURE(again.err);
    CHECK(again.code == 0);
  }
}

TEST_CASE("data are the same, however their path is spelled") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  REQUIRE(RunMnist(OnMnist("train", {"--steps", "3", "--log-dir", log})).code ==
          0);
  const std::filesystem::path data = MnistData().path();
  for (const std::string& other :
       {data.string() + "/.", (data / ".." / data.filename()).string()}) {
    CAPTURE(other);
    const Outcome eval =
        RunMnist({"eval", "--log-dir", log, "--data-dir", other});
    CHECK(eval.code == 0);
    CHECK(!Contains(eval.err, "--data-dir is"));
  }
}

TEST_CASE("what is behind -- are files, whatever the record adds") {
  const TemporaryFolder folder;
  const std::string log = folder / "log", file = folder / "text.png";
  REQUIRE(RunMnist(OnMnist("train", {"--steps", "3", "--log-dir", log})).code ==
          0);
  std::ofstream(file) << "no picture";
  const Outcome behind = RunMnist({"predict", "--log-dir", log, "--", file});
  const Outcome plain = RunMnist({"predict", "--log-dir", log, file});
  CHECK(Contains(behind.out + behind.err, file));
  CHECK(behind.code == plain.code);
  CHECK(behind.out == plain.out);
  CHECK(behind.err == plain.err);
}

TEST_CASE("a switch with an empty value is wrong usage that names it") {
  const TemporaryFolder folder;
  CheckMnistError(RunMnist({"train", "--restart=", "--log-dir", folder / "l"}),
                  2, "--restart= has no value");
}

TEST_CASE("--restart=false and --follow=false are as not given") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  REQUIRE(RunMnist(OnMnist("train", {"--steps", "3", "--log-dir", log})).code ==
          0);
  const Outcome resumed =
      RunMnist({"train", "--log-dir", log, "--restart=false"});
  CHECK(resumed.code == 0);
  CHECK(Contains(resumed.err, "nothing is left to do: all 3 steps"));
  CheckMnistError(
      RunMnist(OnMnist("eval", {"--follow=false", "--log-dir", folder / "no"})),
      1, "no checkpoint in");
}

TEST_CASE("a command that is refused leaves the training ended") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  REQUIRE(RunMnist(OnMnist("train", {"--steps", "3", "--log-dir", log})).code ==
          0);
  CHECK(HasEnded(log));
  const std::vector<std::string> wrong = {"--freeze", "no variable"};
  for (const bool restart : {false, true}) {
    std::vector<std::string> train = OnMnist("train", {"--log-dir", log});
    train.insert(train.end(), wrong.begin(), wrong.end());
    if (restart) train.emplace_back("--restart");
    CHECK(RunMnist(train).code == 1);
    CHECK(HasEnded(log));
  }
  // And so is what is set aside.
  REQUIRE(RunMnist(
              OnMnist("train", {"--steps", "2", "--log-dir", log, "--restart"}))
              .code == 0);
  CHECK(HasEnded(log));
  CHECK(HasEnded(log + "/previous-1"));
}

TEST_CASE("resumed without its flags, any training gives the same bits") {
  const std::map<std::string, std::vector<std::string>> choices = {
      {"--model", {"softmax", "mlp"}},
      {"--batch-size", {"10", "64"}},
      {"--seed", {"5", "123456789"}},
      {"--optimizer", {"sgd", "adam", "momentum"}},
      {"--learning-rate", {"0.01", "1:0.1->0.01"}},
      {"--precision", {"fp32", "bf16"}},
      {"--early-stopping", {"3"}},
      {"--evaluate-every", {"0.5", "0"}}};
  std::mt19937 random(9);
  for (int round = 0; round < 4; ++round) {
    TemporaryFolder folder;
    std::vector<std::string> flags = {"--data-dir", MnistData().path(),
                                      "--epochs", "2", "--deterministic"};
    for (const auto& [flag, values] : choices) {
      if (random() % 2) continue;
      flags.push_back(flag);
      flags.push_back(values[random() % values.size()]);
    }
    CAPTURE(fmt::format("{}", fmt::join(flags, " ")));
    const auto train = [&](const std::string& log, bool with_flags,
                           const std::vector<std::string>& more) {
      std::vector<std::string> arguments = {"train", "--log-dir", folder / log};
      if (with_flags) {
        arguments.insert(arguments.end(), flags.begin(), flags.end());
      }
      arguments.insert(arguments.end(), more.begin(), more.end());
      REQUIRE(RunMnist(arguments).code == 0);
      const auto saved = CheckpointManager::ForReading(folder / log);
      return TextOf(saved.PathOf(saved.Steps()->back()));
    };
    const std::string whole = train("whole", true, {});
    train("parts", true, {"--max-steps", "7"});
    const std::string record = TextOf(folder / "parts/run.json");
    CHECK(train("parts", false, {}) == whole);
    CHECK(TextOf(folder / "parts/run.json") == record);
  }
}

}  // namespace
}  // namespace sluice
