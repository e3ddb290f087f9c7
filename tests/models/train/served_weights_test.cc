// Trainings with tables on parameter servers that begin with weights: no
// process has a whole table on the way, and the bits are those of one process.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/session/cluster.h"
#include "tests/support/error_text.h"
#include "tests/support/sentences.h"
#include "tests/support/served_training.h"

namespace sluice {
namespace {

using testing::CheckEqual;
using testing::Contains;
using testing::kSync;
using testing::OfRows;
using testing::Reader;
using testing::Sentences;
using testing::Task;
using testing::TemporaryFolder;
using testing::ToyRun;
using testing::ToySpec;
using testing::Trained;
using testing::TrainOn;
using testing::TrainWith;

constexpr size_t kAny = std::numeric_limits<size_t>::max();

// A session that writes no variable of more bytes as a whole.
class WritesLittle final : public ClusterSession {
 public:
  WritesLittle(std::unique_ptr<ClusterSession> all, size_t most)
      : all_(std::move(all)), most_(most) {}
  std::shared_ptr<Rendezvous> rendezvous() override {
    return all_->rendezvous();
  }
  Result<uint64_t> Connect() override { return all_->Connect(); }
  std::vector<std::string> Descriptions() const override {
    return all_->Descriptions();
  }
  Result<std::unique_ptr<RemoteParts>> Register(
      const std::string& device,
      const std::vector<const StepPart*>& parts) override {
    return all_->Register(device, parts);
  }
  Result<Tensor> Read(const std::string& device,
                      const std::string& variable) override {
    return all_->Read(device, variable);
  }
  Status Write(const std::string& device, const std::string& variable,
               const Tensor& value) override {
    if (value.bytes() > most_) {
      return ResourceExhausted("'" + variable + "' is written as a whole");
    }
    return all_->Write(device, variable, value);
  }
  Result<bool> IsInitialized(const std::string& device,
                             const std::string& variable) override {
    return all_->IsInitialized(device, variable);
  }
  Result<Tensor> ReadRows(const std::string& device,
                          const std::string& variable, int64_t begin,
                          int64_t count) override {
    return all_->ReadRows(device, variable, begin, count);
  }
  Status WriteRows(const std::string& device, const std::string& variable,
                   int64_t begin, const Tensor& rows) override {
    return all_->WriteRows(device, variable, begin, rows);
  }

 private:
  const std::unique_ptr<ClusterSession> all_;
  const size_t most_;
};

// Of such sessions.
class WrittenLittle final : public Cluster {
 public:
  WrittenLittle(std::shared_ptr<Cluster> all, size_t most)
      : all_(std::move(all)), most_(most) {}
  Result<std::unique_ptr<ClusterSession>> Open(
      const Request& request) override {
    SLUICE_ASSIGN_OR_RETURN(auto session, all_->Open(request));
    return std::unique_ptr<ClusterSession>(
        std::make_unique<WritesLittle>(std::move(session), most_));
  }
  Result<std::string> Ask(const std::string& task,
                          const std::string& text) override {
    return all_->Ask(task, text);
  }

 private:
  const std::shared_ptr<Cluster> all_;
  const size_t most_;
};

Task ReaderTask(const Optimizer& optimizer) {
  Task task;
  task.run = ToyRun(1);
  task.run.batch_size = 12;
  task.spec = [optimizer](int) {
    TrainerSpec spec = ToySpec();
    spec.input = Sentences;
    spec.model = Reader;
    spec.optimizer = [optimizer](const RunContext&) { return optimizer; };
    return spec;
  };
  return task;
}

// The same training from a file by one process, and with its table on two
// servers, to which nothing of more than `most` bytes is written at once.
void CheckBegins(Task task, const std::string& weights,
                 const std::string& reset, size_t most) {
  task.options = [&](int) {
    TrainingOptions options;
    options.weights = weights;
    options.reset = reset;
    return options;
  };
  const Trained alone = TrainWith(1, task)[0];
  bool cut = false;
  task.after_step = [&](int, TrainingRun& run) {
    cut = run.IsTable("words/table");
  };
  const Trained served =
      TrainOn(2, 1, kSync, task, [&](TrainingServers& servers) {
        servers.cut_from = 1;
        servers.cluster =
            std::make_shared<WrittenLittle>(servers.cluster, most);
      })[0];
  CHECK(cut);
  CheckEqual(served, alone);
}

// A server's half of the table has more.
constexpr size_t kLittle = 1024;

TEST_CASE("a training with tables on servers begins with a checkpoint") {
  for (int trial = 0; trial < 6; ++trial) {
    CAPTURE(trial);
    TemporaryFolder folder;
    // With slots of the table, or averages, which come before it.
    Task teacher = ReaderTask(trial < 4 ? OfRows(trial + 1)
                                        : OfRows(trial).WithAverages(0.9));
    teacher.options = [&](int) {
      return TrainingOptions{.log_dir = folder / "teacher"};
    };
    const Trained taught = TrainWith(1, teacher)[0];
    REQUIRE(taught.error == "");
    const std::string saved = taught.result.checkpoint;
    const Task student = ReaderTask(OfRows(trial));
    CheckBegins(student, saved, "", kLittle);
    CheckBegins(student, saved, "words/*", kLittle);
    // As wrappers write it.
    std::vector<NamedTensor> tensors =
        ReadSafetensors(saved).ValueOrThrow().tensors;
    for (NamedTensor& tensor : tensors) tensor.name.insert(0, "module.");
    const std::string wrapped = folder / "wrapped.safetensors";
    REQUIRE(WriteSafetensors(wrapped, tensors).ok());
    CheckBegins(student, wrapped, "", kLittle);
  }
}

// Which is converted as a whole.
TEST_CASE("a table of another dtype, and one that does not fit") {
  TemporaryFolder folder;
  const std::string path = folder / "weights.safetensors";
  const Task task = ReaderTask(OfRows(0));
  Tensor table(DType::kFloat32, {testing::kWords, 4});
  for (int64_t i = 0; i < table.elements(); ++i) {
    table.data<float>()[i] = static_cast<float>(i % 64) / 64;
  }
  std::vector<NamedTensor> tensors = {
      {"words/table", table.Cast(DType::kFloat16)},
      {"logits/weights", Tensor::Full(DType::kFloat32, {12, 3}, 0.25)},
      {"logits/bias", Tensor::Zeros(DType::kFloat32, {3})}};
  REQUIRE(WriteSafetensors(path, tensors).ok());
  CheckBegins(task, path, "", kAny);
  const auto error = [&] {
    Task bad = task;
    bad.options = [&](int) {
      TrainingOptions options;
      options.weights = path;
      return options;
    };
    return TrainOn(2, 1, kSync, bad,
                   [](TrainingServers& servers) { servers.cut_from = 1; })[0]
        .error;
  };
  tensors[0].tensor = table.Rows(0, 20);
  REQUIRE(WriteSafetensors(path, tensors).ok());
  CHECK(Contains(error(), "reshaped: 'words/table'"));
  tensors.erase(tensors.begin());
  REQUIRE(WriteSafetensors(path, tensors).ok());
  CHECK(Contains(error(), "missing: 'words/table'"));
}

}  // namespace
}  // namespace sluice
