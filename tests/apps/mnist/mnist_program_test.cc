// The mnist program from outside: results, bad input, exit codes, signals.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "io/checkpoints/checkpoint.h"
#include "tests/support/error_text.h"
#include "tests/support/last_object.h"
#include "tests/support/mnist_program.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
using testing::CheckMnistError;
using testing::Contains;
using testing::IdxFolder;
using testing::kMnist;
using testing::LastObject;
using testing::Lines;
using testing::MnistData;
using testing::OnMnist;
using testing::Outcome;
using testing::Process;
using testing::RunMnist;
using testing::TemporaryFolder;
using testing::TextOf;

TEST_CASE("a wrong command line is told in one line, with code 2") {
  const std::map<std::string, std::vector<std::string>> wrong = {
      {"subcommand is required", {}},
      {"unknown command 'fly'", {"fly"}},
      {"--modle", {"train", "--modle", "cnn"}},
      {"x not in {softmax,mlp,cnn}", {"train", "--model", "x"}},
      {"wanted a number from 0", {"train", "--epochs", "many"}},
      {"wanted a number from 1", {"train", "--batch-size", "0"}},
      {"wanted a decimal number, got '010'", {"train", "--batch-size", "010"}},
      {"wanted a decimal number, got '-01'", {"train", "--seed=-01"}},
      {"wanted a decimal number, got '08'",
       {"train", "--virtual-workers", "08"}},
      {"unknown optimizer 'x'", {"train", "--optimizer", "x"}},
      {"character 3: wanted a learning rate",
       {"train", "--learning-rate", "5:x"}},
      {"unknown device 'gpu'", {"train", "--device", "gpu"}},
      {"/null:0 computes nothing", {"train", "--device", "/null:0"}},
      {"/null:1 computes nothing", {"eval", "--device", "/null:1"}},
      {"--precision: wanted fp32, tf32, fp16 or bf16, got 'fp8'",
       {"train", "--precision", "fp8"}},
      {"wanted a number from 0 to 1024 or auto, got 'many'",
       {"train", "--input-threads", "many"}},
      {"or auto, got '3.5'", {"eval", "--input-threads", "3.5"}},
      {"or auto, got '-1'", {"train", "--input-threads=-1"}},
      {"--input-memory: wanted bytes such as 500M",
       {"train", "--input-memory", "2X"}},
      {"up to 1024T, got '0'", {"eval", "--input-memory", "0"}},
      {"wanted steps=FIRST:LAST", {"train", "--profile", "1:2"}},
      {"no trained model", {"eval"}},
      {"no trained model", {"predict"}},
      {"--output", {"export", "--weights", "x"}},
  };
  for (const auto& [part, arguments] : wrong) {
    CAPTURE(part);
    const Outcome outcome = RunMnist(arguments);
    CheckMnistError(outcome, 2, part);
    CHECK(Lines(outcome.err) == 1);
  }
  CHECK(RunMnist({"--help"}).code == 0);
  CHECK(Contains(RunMnist({"train", "--help"}).out, "--learning-rate"));
  CHECK(Contains(RunMnist({"--version"}).out, "mnist "));
}

TEST_CASE("json: one object per line, the result last and as documented") {
  const Outcome outcome = RunMnist(
      OnMnist("train", {"--epochs", "3", "--json", "--log-every", "10"}));
  CHECK(outcome.code == 0);
  std::map<std::string, int> events;
  for (const Json& object : testing::Objects(outcome.out)) {
    ++events[object["event"].get<std::string>()];
  }
  CHECK(events["start"] == 1);
  CHECK(events["first_step"] == 1);
  CHECK(events["step"] == 3);
  CHECK(events["evaluation"] == 3);
  const Json result = LastObject(outcome.out);
  std::vector<std::string> keys;
  for (const auto& [key, value] : result.items()) keys.push_back(key);
  CHECK(keys == std::vector<std::string>{"event", "model", "dataset", "steps",
                                         "evaluated_on", "test_accuracy",
                                         "examples_per_second", "seconds"});
  CHECK(result["evaluated_on"] == "test");
  CHECK(result["event"] == "result");
  CHECK(result["model"] == "mlp");
  CHECK(result["dataset"] == "mnist");
  CHECK(result["steps"] == 30);
  CHECK(result["test_accuracy"] > 0.5);
  // Exact: a count of right answers among 230.
  const double right = result["test_accuracy"].get<double>() * 230;
  CHECK(right == doctest::Approx(std::round(right)).epsilon(1e-12));
  CHECK(result["examples_per_second"] > 0);
  CHECK(result["seconds"] > 0);
}

TEST_CASE("every model and optimizer trains") {
  for (const char* model : {"softmax", "mlp", "cnn"}) {
    CAPTURE(model);
    CHECK(RunMnist({"train", "--data-dir", MnistData().path(), "--model", model,
                    "--max-steps", "2"})
              .code == 0);
  }
  for (const char* optimizer : {"sgd", "nesterov", "rmsprop", "adamw"}) {
    CAPTURE(optimizer);
    CHECK(
        RunMnist(OnMnist("train", {"--optimizer", optimizer, "--learning-rate",
                                   "1:0.001->0.01,2:0.01=>0.001", "--max-steps",
                                   "4", "--deterministic", "--threads", "1"}))
            .code == 0);
  }
}

TEST_CASE("--verbose says what the passes took and left") {
  const Outcome outcome =
      RunMnist(OnMnist("train", {"--max-steps", "1", "--verbose"}));
  CHECK(outcome.code == 0);
  CHECK(Contains(outcome.err, "pass prune: "));
  CHECK(Contains(outcome.err, " ms, "));
  CHECK(Contains(outcome.err, "pass schedule: "));
  CHECK(outcome.out.find("pass ") == std::string::npos);
}

TEST_CASE("checkpoint, resume, evaluate, predict, export") {
  TemporaryFolder folder;
  const std::vector<std::string> log = {"--log-dir", folder / "log"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), log.begin(), log.end());
    return more;
  };
  const Outcome first =
      RunMnist(OnMnist("train", with({"--epochs", "4", "--max-steps", "15"})));
  CHECK(first.code == 0);
  const Outcome second = RunMnist(OnMnist(
      "train", with({"--epochs", "4", "--json", "--profile", "steps=20:21"})));
  CHECK(second.code == 0);
  CHECK(Contains(second.err, "resuming from step 15 of "));
  CHECK(Contains(TextOf(folder / "log/trace-20-21.json"), "fc1"));
  CHECK(Contains(second.out, "\"input_wait\":"));
  CHECK(Contains(second.out, "\"input_stage\":\""));
  const Json trained = LastObject(second.out);
  CHECK(trained["steps"] == 40);

  const Outcome whole = RunMnist(
      OnMnist("train", {"--epochs", "4", "--log-dir", folder / "whole"}));
  CHECK(whole.code == 0);
  const auto read = [&](const std::string& part) {
    return ReadCheckpoint(folder / (part + "/checkpoint-40.safetensors"))
        .ValueOrThrow();
  };
  const Checkpoint parts = read("log"), one = read("whole");
  REQUIRE(parts.tensors.size() == one.tensors.size());
  for (size_t i = 0; i < one.tensors.size(); ++i) {
    CAPTURE(one.tensors[i].name);
    CHECK(parts.tensors[i].name == one.tensors[i].name);
    CHECK(parts.tensors[i].tensor.BitEqual(one.tensors[i].tensor));
  }

  const Json evaluated =
      LastObject(RunMnist(OnMnist("eval", with({"--json"}))).out);
  CHECK(evaluated["test_accuracy"] == trained["test_accuracy"]);
  CHECK(evaluated["steps"] == 40);

  const Outcome predicted =
      RunMnist(OnMnist("predict", with({"--count", "7", "--json"})));
  CHECK(Lines(predicted.out) == 7);
  const Json last = LastObject(predicted.out);
  CHECK(last["index"] == 6);
  CHECK(last["probabilities"].size() == 10);
  CHECK(last["digit"].is_number_integer());

  CHECK(RunMnist(OnMnist("export", with({}))).code == 0);
  const Outcome from = RunMnist(OnMnist(
      "predict", {"--from", folder / "log/export", "--count", "7", "--json"}));
  CHECK(from.code == 0);
  CHECK(LastObject(from.out)["digit"] == last["digit"]);
  CHECK(LastObject(from.out)["probabilities"] == last["probabilities"]);

  const Outcome other =
      RunMnist({"train", "--data-dir", MnistData().path(), "--model", "softmax",
                "--log-dir", folder / "log"});
  CheckMnistError(other, 1, "does not fit this model");
  CHECK(Contains(other.err, "missing: 'logits/weights") == false);
  CHECK(Contains(other.err, "extra: "));
  CHECK(read("log").tensors.size() == one.tensors.size());
}

TEST_CASE("trained in one precision, used in another") {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  const Outcome train = RunMnist(
      OnMnist("train", {"--epochs", "3", "--log-dir", log, "--log-every", "10",
                        "--precision", "fp16", "--json"}));
  CHECK(train.code == 0);
  CHECK(Contains(train.out, "\"loss_scale\":32768.0"));
  CHECK(Contains(train.err, "loss scale 32768"));
  const double accuracy = LastObject(train.out)["test_accuracy"];
  for (const char* precision : {"fp32", "tf32", "fp16", "bf16"}) {
    CAPTURE(precision);
    const Outcome eval = RunMnist(OnMnist(
        "eval", {"--log-dir", log, "--precision", precision, "--json"}));
    CHECK(eval.code == 0);
    // Up to two of the 230 may lie on the edge.
    CHECK(LastObject(eval.out)["test_accuracy"].get<double>() ==
          doctest::Approx(accuracy).epsilon(0.01));
    const Outcome predict =
        RunMnist(OnMnist("predict", {"--log-dir", log, "--precision", precision,
                                     "--count", "3"}));
    CHECK(predict.code == 0);
  }
}

TEST_CASE("bad data is told, with code 1") {
  CheckMnistError(RunMnist({"train", "--data-dir", "/no/such/folder"}), 1,
                  "no MNIST in '/no/such/folder'");
  const auto train = [](const IdxFolder& data) {
    return RunMnist({"train", "--data-dir", data.path(), "--model", "softmax"});
  };
  {
    const IdxFolder data(20, 20);
    std::ofstream(data / "train-images-idx3-ubyte") << "not an IDX file";
    CheckMnistError(train(data), 1, "train-images-idx3-ubyte");
  }
  {
    const IdxFolder data(20, 20);
    data.WriteFile("train-labels-idx1-ubyte", {20}, std::string(20, '\x0b'));
    CheckMnistError(train(data), 1, "label 11 at index 0 is not in 0..9");
  }
  {
    const IdxFolder data(20, 20);
    data.WriteFile("train-labels-idx1-ubyte", {19}, std::string(19, '\x01'));
    CheckMnistError(train(data), 1, "20 images");
  }
  {
    const IdxFolder data(20, 20);
    std::filesystem::resize_file(data / "train-images-idx3-ubyte", 1000);
    CheckMnistError(train(data), 1, "train-images-idx3-ubyte");
  }
  {
    const IdxFolder data(20, 20);
    std::filesystem::remove(data / "train-images-idx3-ubyte");
    std::ofstream(data / "train-images-idx3-ubyte.gz") << "\x1f\x8bgarbage";
    CheckMnistError(train(data), 1, "train-images-idx3-ubyte.gz");
  }
}

TEST_CASE("folders and files that cannot be used are told, with code 1") {
  TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  CheckMnistError(RunMnist(OnMnist("train", {"--log-dir", folder / "file"})), 1,
                  folder / "file");
  CheckMnistError(RunMnist(OnMnist("train", {"--log-dir", "/proc/none"})), 1,
                  "/proc/none");
  CheckMnistError(RunMnist(OnMnist("train", {"--weights", folder / "file"})), 1,
                  folder / "file");
  CheckMnistError(RunMnist(OnMnist("eval", {"--log-dir", folder / "none"})), 1,
                  "no checkpoint in");
  CheckMnistError(RunMnist(OnMnist("predict", {"--from", folder / "none"})), 1,
                  "model.json");
  CheckMnistError(RunMnist(OnMnist("train", {"--device", "/gpu:0"})), 1,
                  "/gpu:0");

  // A checkpoint with a flipped byte.
  CHECK(RunMnist(
            OnMnist("train", {"--log-dir", folder / "log", "--max-steps", "1"}))
            .code == 0);
  const std::string path = folder / "log/checkpoint-1.safetensors";
  std::string bytes = TextOf(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
  CheckMnistError(RunMnist(OnMnist("train", {"--log-dir", folder / "log"})), 1,
                  "checkpoint-1.safetensors");
  CHECK(TextOf(path) == bytes);
}

TEST_CASE("a loss that is no number ends training with code 1") {
  TemporaryFolder folder;
  const Outcome outcome =
      RunMnist(OnMnist("train", {"--optimizer", "sgd", "--learning-rate",
                                 "1e30", "--log-dir", folder / "log"}));
  CheckMnistError(outcome, 1, "the first value that is not finite came from '");
}

}  // namespace
}  // namespace sluice
