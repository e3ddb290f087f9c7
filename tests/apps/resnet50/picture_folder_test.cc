// The resnet50 program on folders of pictures: which number a class has, what
// an accuracy is of, and what changes between a training and its resume.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "io/images/png.h"
#include "tests/support/last_object.h"
#include "tests/support/resnet50_program.h"

#if SLUICE_HAVE_PNG
namespace sluice {
namespace {

using testing::CheckResNet50Error;
using testing::Contains;
using testing::LastObject;
using testing::Outcome;
using testing::RunResNet50;
using testing::TemporaryFolder;
using testing::WriteClasses;

// Four classes that are learnt, in `train` and `val`.
struct Learnt {
  TemporaryFolder folder;
  std::string data = folder / "data", log = folder / "log";

  Learnt() {
    const std::vector<std::string> classes = {"ant", "bee", "cat", "dog"};
    WriteClasses(data + "/train", classes, 16);
    WriteClasses(data + "/val", classes, 4);
    const Outcome trained = Train({"--steps", "60", "--base-rate", "0.2"});
    REQUIRE(trained.code == 0);
    REQUIRE(LastObject(trained.out)["test_accuracy"] == 1);
    CHECK(LastObject(trained.out)["evaluated_on"] == "test");
    CHECK(nlohmann::json::parse(testing::TextOf(
              log + "/run.json"))["class_names"] == nlohmann::json(classes));
  }
  Outcome Train(const std::vector<std::string>& more) const {
    return With("train", data, more);
  }
  Outcome Evaluate(const std::string& on) const { return With("eval", on, {}); }
  Outcome With(const std::string& command, const std::string& on,
               const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {
        command, "--data",    on,  "--model", "resnet20", "--batch-size",
        "16",    "--log-dir", log, "--json",  "--seed",   "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunResNet50(arguments);
  }
};

TEST_CASE("classes have the numbers of the training, whatever else is there") {
  const Learnt learnt;
  namespace fs = std::filesystem;
  const std::string val = learnt.data + "/val";
  // One is missing: the others keep their numbers, and that is said.
  fs::rename(val + "/bee", learnt.folder / "bee");
  Outcome outcome = learnt.Evaluate(learnt.data);
  CHECK(outcome.code == 0);
  CHECK(LastObject(outcome.out)["test_accuracy"] == 1);
  CHECK(Contains(outcome.err, "no pictures of 1 of the 4 classes"));
  CHECK(Contains(outcome.err, "'bee'"));
  // A folder of its own, of two classes, without the training's pictures.
  WriteClasses(learnt.folder / "other", {"cat", "dog"}, 3);
  outcome = learnt.Evaluate(learnt.folder / "other");
  CHECK(outcome.code == 0);
  CHECK(LastObject(outcome.out)["test_accuracy"] == 1);
  CHECK(LastObject(outcome.out)["evaluated_on"] == "test");
  // One that training did not have. Predictions need no labels.
  WriteClasses(val, {"yak"}, 1);
  CheckResNet50Error(learnt.Evaluate(learnt.data), 1,
                     "training had no class of that");
  CHECK(learnt.With("predict", learnt.data, {}).code == 0);
  // A training hears of it before its first step.
  const Outcome early = learnt.Train({"--steps", "70"});
  CheckResNet50Error(early, 1, "training had no class of that");
  CHECK_FALSE(Contains(early.out, "first_step"));
  fs::remove_all(val + "/yak");
  // The training's own folder is not a test.
  outcome = learnt.Evaluate(learnt.data + "/train");
  CHECK(LastObject(outcome.out)["training_accuracy"] == 1);
  CHECK(LastObject(outcome.out)["evaluated_on"] == "training");
  // Predictions have the training's names, not those of what is there now.
  const Outcome predicted =
      learnt.With("predict", learnt.folder / "other", {val + "/dog/1.png"});
  CHECK(predicted.code == 0);
  CHECK(LastObject(predicted.out)["top"][0]["name"] == "dog");
  const std::string exported = learnt.folder / "exported";
  CHECK(learnt.With("export", learnt.data, {"--output", exported}).code == 0);
  const Outcome from_export = RunResNet50(
      {"predict", "--from", exported, "--data", learnt.folder / "other",
       "--model", "resnet20", "--json", val + "/dog/1.png"});
  CHECK(from_export.code == 0);
  CHECK(LastObject(from_export.out)["top"][0]["name"] == "dog");
}

TEST_CASE("a training whose classes or labels change is not resumed") {
  const Learnt learnt;
  namespace fs = std::filesystem;
  const std::string train = learnt.data + "/train";
  const auto resume = [&] { return learnt.Train({"--steps", "62"}); };
  const std::string val = learnt.data + "/val";
  fs::rename(train + "/dog", train + "/cow");
  CheckResNet50Error(resume(), 1,
                     "'" + val + "/dog': training had no class of that");
  fs::rename(val + "/dog", val + "/cow");
  CheckResNet50Error(resume(), 1,
                     "trained on other classes: number 3 was 'dog'");
  fs::rename(train + "/cow", train + "/dog");
  fs::rename(val + "/cow", val + "/dog");
  // The same classes, but one picture is of another.
  fs::rename(train + "/cat/3.png", train + "/ant/99.png");
  CheckResNet50Error(resume(), 1, "saved by another input pipeline");
  fs::rename(train + "/ant/99.png", train + "/cat/3.png");
  // In another place it is the same.
  fs::rename(learnt.data, learnt.folder / "moved");
  const Outcome outcome =
      learnt.With("train", learnt.folder / "moved", {"--steps", "62"});
  CHECK(outcome.code == 0);
  CHECK(LastObject(outcome.out)["steps"] == 62);
}

TEST_CASE("a class's folder without pictures is refused; val is no class") {
  const TemporaryFolder folder;
  const std::string data = folder / "data";
  namespace fs = std::filesystem;
  WriteClasses(data, {"ant", "wasp"}, 4);
  WriteClasses(data + "/val", {"ant", "wasp"}, 2);
  const auto train = [&] {
    return RunResNet50({"train", "--data", data, "--model", "resnet20",
                        "--steps", "1", "--batch-size", "2", "--json"});
  };
  // Classes and `val` in one folder; there one of them may have no pictures.
  fs::remove_all(data + "/val/wasp");
  fs::create_directory(data + "/val/wasp");
  Outcome outcome = train();
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(LastObject(outcome.out)["evaluated_on"] == "test");
  // What is in a folder further down is none of the class's.
  fs::create_directory(data + "/bee");
  fs::rename(data + "/val/ant", data + "/bee/queens");
  CheckResNet50Error(train(), 1,
                     "'" + data +
                         "/bee': a class's folder without JPEG and PNG files "
                         "in it, only queens; put images directly into it");
  fs::rename(data + "/bee/queens", data + "/val/ant");
  fs::remove(data + "/bee");
  std::ofstream(data + "/val/wasp/0.bmp") << "BM";
  CheckResNet50Error(train(), 1, data + "/val/wasp': a class's folder without");
}

TEST_CASE("labels by number and by name do not mix") {
  TemporaryFolder folder;
  namespace fs = std::filesystem;
  const auto numbered = [&](const char* part, int classes) {
    WriteClasses(folder / part, {"x"}, classes);
    std::ofstream csv(folder / fmt::format("{}/labels.csv", part));
    csv << "file,label\n";
    for (int i = 0; i < classes; ++i) csv << fmt::format("x/{}.png,{}\n", i, i);
  };
  const auto train = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "train",   "--data", folder.path(),  "--model", "resnet20",
        "--steps", "1",      "--batch-size", "2",       "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunResNet50(arguments);
  };
  numbered("train", 4);
  numbered("val", 3);
  CHECK(train({}).code == 0);
  numbered("val", 6);
  CheckResNet50Error(train({}), 1,
                     "pictures of class 5, training has 4 classes");
  CHECK(train({"--classes", "6"}).code == 0);
  CheckResNet50Error(train({"--classes", "3"}), 1, "has 4 classes");
  fs::remove_all(folder / "val");
  WriteClasses(folder / "val", {"a", "b"}, 1);
  CheckResNet50Error(train({}), 1, "training has numbers of a labels.csv");
  fs::remove_all(folder / "train");
  WriteClasses(folder / "train", {"a", "b"}, 2);
  CHECK(train({}).code == 0);
  fs::remove_all(folder / "val");
  numbered("val", 2);
  CHECK(train({}).code == 0);
  numbered("val", 3);
  CheckResNet50Error(train({}), 1, "has the label 2, training had 2 classes");
}

TEST_CASE("a labels.csv beside folders of val numbers its classes alone") {
  TemporaryFolder folder;
  namespace fs = std::filesystem;
  const std::string data = folder / "data", log = folder / "log";
  // In the order of names these would be numbered the other way.
  WriteClasses(data, {"bird", "dog"}, 8);
  std::ofstream csv(data + "/labels.csv");
  csv << "file,label\n";
  for (int i = 0; i < 8; ++i) {
    csv << fmt::format("bird/{0}.png,1\ndog/{0}.png,0\n", i);
  }
  csv.close();
  const auto run = [&](const char* command, const std::string& on,
                       std::vector<std::string> more) {
    more.insert(more.begin(), {command, "--data", on, "--model", "resnet20",
                               "--batch-size", "8", "--json"});
    return RunResNet50(more);
  };
  const std::string wrong = "training has numbers of a labels.csv";
  WriteClasses(data + "/val", {"bird", "dog"}, 2);
  CheckResNet50Error(run("train", data, {"--steps", "1"}), 1, wrong);
  fs::rename(data + "/val", folder / "elsewhere");
  REQUIRE(run("train", data, {"--steps", "1", "--log-dir", log}).code == 0);
  // Nor are others' folders those of the training.
  CheckResNet50Error(run("eval", folder / "elsewhere", {"--log-dir", log}), 1,
                     wrong);
  fs::rename(folder / "elsewhere", data + "/val");
  CheckResNet50Error(run("eval", data, {"--log-dir", log}), 1, wrong);
  REQUIRE(run("export", data, {"--log-dir", log}).code == 0);
  const std::vector<std::string> weights = {
      "--weights", log + "/export/weights.safetensors", "--classes", "2"};
  CheckResNet50Error(run("eval", data, weights), 1, wrong);
  // Predictions need no labels.
  CHECK(run("predict", data, {"--log-dir", log}).code == 0);
  // Numbers are those of the training.
  std::ofstream(data + "/val/labels.csv") << "bird/0.png,1\ndog/0.png,0\n";
  CHECK(run("eval", data, {"--log-dir", log}).code == 0);
  fs::remove(data + "/val/labels.csv");
  // Folders beside val have names, which number those in it.
  fs::remove(data + "/labels.csv");
  fs::remove_all(data + "/val/bird");
  const Outcome named = run("eval", data, weights);
  CHECK(named.code == 0);
  CHECK(Contains(named.err, "no pictures of 1 of the 2 classes"));
}

TEST_CASE("without pictures to test on, that is said, or some are kept back") {
  TemporaryFolder folder;
  WriteClasses(folder / "data", {"ant", "bee"}, 30);
  const auto train = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "train",   "--data", folder / "data", "--model", "resnet20",
        "--steps", "2",      "--batch-size",  "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunResNet50(arguments);
  };
  Outcome outcome = train({"--json"});
  CHECK(LastObject(outcome.out)["evaluated_on"] == "training");
  CHECK(LastObject(outcome.out).contains("training_accuracy"));
  CHECK_FALSE(LastObject(outcome.out).contains("test_accuracy"));
  CHECK(Contains(train({}).out, ": training "));
  const std::string log = folder / "log";
  outcome = train({"--json", "--validation-split", "0.3", "--log-dir", log});
  CHECK(LastObject(outcome.out)["evaluated_on"] == "validation");
  CHECK(LastObject(outcome.out).contains("validation_accuracy"));
  // Later, too, what was trained on is no test, and no validation.
  const auto evaluate = [&](const std::string& data, const std::string& split) {
    return RunResNet50({"eval", "--data", data, "--model", "resnet20", "--json",
                        "--log-dir", log, "--validation-split", split});
  };
  const std::string data = folder / "data";
  outcome = evaluate(data, "0.3");
  CHECK(LastObject(outcome.out)["evaluated_on"] == "validation");
  for (const char* other : {"0", "0.1", "0.35"}) {
    CheckResNet50Error(evaluate(data, other), 1,
                       "give the same --validation-split");
  }
  WriteClasses(folder / "fresh", {"ant", "bee"}, 20);
  CHECK(LastObject(evaluate(folder / "fresh", "0").out)["evaluated_on"] ==
        "test");
  // As many again and one more are another set, but hardly a test.
  const std::string among = "may be among those that were trained on";
  const std::string grown = folder / "grown";
  WriteClasses(grown, {"ant", "bee"}, 31);
  outcome = evaluate(grown, "0");
  CHECK(LastObject(outcome.out)["evaluated_on"] == "test");
  CHECK(Contains(outcome.err, among));
  CHECK(Contains(outcome.err, "'" + grown + "' has no val"));
  WriteClasses(grown + "/val", {"ant", "bee"}, 3);
  outcome = evaluate(grown, "0");
  CHECK(LastObject(outcome.out)["evaluated_on"] == "test");
  CHECK_FALSE(Contains(outcome.err, among));
  const std::string unsplit = folder / "unsplit";
  CHECK(train({"--log-dir", unsplit}).code == 0);
  outcome =
      RunResNet50({"eval", "--data", data, "--model", "resnet20", "--json",
                   "--log-dir", unsplit, "--validation-split", "0.3"});
  CHECK(LastObject(outcome.out)["evaluated_on"] == "training");
  CheckResNet50Error(train({"--validation-split", "1"}), 2,
                     "a number from 0 to 0.9");
  CheckResNet50Error(RunResNet50({"train", "--validation-split", "0.1"}), 2,
                     "is for --data with a folder");
  CheckResNet50Error(train({"--validation-split", "0.0001"}), 1,
                     "too few pictures");
  WriteClasses(folder / "data/val", {"ant"}, 1);
  CheckResNet50Error(train({"--validation-split", "0.1"}), 2, "already");
}

TEST_CASE("other pictures are evaluated whole, though some were kept back") {
  TemporaryFolder folder;
  const std::string data = folder / "data", fresh = folder / "fresh";
  const std::string log = folder / "log";
  WriteClasses(data, {"ant", "bee"}, 30);
  WriteClasses(fresh, {"ant", "bee"}, 20);
  REQUIRE(RunResNet50({"train", "--data", data, "--model", "resnet20",
                       "--steps", "2", "--batch-size", "8",
                       "--validation-split", "0.3", "--log-dir", log})
              .code == 0);
  const auto run = [&](const char* command,
                       const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {command, "--log-dir", log};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunResNet50(arguments);
  };
  const auto evaluated_on = [](const Outcome& outcome) {
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    return LastObject(outcome.out)["evaluated_on"];
  };
  CHECK(Contains(run("eval", {"--data", fresh}).out, "(40 examples)"));
  CHECK(evaluated_on(run("eval", {"--data", fresh, "--json"})) == "test");
  CHECK(evaluated_on(run("eval", {"--json"})) == "validation");
  WriteClasses(fresh + "/val", {"ant", "bee"}, 3);
  for (const char* command : {"eval", "predict"}) {
    const Outcome outcome = run(command, {"--data", fresh});
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
  }
  // Who trains keeps some back as the training did: in another place, and of
  // others.
  std::filesystem::rename(data, folder / "moved");
  CHECK(evaluated_on(run("train", {"--data", folder / "moved", "--steps", "3",
                                   "--json"})) == "validation");
  const auto train_on = [&](const std::string& other) {
    return evaluated_on(
        RunResNet50({"train", "--config", log + "/run.json", "--data", other,
                     "--steps", "1", "--json"}));
  };
  // Those that have some to evaluate on keep none back.
  CHECK(train_on(fresh) == "test");
  CHECK(train_on("synthetic") == "test");
  std::filesystem::remove_all(fresh + "/val");
  CHECK(train_on(fresh) == "validation");
}

}  // namespace
}  // namespace sluice
#endif
