// Exported models: the same predictions without the model's source, and bad
// folders.
#include "models/train/export.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/files/schemes.h"
#include "models/train/trainer.h"
#include "tests/support/error_text.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::FaultFileSystem;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;

// A folder with a trained and exported model.
struct Exported {
  TemporaryFolder folder;
  Trainer trainer{ToySpec(), ToyRun(3), {.log_dir = folder / "log"}};
  std::string path = folder / "model";
  Exported() {
    trainer.Train();
    trainer.Export(path);
  }
};

TEST_CASE("an exported model predicts what the checkpoint does") {
  Exported exported;
  const auto model = LoadExported(exported.path);
  CHECK(model->info().program == "toy");
  CHECK(model->info().step == 30);
  // The label is not needed for prediction.
  REQUIRE(model->inputs().size() == 1);
  CHECK(model->inputs().at("x").shape == Shape{kUnknown, 3});
  CHECK(model->outputs().at("probabilities").dtype == DType::kFloat32);
  int64_t rows = 0;
  exported.trainer.Predict([&](const Example& batch, const Example& wanted) {
    const Example got = model->Predict(batch);
    CHECK(got["probabilities"].BitEqual(wanted["probabilities"]));
    rows += RowsOf(got);
    return true;
  });
  CHECK(rows == testing::kPoints);
  // Another size of batch.
  const Tensor x = Tensor::Full(DType::kFloat32, {2, 3}, 0.5);
  CHECK(model->Predict({{"x", x}})["probabilities"].shape() == Shape{2, 3});
}

// A model's own variable that is named as another's average would be.
TEST_CASE("a model with an average of its own is what was trained") {
  TrainerSpec spec = ToySpec();
  spec.model = [](Scope& scope, const Features& in, const RunContext&) {
    const Output shift = scope.graph().Variable("shift", Zeros({3}));
    const Output factor = scope.graph().Variable("shift/average", Ones({3}));
    const Output hidden = layers::Dense(scope / "fc1", in["x"] * factor + shift,
                                        {.units = 16, .activation = Relu});
    const Output logits = layers::Dense(scope / "logits", hidden, {.units = 3});
    return ModelSpec{
        .loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"])),
        .exports = {{"probabilities", Softmax(logits)}}};
  };
  TemporaryFolder folder;
  Trainer trainer(spec, ToyRun(3), {.log_dir = folder / "log"});
  const TrainingResult trained = trainer.Train();
  CHECK(*trainer.Evaluate()->Find("loss") ==
        doctest::Approx(*trained.evaluation->Find("loss")).epsilon(1e-6));
  trainer.Export(folder / "model");
  const auto model = LoadExported(folder / "model");
  trainer.Predict([&](const Example& batch, const Example& wanted) {
    CHECK(model->Predict(batch)["probabilities"].BitEqual(
        wanted["probabilities"]));
    return true;
  });
}

TEST_CASE("names may have colons") {
  TrainerSpec spec = ToySpec();
  spec.input = [](const RunContext& run) {
    return testing::Points(run).Map(
        [](Example& example) { example.Set("x:0", example["x"]); });
  };
  spec.model = [](Scope& scope, const Features& in, const RunContext&) {
    const Output logits =
        layers::Dense(scope / "fc:1", in["x:0"], {.units = 3});
    return ModelSpec{
        .loss = Mean(SparseSoftmaxCrossEntropy(logits, in["label"])),
        .exports = {{"probabilities", Softmax(logits)}}};
  };
  TemporaryFolder folder;
  Trainer trainer(spec, ToyRun(1), {.log_dir = folder / "log"});
  trainer.Train();
  trainer.Export(folder / "model");
  const auto model = LoadExported(folder / "model");
  CHECK(model->inputs().at("x:0").shape == Shape{kUnknown, 3});
  int64_t rows = 0;
  trainer.Predict([&](const Example& batch, const Example& wanted) {
    const Example got = model->Predict(batch);
    CHECK(got["probabilities"].BitEqual(wanted["probabilities"]));
    rows += RowsOf(got);
    return true;
  });
  CHECK(rows == testing::kPoints);
}

TEST_CASE("feeds that do not fit are told") {
  Exported exported;
  const auto model = LoadExported(exported.path);
  CHECK(Contains(ErrorOf([&] { model->Predict({}); }), "x"));
  CHECK(
      Contains(ErrorOf([&] {
                 model->Predict({{"x", Tensor::Zeros(DType::kInt64, {2, 3})}});
               }),
               "input 'x' is int64, the model wants float32"));
  const std::string error = ErrorOf([&] {
    model->Predict({{"x", Tensor::Zeros(DType::kFloat32, {2, 4})}});
  });
  CHECK(Contains(error, "[2,4]"));
  CHECK(Contains(error, "(" + exported.path + "/graph.txt, line "));
}

// The one before or the next, whatever is lost with the power.
TEST_CASE("an export that is cut off leaves the one before, or is whole") {
  static FaultFileSystem files;
  RegisterScheme("exportfault", files);
  TemporaryFolder folder;
  Trainer first{ToySpec(), ToyRun(1), {.log_dir = folder / "first"}};
  Trainer second{ToySpec(), ToyRun(2), {.log_dir = folder / "second"}};
  first.Train();
  second.Train();
  const Tensor x = Tensor::Full(DType::kFloat32, {1, 3}, 0.5);
  const auto predicted = [&](ExportedModel& model) {
    return model.Predict({{"x", x}})["probabilities"].Clone();
  };
  using Fault = FaultFileSystem::Fault;
  using Loss = FaultFileSystem::Loss;
  for (const auto& [fault, loss] :
       {std::pair(Fault::kKill, Loss::kUnsyncedDataAndNames),
        std::pair(Fault::kDiskFull, Loss::kNothing)}) {
    int64_t kept = 0, whole = 0;
    for (int operation = 1; whole < 3; ++operation) {
      CAPTURE(operation);
      const std::string path = fmt::format("exportfault://{}-{}",
                                           static_cast<int>(fault), operation);
      first.Export(path);
      const Tensor before = predicted(*LoadExported(path));
      // Also over one that was cut off.
      for (const bool again : {false, true}) {
        files.Restart(loss);
        files.FailAt(operation, fault);
        const bool failed =
            ErrorOf([&] { second.Export(path); }) != "(no error)";
        files.Restart(loss);
        const auto model = LoadExported(path);
        const int64_t step = model->info().step;
        CHECK((step == 20 || (failed && step == 10)));
        CHECK(predicted(*model).BitEqual(before) == (step == 10));
        if (again) continue;
        whole += failed ? 0 : 1;
        kept += step == 10 ? 1 : 0;
      }
      second.Export(path);
      CHECK(ReadExportInfo(path).step == 20);
      std::vector<std::string> left = files.List(path).ValueOrThrow();
      std::erase_if(left, IsTemporaryName);
      CHECK(left == std::vector<std::string>{"graph.txt", "model.json",
                                             "weights.safetensors"});
    }
    CHECK(kept > 0);
  }
}

// Each would otherwise write files of its own over those of the other one.
TEST_CASE("who exports where another one does is told, and changes nothing") {
  Exported exported;
  Trainer other{ToySpec(), ToyRun(1), {.log_dir = exported.folder / "other"}};
  other.Train();
  {
    const auto lock = FileSystem::Posix()
                          .Lock(exported.path + "/export.lock", "the test")
                          .ValueOrThrow();
    CHECK(Contains(ErrorOf([&] { other.Export(exported.path); }),
                   "'" + exported.path +
                       "' is being written by another export (the test)"));
    CHECK(LoadExported(exported.path)->info().step == 30);
  }
  other.Export(exported.path);
  CHECK(LoadExported(exported.path)->info().step == 10);
}

void Overwrite(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

TEST_CASE("folders that hold no model, or a damaged one") {
  TemporaryFolder empty;
  CHECK(Contains(ErrorOf([&] { LoadExported(empty / "none"); }), "model.json"));
  {
    Exported exported;
    for (const char* text :
         {"", "{", "[]", "{\"format\": 3}", "{\"format\": \"other\"}",
          "{\"format\": \"sluice.model\", \"version\": \"x\"}",
          "{\"format\": \"sluice.model\", \"version\": 1}",
          "{\"format\": \"sluice.model\", \"version\": 1, \"program\": 1}",
          "{\"format\": \"sluice.model\", \"version\": 1, \"step\": 1.5}",
          "{\"format\": \"sluice.model\", \"version\": 1, \"step\": 5e19}",
          "{\"format\": \"sluice.model\", \"version\": 1, \"step\": "
          "18446744073709551615}",
          "{\"format\": \"sluice.model\", \"version\": 1, \"inputs\": {}, "
          "\"outputs\": {}}",
          "{\"format\": \"sluice.model\", \"version\": 1, \"weights\": "
          "\"../weights.safetensors\"}",
          "{\"format\": \"sluice.model\", \"version\": 1, \"inputs\": "
          "{\"x\": {\"tensor\": 4}}}"}) {
      CAPTURE(text);
      Overwrite(exported.path + "/model.json", text);
      CHECK(Contains(ErrorOf([&] { LoadExported(exported.path); }),
                     "model.json"));
    }
    Overwrite(exported.path + "/model.json",
              "{\"format\": \"sluice.model\", \"version\": 1, \"inputs\": "
              "{\"x\": {\"tensor\": \"y\"}}}");
    CHECK(Contains(ErrorOf([&] { LoadExported(exported.path); }),
                   "the graph has no node 'y'"));
  }
  {
    Exported exported;
    Overwrite(exported.path + "/graph.txt", "nonsense\n");
    CHECK(Contains(ErrorOf([&] { LoadExported(exported.path); }), "graph.txt"));
  }
  {
    Exported exported;
    Overwrite(exported.path + "/weights.safetensors", "short");
    CHECK(Contains(ErrorOf([&] { LoadExported(exported.path); }),
                   "weights.safetensors"));
  }
}

}  // namespace
}  // namespace sluice
