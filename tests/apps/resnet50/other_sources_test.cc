// The resnet50 program evaluates on pictures of another source than it was
// trained on: the same pictures have the same figures, or it says why not.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "io/images/image.h"
#include "io/images/png.h"
#include "tests/support/last_object.h"
#include "tests/support/resnet50_program.h"

#if SLUICE_HAVE_PNG
namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::CheckResNet50Error;
using testing::Contains;
using testing::Objects;
using testing::Outcome;
using testing::RunResNet50;
using testing::TemporaryFolder;
using testing::TextOf;
using testing::WriteClasses;

using Words = std::vector<std::string>;

const Words kCifar = {"airplane", "automobile", "bird",  "cat",  "deer",
                      "dog",      "frog",       "horse", "ship", "truck"};

Outcome Run(const char* command, const std::string& data, Words more) {
  more.insert(more.begin(),
              {command, "--data", data, "--batch-size", "8", "--json"});
  return RunResNet50(more);
}

// The pictures that lie in `folder` by classes as a batch of CIFAR-10's: a
// label and three planes of 32 x 32 each.
void WriteCifar(const std::string& folder, const std::string& file) {
  std::ofstream out(file, std::ios::binary);
  for (size_t label = 0; label < kCifar.size(); ++label) {
    for (int i = 0;; ++i) {
      const std::string path =
          fmt::format("{}/{}/{}.png", folder, kCifar[label], i);
      if (!fs::exists(path)) break;
      const Tensor image = DecodeImage(TextOf(path), path, {}).ValueOrThrow();
      REQUIRE(image.shape() == Shape{32, 32, 3});
      out.put(static_cast<char>(label));
      for (int64_t channel = 0; channel < 3; ++channel) {
        for (int64_t pixel = 0; pixel < 32 * 32; ++pixel) {
          out.put(
              static_cast<char>(image.data<uint8_t>()[3 * pixel + channel]));
        }
      }
    }
  }
}

// The same pictures in folders and as CIFAR-10.
struct Both {
  TemporaryFolder folder;
  std::string files = folder / "files", cifar = folder / "cifar";

  explicit Both(int count) {
    WriteClasses(files, kCifar, count);
    fs::create_directories(cifar);
    WriteCifar(files, cifar + "/test_batch.bin");
    for (int i = 1; i <= 5; ++i) {
      WriteCifar(files, fmt::format("{}/data_batch_{}.bin", cifar, i));
    }
  }
  // What a training in `log` makes of either.
  void CheckSame(const std::string& model, const std::string& log) const {
    const auto said = [&](const char* command, const std::string& data) {
      Words flags = {"--model", model, "--log-dir", log};
      if (data == "cifar10") flags.insert(flags.end(), {"--data-dir", cifar});
      const Outcome outcome = Run(command, data, flags);
      CAPTURE(outcome.err);
      REQUIRE(outcome.code == 0);
      return Objects(outcome.out);
    };
    // Of pictures that were trained on it has another name.
    const auto accuracy = [&](const std::string& data) {
      const auto last = said("eval", data).back();
      const char* const name = last["evaluated_on"] == "training"
                                   ? "training_accuracy"
                                   : "test_accuracy";
      REQUIRE(last.contains(name));
      return last[name].get<double>();
    };
    CHECK(accuracy(files) == accuracy("cifar10"));
    const auto of_files = said("predict", files);
    const auto of_cifar = said("predict", "cifar10");
    REQUIRE(of_files.size() >= kCifar.size());
    REQUIRE(of_cifar.size() == of_files.size());
    size_t compared = 0;
    for (size_t i = 0; i < of_files.size(); ++i) {
      if (!of_files[i].contains("probabilities")) continue;
      CAPTURE(of_files[i].dump());
      CAPTURE(of_cifar[i].dump());
      const auto& a = of_files[i]["probabilities"];
      const auto& b = of_cifar[i]["probabilities"];
      REQUIRE(a.size() == b.size());
      for (size_t k = 0; k < a.size(); ++k, ++compared) {
        CHECK(a[k].get<double>() ==
              doctest::Approx(b[k].get<double>()).epsilon(1e-4));
      }
    }
    CHECK(compared >= kCifar.size());
  }
};

TEST_CASE("pictures are of the size that was trained on") {
  const Both both(2);
  const TemporaryFolder folder;
  REQUIRE(Run("train", "cifar10",
              {"--data-dir", both.cifar, "--model", "resnet18", "--steps", "3",
               "--log-dir", folder / "small"})
              .code == 0);
  both.CheckSame("resnet18", folder / "small");
  // So they are of a model that was exported, which says its size.
  const std::string exported = folder / "exported";
  REQUIRE(RunResNet50(
              {"export", "--log-dir", folder / "small", "--output", exported})
              .code == 0);
  const std::string picture = both.files + "/cat/1.png";
  const Outcome ours = RunResNet50(
      {"predict", "--log-dir", folder / "small", "--json", picture});
  const Outcome from_export =
      RunResNet50({"predict", "--from", exported, "--json", picture});
  CAPTURE(from_export.err);
  REQUIRE(from_export.code == 0);
  const auto first = [](const Outcome& outcome) {
    return Objects(outcome.out).back()["top"][0]["probability"].get<double>();
  };
  CHECK(first(from_export) == doctest::Approx(first(ours)).epsilon(1e-4));
  REQUIRE(Run("train", both.files,
              {"--model", "resnet18", "--steps", "2", "--log-dir",
               folder / "large"})
              .code == 0);
  both.CheckSame("resnet18", folder / "large");
}

TEST_CASE("CIFAR-10's classes have the numbers of the training's names") {
  const Both both(2);
  const TemporaryFolder folder;
  Words more = kCifar;
  more.emplace_back("ant");  // the second of them
  WriteClasses(folder / "eleven", more, 6);
  REQUIRE(Run("train", folder / "eleven",
              {"--model", "resnet20", "--steps", "40", "--base-rate", "0.2",
               "--log-dir", folder / "log"})
              .code == 0);
  both.CheckSame("resnet20", folder / "log");
  // Without one of them there is nothing that its pictures could be.
  fs::remove_all(folder / "eleven/ship");
  REQUIRE(Run("train", folder / "eleven",
              {"--model", "resnet20", "--steps", "1", "--log-dir",
               folder / "other"})
              .code == 0);
  CheckResNet50Error(Run("eval", "cifar10",
                         {"--data-dir", both.cifar, "--model", "resnet20",
                          "--log-dir", folder / "other"}),
                     1, "a class 'ship', which is none of the 10");
}

TEST_CASE("a training is repeated on another source by its record") {
  const Both both(2);
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  REQUIRE(Run("train", "cifar10",
              {"--data-dir", both.cifar, "--model", "resnet20", "--steps", "2",
               "--log-dir", log})
              .code == 0);
  // The folder of the one source is none of the other's.
  for (const std::string& data : {both.files, std::string("cifar10")}) {
    for (const Words& where :
         {Words{"train", "--config", log + "/run.json", "--steps", "1"},
          Words{"eval", "--log-dir", log}}) {
      Words arguments = where;
      arguments.insert(arguments.end(), {"--data", data});
      const Outcome outcome = RunResNet50(arguments);
      CAPTURE(data);
      CHECK_MESSAGE(outcome.code == 0, outcome.err);
    }
  }
}

TEST_CASE("what other pictures do not take is not asked of them") {
  const Both both(2);
  const TemporaryFolder folder;
  const auto train = [&](const std::string& log, Words more) {
    more.insert(more.end(), {"--model", "resnet20", "--steps", "2",
                             "--deterministic", "--log-dir", log});
    const Outcome outcome = Run("train", both.files, more);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  };
  // Neither changes a bit here.
  const Words of_files = {"--exif", "--cache", "memory", "--cache-limit", "1G"};
  const std::string with = folder / "with", without = folder / "without";
  train(with, of_files);
  train(without, {});
  const auto evaluated = [&](const std::string& log, Words more) {
    more.insert(more.begin(), {"eval", "--log-dir", log, "--deterministic",
                               "--data", "cifar10", "--data-dir", both.cifar});
    return RunResNet50(more);
  };
  // ": test loss 2.3, accuracy 10.00 % (20 examples"
  const auto figures = [&](const std::string& log) {
    const Outcome outcome = evaluated(log, {});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    const size_t begin = outcome.out.find(": ");
    REQUIRE(begin != std::string::npos);
    return outcome.out.substr(begin, outcome.out.find(')') - begin);
  };
  CHECK(figures(with) == figures(without));
  CheckResNet50Error(evaluated(with, {"--exif"}), 2,
                     "--exif is for --data with a folder");
  CheckResNet50Error(evaluated(with, {"--cache", "memory"}), 2,
                     "--cache is for --data with a folder");

  const std::string augmented = folder / "augmented";
  train(augmented, {"--augment", "flip(0.25)"});
  CheckResNet50Error(Run("eval", "synthetic",
                         {"--log-dir", augmented, "--augment", "flip(0.25)"}),
                     2, "--augment changes pictures");
  const Outcome noise = Run("eval", "synthetic", {"--log-dir", augmented});
  CHECK_MESSAGE(noise.code == 0, noise.err);
  // A training on others is with what these take.
  const auto again = [&](const std::string& data, const std::string& log) {
    Words more = {"--config", augmented + "/run.json", "--log-dir", log};
    if (data == "cifar10") {
      more.insert(more.end(), {"--data-dir", both.cifar});
    }
    const Outcome outcome = Run("train", data, more);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return Contains(TextOf(log + "/run.json"), "\"augment\": \"flip(0.25)\"");
  };
  CHECK(again("cifar10", folder / "on cifar"));
  CHECK_FALSE(again("synthetic", folder / "on noise"));
}

#if SLUICE_HAVE_PROTOBUF
TEST_CASE("numbers of a labels.csv are nobody's whose classes have names") {
  const TemporaryFolder folder;
  const std::string data = folder / "data", log = folder / "log";
  const std::string records = folder / "records", plain = folder / "plain";
  // In the order of names these would be numbered the other way.
  WriteClasses(data, {"bird", "dog"}, 8);
  const auto make = [](const std::string& from, const std::string& to,
                       const char* part) {
    const Outcome made = testing::RunProgram(
        SLUICE_BIN_DIR "/sluice", {"data", "make", from, to, "--part", part});
    REQUIRE_MESSAGE(made.code == 0, made.err);
  };
  make(data, records, "validation");
  REQUIRE(fs::exists(records + "/labels.txt"));
  std::ofstream csv(data + "/labels.csv");
  for (int i = 0; i < 8; ++i) {
    csv << fmt::format("bird/{0}.png,1\ndog/{0}.png,0\n", i);
  }
  csv.close();
  const Words flags = {"--model", "resnet20", "--log-dir", log};
  Words steps = flags;
  steps.insert(steps.end(), {"--steps", "1", "--classes", "2"});
  REQUIRE(Run("train", data, steps).code == 0);
  CheckResNet50Error(Run("eval", records, flags), 1,
                     "names its classes, training has numbers of a labels.csv");
  CHECK(Run("predict", records, flags).code == 0);
  // Nor have their names to do with what was trained: predictions have none.
  Words picture = flags;
  picture.push_back(data + "/dog/1.png");
  const Outcome unnamed = Run("predict", records, picture);
  REQUIRE_MESSAGE(unnamed.code == 0, unnamed.err);
  CHECK(Objects(unnamed.out).back()["top"].size() == 2);
  CHECK_FALSE(Objects(unnamed.out).back()["top"][0].contains("name"));
  // Of records without names that is usual, and said.
  make(data, plain, "train");
  REQUIRE(!fs::exists(plain + "/labels.txt"));
  steps[3] = folder / "of_records";
  REQUIRE(Run("train", plain, steps).code == 0);
  fs::remove(data + "/labels.csv");
  const Outcome named =
      Run("eval", data,
          {"--model", "resnet20", "--classes", "2", "--log-dir", steps[3]});
  CAPTURE(named.err);
  CHECK(named.code == 0);
  CHECK(Contains(named.err,
                 "has folders for classes, the training's records did not"));
}
#endif

TEST_CASE("weights are evaluated on pictures of val alone, with a report") {
  const TemporaryFolder folder;
  const std::string data = folder / "data", alone = folder / "alone";
  WriteClasses(data, {"bird", "dog"}, 8);
  REQUIRE(
      Run("train", data,
          {"--model", "resnet20", "--steps", "1", "--log-dir", folder / "log"})
          .code == 0);
  REQUIRE(
      Run("export", data, {"--model", "resnet20", "--log-dir", folder / "log"})
          .code == 0);
  WriteClasses(alone + "/val", {"bird", "dog"}, 2);
  const auto evaluate = [&](const Words& more) {
    Words flags = {"--model",   "resnet20",
                   "--weights", folder / "log/export/weights.safetensors",
                   "--classes", "2"};
    flags.insert(flags.end(), more.begin(), more.end());
    const Outcome outcome = Run("eval", alone, flags);
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
  };
  for (const bool flat : {false, true}) {
    CAPTURE(flat);
    if (flat) {
      std::ofstream csv(alone + "/val/labels.csv");
      for (const char* name : {"bird", "dog"}) {
        fs::rename(fmt::format("{}/val/{}/0.png", alone, name),
                   fmt::format("{}/val/{}.png", alone, name));
        fs::remove_all(fmt::format("{}/val/{}", alone, name));
        csv << fmt::format("{}.png,{}\n", name, name[0] == 'd' ? 1 : 0);
      }
    }
    evaluate({});
    const std::string report = folder / "report.html";
    evaluate({"--report", report});
    CHECK(fs::file_size(report) > 1000);
    fs::remove(report);
  }
}

}  // namespace
}  // namespace sluice
#endif
