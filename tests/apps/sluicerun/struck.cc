// A program whose processes do to themselves what a script says, each thing
// once (tests/support/strikes.h):
//
//   struck --strikes TEXT --marks FOLDER [--pace US] train ...
//
// In FOLDER a file of a strike's number says that it came. With --pace each
// batch takes that many microseconds more.
//
// What it trains shows which examples were trained on: `seen/table` loses 1 for
// each time that an example is part of an update that stands, by plain
// gradient descent in which nothing else moves it.
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "graph/builder.h"
#include "io/sources/datasets.h"
#include "models/cli/main.h"
#include "models/nn/layers.h"
#include "models/nn/losses.h"
#include "models/nn/metrics.h"
#include "tests/support/strikes.h"

namespace sluice {
namespace {

using testing::Strike;
using Phase = Strike::Phase;

constexpr int64_t kExamples = 64, kTestExamples = 32, kInputs = 12;
constexpr int64_t kBatch = 8;

// What this process has come to, and what is to happen there.
class Script {
 public:
  void Read(int argc, char** argv, std::vector<const char*>* rest) {
    for (int i = 0; i < argc; ++i) {
      const std::string_view word = argv[i];
      if (word == "--strikes") {
        strikes_ = testing::StrikesOf(argv[++i]);
      } else if (word == "--marks") {
        marks_ = argv[++i];
      } else if (word == "--pace") {
        pace_ = std::chrono::microseconds(std::atoll(argv[++i]));
      } else {
        rest->push_back(argv[i]);
      }
    }
    const char* const server = std::getenv("SLUICE_SERVER");
    const char* const rank = std::getenv("SLUICE_RANK");
    is_server_ = server != nullptr;
    number_ = std::atoi(is_server_ ? server : rank != nullptr ? rank : "0");
    ready_ = true;
  }

  void Comes(Phase phase, int at = 0, int then = 0) {
    if (!ready_) return;
    for (size_t i = 0; i < strikes_.size(); ++i) {
      const Strike& strike = strikes_[i];
      if (strike.server != is_server_ || strike.number != number_) continue;
      if (strike.phase != phase || strike.at != at) continue;
      if (phase == Phase::kComputing) {
        std::thread([this, i] {
          std::this_thread::sleep_for(
              std::chrono::microseconds(strikes_[i].then));
          Strikes(i);
        }).detach();
      } else if (strike.then == then) {
        Strikes(i);
      }
    }
  }

  void Reads(bool training) {
    if (!training) {
      Comes(Phase::kEvaluating, ++evaluated_);
      return;
    }
    if (pace_.count() > 0) std::this_thread::sleep_for(pace_);
    const int batch = ++batches_;
    sends_ = 0;
    Comes(Phase::kReading, batch);
    Comes(Phase::kComputing, batch);
  }
  void Sends() { Comes(Phase::kSending, batches_, ++sends_); }
  void Renames(bool done) { Comes(Phase::kSaving, saves_ + 1, done ? 1 : 0); }
  void Saved() { ++saves_; }

 private:
  void Strikes(size_t i) {
    const std::string mark = marks_ + "/" + std::to_string(i);
    const int made =
        open(mark.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (made < 0) return;  // it came before
    close(made);
    if (strikes_[i].harm == Strike::Harm::kTell) return;
    if (strikes_[i].harm == Strike::Harm::kHold) {
      while (access((marks_ + "/go").c_str(), F_OK) != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      return;
    }
    if (strikes_[i].harm == Strike::Harm::kPart) {
      std::thread([] { pause(); }).detach();
      pthread_exit(nullptr);
    }
    kill(getpid(), strikes_[i].harm == Strike::Harm::kKill ? SIGKILL : SIGSTOP);
    // A signal to the process may take another of its threads first.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  std::vector<Strike> strikes_;
  std::string marks_;
  std::chrono::microseconds pace_{0};
  bool is_server_ = false;
  int number_ = 0;
  std::atomic<bool> ready_ = false;
  std::atomic<int> batches_ = 0, evaluated_ = 0, sends_ = 0, saves_ = 0;
};

Script& TheScript() {
  static Script& script = *new Script;  // threads that end last use it, too
  return script;
}

Dataset Input(const RunContext& run) {
  const bool training = run.training();
  const int64_t count = training ? kExamples : kTestExamples;
  Tensor x(DType::kFloat32, {count, kInputs});
  Tensor id(DType::kInt64, {count}), label(DType::kInt64, {count});
  uint32_t state = training ? 1 : 2;
  for (int64_t i = 0; i < count; ++i) {
    id.data<int64_t>()[i] = i;
    label.data<int64_t>()[i] = i % 3;
    for (int64_t j = 0; j < kInputs; ++j) {
      state = state * 1664525U + 1013904223U;
      x.data<float>()[kInputs * i + j] =
          (i % 3 == j % 3 ? 0.5F : 0.F) +
          static_cast<float>(state >> 8) * 0x1p-24F;
    }
  }
  Dataset examples =
      datasets::FromTensors({{"x", x}, {"id", id}, {"label", label}});
  if (training) examples = examples.Shuffle(kExamples, run.seed).Repeat();
  return examples.Batch(run.batch_size).Map([training](Example&) {
    TheScript().Reads(training);
  });
}

ModelSpec Model(Scope& scope, const Features& in, const RunContext& run) {
  Output x = layers::Dense(scope / "first", in["x"],
                           {.units = 24, .activation = Relu});
  x = layers::BatchNorm(scope / "norm", x, {.training = run.training()});
  x = layers::Dense(scope / "second", x, {.units = 24, .activation = Relu});
  const Output logits = layers::Dense(scope / "logits", x, {.units = 3});
  const Output seen = layers::Embedding(
      scope / "seen", in["id"],
      {.size = kExamples, .dimensions = 1, .table = initializers::Constant(0)});
  const Output loss = losses::SparseSoftmaxCrossEntropy(logits, in["label"]);
  return {.loss = Mean(seen) + loss * 0.002F,
          .metrics = {{"accuracy", Accuracy(logits, in["label"])}}};
}

// The mean of a batch's gradients, times its examples.
Optimizer Train(const RunContext&) {
  return optimizers::Sgd(static_cast<double>(kBatch));
}

void Defaults(RunContext& run) {
  run.batch_size = kBatch;
}

int Run(int argc, char** argv) {
  std::vector<const char*> rest;
  TheScript().Read(argc, argv, &rest);
  TheScript().Comes(Phase::kStart);
  TheScript().Comes(Phase::kComputing, 0);
  const int code = Main(static_cast<int>(rest.size()), rest.data(),
                        {.name = "struck",
                         .input = Input,
                         .model = Model,
                         .optimizer = Train,
                         .defaults = Defaults});
  TheScript().Comes(Phase::kEnd);
  return code;
}

}  // namespace
}  // namespace sluice

// In the place of the C library's, for all of this program.
extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  sluice::TheScript().Sends();
  return syscall(SYS_sendmsg, socket, message, flags);
}
extern "C" ssize_t send(int socket, const void* data, size_t size, int flags) {
  sluice::TheScript().Sends();
  return syscall(SYS_sendto, socket, data, size, flags, nullptr, 0);
}
extern "C" int rename(const char* from, const char* to) noexcept {
  const bool saves = std::strstr(to, ".safetensors") != nullptr;
  if (saves) sluice::TheScript().Renames(false);
  const int result =
      static_cast<int>(syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
  if (saves) sluice::TheScript().Renames(true);
  if (saves) sluice::TheScript().Saved();
  return result;
}

int main(int argc, char** argv) {
  return sluice::Run(argc, argv);
}
