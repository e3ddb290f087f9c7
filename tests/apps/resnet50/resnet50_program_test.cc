// The resnet50 program from outside: training and resuming, image files,
// weights, bad input.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "io/checkpoints/checkpoint.h"
#include "io/images/png.h"
#include "tests/support/last_object.h"
#include "tests/support/resnet50_program.h"

namespace sluice {
namespace {

using testing::CheckResNet50Error;
using testing::Contains;
using testing::LastObject;
using testing::Lines;
using testing::Outcome;
using testing::RunResNet50;
using testing::TemporaryFolder;
using testing::WritePicture;

// A folder in the form of CIFAR-10: 5 x 32 training and 20 test images, each of
// a colour that tells its class.
class CifarFolder {
 public:
  CifarFolder() {
    for (int i = 1; i <= 5; ++i) {
      Write(fmt::format("data_batch_{}.bin", i), 32);
    }
    Write("test_batch.bin", 20);
  }
  std::string path() const { return folder_.path(); }

 private:
  void Write(const std::string& name, int count) const {
    std::ofstream file(folder_ / name, std::ios::binary);
    for (int n = 0; n < count; ++n) {
      const int label = n % 10;
      file << static_cast<char>(label);
      for (int i = 0; i < 3072; ++i) {
        const int channel = i / 1024;
        const int shade = channel == 0 ? label * 20 : 200 - label * 20;
        file << static_cast<char>(shade + (n * 31 + i * 7) % 32);
      }
    }
  }
  TemporaryFolder folder_;
};

const CifarFolder& Data() {
  static const CifarFolder data;
  return data;
}

// With resnet20 on such a folder.
std::vector<std::string> On(const std::string& command,
                            const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {command,      "--data",   "cifar10",
                                        "--model",    "resnet20", "--data-dir",
                                        Data().path()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_CASE("a wrong command line is told in one line, with code 2") {
  const std::map<std::string, std::vector<std::string>> wrong = {
      {"resnet51 not in {resnet18,", {"train", "--model", "resnet51"}},
      {"--data cifar10 needs --data-dir", {"train", "--data", "cifar10"}},
      {"--data-dir is for --data cifar10", {"train", "--data-dir", "/tmp"}},
      {"--ema: wanted a number from 0 to 1, got 'x'", {"train", "--ema", "x"}},
      {"--weight-decay: wanted", {"train", "--weight-decay", "-1"}},
      {"--label-smoothing: wanted", {"train", "--label-smoothing", "2"}},
      {"must be less than 1", {"train", "--ema", "1"}},
      {"--warm-up-epochs: wanted", {"train", "--warm-up-epochs", "ten"}},
      {"--epochs excludes", {"train", "--steps", "3", "--epochs", "1"}},
      {"linear not in {cosine,", {"train", "--schedule", "linear"}},
      {"--precision: wanted fp32,", {"bench", "--precision", "half"}},
      {"--recompute: relu not in {", {"bench", "--recompute", "relu"}},
      {"no trained model", {"predict", "a.jpg"}},
      {"wanted a number from 1", {"bench", "--steps", "0"}},
  };
  for (const auto& [part, arguments] : wrong) {
    CAPTURE(part);
    const Outcome outcome = RunResNet50(arguments);
    CheckResNet50Error(outcome, 2, part);
    CHECK(Lines(outcome.err) == 1);
  }
}

TEST_CASE("training in two parts gives the bits of training in one") {
  TemporaryFolder folder;
  const auto train = [&](const std::string& log,
                         const std::vector<std::string>& more) {
    std::vector<std::string> arguments =
        On("train", {"--steps", "8", "--batch-size", "16", "--ema", "0.9",
                     "--label-smoothing", "0.1", "--threads", "1", "--log-dir",
                     folder / log});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunResNet50(arguments);
  };
  CHECK(train("parts", {"--max-steps", "3"}).code == 0);
  const Outcome second = train("parts", {"--json"});
  CHECK(second.code == 0);
  CHECK(Contains(second.err, "resuming from step 3 of "));
  // With what is usual, written.
  CHECK(train("whole", {"--augment", "pad-crop(4),flip(0.5)"}).code == 0);
  CHECK(train("cut", {"--augment", "crop"}).code == 0);
  const auto read = [&](const std::string& log) {
    return ReadCheckpoint(folder / (log + "/checkpoint-8.safetensors"))
        .ValueOrThrow();
  };
  const Checkpoint parts = read("parts"), whole = read("whole");
  const Checkpoint cut = read("cut");
  int64_t same = 0;
  for (size_t i = 0; i < whole.tensors.size(); ++i) {
    same += cut.tensors[i].tensor.BitEqual(whole.tensors[i].tensor) ? 1 : 0;
  }
  CHECK(same < static_cast<int64_t>(whole.tensors.size()) / 2);
  REQUIRE(parts.tensors.size() == whole.tensors.size());
  bool averages = false;
  for (size_t i = 0; i < whole.tensors.size(); ++i) {
    const NamedTensor& tensor = whole.tensors[i];
    CAPTURE(tensor.name);
    CHECK(parts.tensors[i].name == tensor.name);
    CHECK(parts.tensors[i].tensor.BitEqual(tensor.tensor));
    averages = averages || tensor.name == "conv1/weights/average";
  }
  CHECK(averages);

  // Evaluation of the checkpoint, and of its file as weights, uses the same
  // averages as that at the end of training.
  const auto trained = LastObject(second.out);
  for (const std::vector<std::string>& source :
       {std::vector<std::string>{"--log-dir", folder / "parts"},
        {"--weights", folder / "parts/checkpoint-8.safetensors"}}) {
    std::vector<std::string> more = {"--json", "--batch-size", "16",
                                     "--threads", "1"};
    more.insert(more.end(), source.begin(), source.end());
    const Outcome outcome = RunResNet50(On("eval", more));
    CHECK(outcome.code == 0);
    CHECK(LastObject(outcome.out)["test_accuracy"] == trained["test_accuracy"]);
  }
}

TEST_CASE("a training shorter than its warm-up still reaches a high rate") {
  const Outcome outcome = RunResNet50(
      On("train", {"--json", "--batch-size", "4", "--steps", "4", "--log-every",
                   "1", "--base-rate", "0.64", "--warm-up-epochs", "100",
                   "--evaluate-every", "0"}));
  CHECK(outcome.code == 0);
  double highest = 0;
  for (const auto& object : testing::Objects(outcome.out)) {
    if (object["event"] == "step") {
      highest = std::max(highest, object["learning_rate"].get<double>());
    }
  }
  // 0.64 for 256 images is 0.01 for 4, and after two steps of four the cosine
  // is half the way down.
  CHECK(highest == doctest::Approx(0.005));
}

TEST_CASE("recomputation saves memory, more or less of it") {
  const auto arena_bytes = [](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments =
        On("bench", {"--json", "--batch-size", "64", "--steps", "1",
                     "--warm-up", "0", "--device", "/null:0"});
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Outcome outcome = RunResNet50(arguments);
    CHECK(outcome.code == 0);
    return LastObject(outcome.out)["arena_bytes"].get<int64_t>();
  };
  const int64_t all = arena_bytes({"--recompute"});
  const int64_t norm = arena_bytes({"--recompute", "norm"});
  CHECK(all == arena_bytes({"--recompute", "all"}));
  CHECK(all < norm);
  CHECK(norm < arena_bytes({}));
}

// Of ResNet-20, which is counted by hand: 1 + 3 x 6 convolutions of 3x3, each
// but the first with a gradient of its operand.
TEST_CASE("a plan says what a GPU would launch and move") {
  const Outcome outcome = RunResNet50(
      On("bench", {"--json", "--batch-size", "4", "--steps", "1", "--warm-up",
                   "0", "--precision", "fp16", "--device", "/null:0"}));
  CHECK(outcome.code == 0);
  const auto plan = LastObject(outcome.out);
  const auto& kinds = plan["kinds"];
  CHECK(kinds["convolution"]["launches"] == 19);
  CHECK(kinds["filter_gradient"]["launches"] == 19);
  CHECK(kinds["data_gradient"]["launches"] == 18);
  CHECK(kinds["batch_norm"]["launches"] == 3 * 19);
  CHECK(kinds["batch_norm_grad"]["launches"] == 3 * 19);
  // The first has three channels, padded to four.
  const int64_t pixels = 4 * 32 * 32;
  int64_t multiply_adds = pixels * 9 * 4 * 16;
  for (int stage = 0; stage < 3; ++stage) {
    const int64_t at = pixels >> (2 * stage), c = 16 << stage;
    multiply_adds += at * (5 * 9 * c * c + 9 * c * (stage > 0 ? c / 2 : c));
  }
  CHECK(kinds["convolution"]["multiply_adds"] == multiply_adds);
  CHECK(kinds["filter_gradient"]["multiply_adds"] == multiply_adds);
  CHECK(kinds["data_gradient"]["multiply_adds"] ==
        multiply_adds - pixels * 9 * 4 * 16);

  std::map<std::string, int64_t> all, listed;
  for (const auto& [kind, sum] : kinds.items()) {
    for (const char* of : {"launches", "bytes_moved", "multiply_adds"}) {
      all[of] += sum[of].get<int64_t>();
    }
  }
  for (const auto& object : testing::Objects(outcome.out)) {
    if (object["event"] != "launch") continue;
    const int64_t times = object["times"];
    listed["launches"] += times;
    listed["bytes_moved"] += times * object["bytes"].get<int64_t>();
    listed["multiply_adds"] += times * object["multiply_adds"].get<int64_t>();
  }
  CHECK(listed == all);
  for (const auto& [of, sum] : all) CHECK(plan[of] == sum);
}

// Statistics by 18 convolutions of ResNet-20, all but the first: as many
// launches, and what these make is read once less.
TEST_CASE("convolutions that sum save a pass over what they make") {
  const auto plan = [](std::vector<std::string> more) {
    std::vector<std::string> arguments =
        On("bench", {"--json", "--batch-size", "4", "--steps", "1", "--warm-up",
                     "0", "--precision", "fp16", "--device", "/null:0"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = RunResNet50(arguments);
    CHECK(outcome.code == 0);
    return LastObject(outcome.out);
  };
  const auto plain = plan({}), fused = plan({"--fuse-statistics"});
  CHECK(fused["launches"] == plain["launches"]);
  const int64_t pixels = 4 * 32 * 32;
  int64_t elements = 0, channels = 0;
  for (int stage = 0; stage < 3; ++stage) {
    elements += 6 * (pixels >> (2 * stage)) * (16 << stage);
    channels += 6 * (16 << stage);
  }
  // Two sums of a channel are written once and read twice, in float32.
  CHECK(plain["bytes_moved"].get<int64_t>() -
            fused["bytes_moved"].get<int64_t>() ==
        2 * elements - channels * 2 * 3 * 4);
}

TEST_CASE("bench prints what the published benchmarks print") {
  for (const bool inference : {false, true}) {
    std::vector<std::string> arguments =
        On("bench", {"--json", "--batch-size", "4", "--steps", "10",
                     "--warm-up", "1", "--precision", "fp16"});
    if (inference) arguments.emplace_back("--inference");
    const Outcome outcome = RunResNet50(arguments);
    CHECK(outcome.code == 0);
    CHECK(Lines(outcome.out) == 1);
    const auto result = LastObject(outcome.out);
    CHECK(result["mode"] == (inference ? "inference" : "training"));
    CHECK(result["precision"] == "fp16");
    CHECK(result["batch"] == 4);
    const double mean = result["seconds_mean"];
    CHECK(result["examples_per_second"].get<double>() ==
          doctest::Approx(4 / mean));
    CHECK(result["seconds_median"] <= result["seconds_p90"]);
    CHECK(result["arena_bytes"] > 0);
    // 0.27 million float32 parameters, and as much momentum in training.
    CHECK(result["variable_bytes"].get<double>() >
          (inference ? 1.07e6 : 2.14e6));
    CHECK(result["peak_bytes"] > result["arena_bytes"]);
    CHECK_FALSE(result["providers"].empty());
    CHECK(result["why_not_captured"] == "");  // as on every CPU
  }
}

TEST_CASE("a batch too large for memory is told before it is made") {
  for (const char* command : {"train", "bench"}) {
    CheckResNet50Error(RunResNet50({command, "--batch-size", "1000000"}), 1,
                       "a batch of 1000000 needs ");
  }
}

TEST_CASE("bad data are told, with code 1") {
  TemporaryFolder folder;
  CheckResNet50Error(RunResNet50({"train", "--data", folder.path()}), 1,
                     "no images in '");
  CheckResNet50Error(RunResNet50({"train", "--data", folder / "none"}), 1,
                     folder / "none");
  CheckResNet50Error(
      RunResNet50({"train", "--data", "cifar10", "--data-dir", folder.path()}),
      1, "no CIFAR-10 in '");
  std::ofstream(folder / "labels.csv") << "file,label\na.png,0\n";
  std::ofstream(folder / "a.png") << "no image";
  CheckResNet50Error(
      RunResNet50({"train", "--data", folder.path(), "--model", "resnet20"}), 1,
      "a.png': this is no image");
}

#if SLUICE_HAVE_PNG
TEST_CASE("image files are classified") {
  TemporaryFolder folder;
  const std::string log = folder / "log";
  CHECK(RunResNet50(On("train", {"--steps", "2", "--batch-size", "16",
                                 "--log-dir", log}))
            .code == 0);
  WritePicture(folder / "first.png", 40, 60);
  WritePicture(folder / "second.png", 90, 50);
  const auto predict = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"predict", "--data",   "cifar10",
                                          "--model", "resnet20", "--log-dir",
                                          log};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunResNet50(arguments);
  };
  const Outcome outcome =
      predict({"--json", folder / "first.png", folder / "second.png"});
  CHECK(outcome.code == 0);
  REQUIRE(Lines(outcome.out) == 2);
  const auto second = LastObject(outcome.out);
  CHECK(second["file"] == folder / "second.png");
  REQUIRE(second["top"].size() == 5);
  double sum = 0, before = 1;
  for (const auto& entry : second["top"]) {
    const double probability = entry["probability"];
    CHECK(probability <= before);
    before = probability;
    sum += probability;
    CHECK(entry["class"] >= 0);
    CHECK(entry["class"] < 10);
  }
  CHECK(sum <= doctest::Approx(1));
  CHECK(sum > 0.5);

  std::ofstream(folder / "names.txt") << "zero\none\ntwo\nthree\nfour\nfive\n"
                                      << "six\nseven\neight\nnine\n";
  const Outcome text =
      predict({"--labels", folder / "names.txt", folder / "second.png"});
  CHECK(Lines(text.out) == 6);
  CHECK(Contains(text.out, folder / "second.png\n"));
  const int64_t best = second["top"][0]["class"];
  const char* const names[] = {"zero", "one", "two",   "three", "four",
                               "five", "six", "seven", "eight", "nine"};
  CHECK(Contains(text.out, names[best]));
  // Lines may end as Windows ends them.
  const auto named = [&](const char* end) {
    std::ofstream file(folder / "names.txt", std::ios::binary);
    for (const char* name : names) file << name << end;
    file.close();
    return predict({"--json", "--labels", folder / "names.txt",
                    folder / "second.png"})
        .out;
  };
  CHECK(Contains(named("\n"), names[best]));
  CHECK(named("\r\n") == named("\n"));

  CheckResNet50Error(
      RunResNet50({"predict", "--data", "cifar10", "--model", "resnet56",
                   "--log-dir", log, folder / "first.png"}),
      1, "does not fit this model");
}

TEST_CASE("a folder of images trains") {
  TemporaryFolder folder;
  for (const char* name : {"train/cat", "train/dog", "val/cat", "val/dog"}) {
    std::filesystem::create_directories(folder / name);
    for (int i = 0; i < 3; ++i) {
      WritePicture(folder / fmt::format("{}/{}.png", name, i), 40 + i, 50);
    }
  }
  const Outcome outcome =
      RunResNet50({"train", "--data", folder.path(), "--model", "resnet20",
                   "--steps", "3", "--batch-size", "4", "--json"});
  CHECK(outcome.code == 0);
  CHECK(LastObject(outcome.out)["steps"] == 3);
  // Though its files are called as those that were trained on.
  CHECK(LastObject(outcome.out)["evaluated_on"] == "test");
}
#endif

}  // namespace
}  // namespace sluice
