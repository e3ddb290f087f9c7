// What can be wrong with a GPU, its driver and its memory: one line each.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "kernels/cuda/runtime/check.h"
#include "models/optim/optimizers.h"
#include "tests/kernels/cuda/emulation/emulator.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/error_text.h"
#include "tests/support/ramp.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

namespace emulation = cuda::emulation;
using testing::Contains;
using testing::ErrorOf;
using testing::OnGpu;
using testing::OnRealGpu;
using testing::Ramp;

// Puts the machine in order again.
struct Repaired {
  ~Repaired() {
    emulation::SetMachine({});
    emulation::Fail("", cudaSuccess);
  }
};

std::string Opening(const std::string& device) {
  SessionOptions options = OnGpu();
  options.devices = {device};
  const Graph graph;
  return ErrorOf([&] { const Session session(graph, options); });
}

TEST_CASE("a GPU that cannot be used says why and what to do") {
  if (OnRealGpu()) return;
  const Repaired repaired;
  const auto refused = [](const emulation::Machine& machine,
                          cudaError_t error = cudaSuccess) {
    emulation::SetMachine(machine);
    emulation::Fail(error == cudaSuccess ? "" : "cudaGetDeviceCount", error);
    return Opening("/gpu:0");
  };
  // What CUDA says where libcuda is missing.
  CHECK_EQ(refused({.driver = 0}, cudaErrorInsufficientDriver),
           "device '/gpu:0': there is no NVIDIA driver; install one, or use "
           "/cpu:0");
  CHECK_EQ(
      refused({.driver = 12040}, cudaErrorInsufficientDriver),
      "device '/gpu:0': the NVIDIA driver is too old: it serves CUDA 12.4, "
      "and 13.0 or newer is needed; update it, or use /cpu:0");
  CHECK_EQ(refused({}, cudaErrorNoDevice),
           "device '/gpu:0': this machine has no GPU that CUDA can use; use "
           "/cpu:0");
  CHECK_EQ(refused({.gpus = 0}), refused({}, cudaErrorNoDevice));
  CHECK_EQ(refused({}, cudaErrorECCUncorrectable),
           "device '/gpu:0': no GPU can be used: uncorrectable ECC error "
           "encountered; use /cpu:0");
  CHECK_EQ(refused({.major = 7}),
           "device '/gpu:0': emulated, compute capability 7.0, 16.0 GiB is too "
           "old: compute capability 8.0 or newer is needed; use /cpu:0");
  CHECK_EQ(refused({}), "(no error)");
}

TEST_CASE("a GPU beyond those that there are is refused") {
  if (OnRealGpu()) return;
  const Repaired repaired;
  emulation::SetMachine({.gpus = 1});
  CHECK_EQ(Opening("/gpu:1"), "device '/gpu:1': there is one GPU, /gpu:0");
  CHECK_EQ(Opening("/gpu:0"), "(no error)");
}

TEST_CASE("names that are none are refused") {
  for (const std::string name :
       {"/gpu:", "/gpu:-1", "/gpu:x", "gpu:0", "/gpu", "/gpu:0x", "/gpu: 0",
        "/GPU:0", "/tpu:0", "", "/gpu:2147483648"}) {
    CHECK_EQ(Opening(name),
             "unknown device '" + name +
                 "'; devices are named like /cpu:0, /gpu:0 or /null:0, in a "
                 "cluster like /job:worker/task:0/cpu:0");
  }
}

TEST_CASE("a GPU that the module has no machine code for") {
  if (OnRealGpu()) return;
  const Repaired repaired;
  Graph graph;
  const Output y = Softmax(graph.Placeholder("x", DType::kFloat32, {4}));
  Session session(graph, OnGpu());
  emulation::Fail("cudaLaunchKernelEx", cudaErrorNoKernelImageForDevice);
  const std::string message = ErrorOf([&] {
    session.Run({{y.node().input(0), Ramp({4})}}, y);
  });
  CHECK(Contains(message, "Softmax '"));
  CHECK(Contains(message,
                 "no kernel image is available for execution on the device; "
                 "build libsluice_cuda.so for this GPU"));
}

// --- Out of memory -----------------------------------------------------------

// A training step that needs all kinds of memory: for variables, values, feeds
// and fetches, an optimizer's table and reports of labels.
struct Training {
  Graph graph;
  const int64_t columns;
  Output x = graph.Placeholder("x", DType::kFloat32, {4, columns});
  Output w = graph.Variable("w", CopyOf(Ramp({columns, 3})));
  Output labels = graph.Constant(Tensor::Array<int64_t>({4}, {0, 1, 2, 0}));
  Output loss = Mean(SparseSoftmaxCrossEntropy(MatMul(x, w), labels));
  Operation update = optimizers::Momentum(0.1, 0.9).Minimize(loss);

  explicit Training(int64_t columns_ = 5) : columns(columns_) {}
  Tensor Step(Session& session) {
    return session.Run({{x, Ramp({4, columns})}}, loss, {update});
  }
};

TEST_CASE("memory may run out anywhere, and the step be run again") {
  if (OnRealGpu()) return;
  const Repaired repaired;
  for (const std::string function : {"cudaMalloc", "cudaMallocHost"}) {
    std::vector<std::string> messages;
    int calls = 0;
    for (; calls < 100; ++calls) {
      CAPTURE(calls);
      emulation::Fail(function, cudaErrorMemoryAllocation, calls);
      Training t;
      Session session(t.graph, OnGpu());
      const auto step = [&] {
        if (!session.IsInitialized(t.w)) session.Initialize();
        t.Step(session);
        session.Read(t.w);
      };
      const std::string message = ErrorOf(step);
      if (!emulation::Failed()) break;
      messages.push_back(message);
      CHECK_EQ(ErrorOf(step), "(no error)");  // there is enough now
    }
    CHECK(calls >= 4);
    CHECK(calls < 100);
    const auto count = [&](const std::string& part) {
      return std::count_if(messages.begin(), messages.end(),
                           [&](const std::string& message) {
                             return message.find(part) != std::string::npos;
                           });
    };
    CHECK_EQ(count(function == "cudaMalloc" ? "out of GPU memory: "
                                            : "out of pinned memory: "),
             calls);
    CHECK(count("feeds and fetches of one step: ") > 0);
    if (function == "cudaMalloc") {
      CHECK_EQ(count("variable 'w': "), 1);
      CHECK(count("intermediate values of one step: ") > 0);
    }
  }
}

// --- A device lost -----------------------------------------------------------

constexpr const char* kLost = "GPU 0 is lost (CUDA, ";
constexpr const char* kAdvice = "start the program again";

TEST_CASE("a lost device is one line, whatever call finds it, in any run") {
  if (OnRealGpu()) return;
  const Repaired repaired;
  for (const std::string function :
       {"cudaLaunchKernelEx", "cudaMemcpyAsync", "cudaStreamSynchronize",
        "cudaEventSynchronize", "cudaEventRecord", "cudaStreamWaitEvent",
        "cudaStreamBeginCapture", "cudaStreamEndCapture",
        "cudaGraphInstantiate", "cudaGraphLaunch", "cudaSetDevice", "work"}) {
    int lost = 0;
    for (int after = 0; after < 40; ++after) {
      CAPTURE(function);
      CAPTURE(after);
      // Large feeds are copied by a stream of their own.
      Training t(function == "cudaStreamWaitEvent" ? 5000 : 5);
      emulation::Fail("", cudaSuccess);
      Session session(t.graph, OnGpu());
      session.Initialize();
      emulation::Fail(function, cudaErrorIllegalAddress, after);
      // The first, one that captures, and two that replay.
      std::string message = "(no error)";
      for (int run = 0; run < 4 && message == "(no error)"; ++run) {
        message = ErrorOf([&] { t.Step(session); });
      }
      if (!emulation::Failed()) break;
      ++lost;
      CHECK(Contains(message, kLost));
      CHECK(Contains(message, "an illegal memory access was encountered"));
      CHECK(Contains(message, kAdvice));
      CHECK(message.find('\n') == std::string::npos);
      // What comes after says the same, and nothing waits for ever.
      CHECK(Contains(ErrorOf([&] { t.Step(session); }), kLost));
      CHECK(Contains(ErrorOf([&] { session.Read(t.w); }), kLost));
      CHECK(Contains(ErrorOf([&] {
                       session.Write(t.w, Ramp({t.columns, 3}));
                     }),
                     kLost));
    }
    CHECK_MESSAGE(lost > 0, function);
  }
}

TEST_CASE("a kernel that fails is named when the host is there to see it") {
  if (OnRealGpu()) return;
  const Repaired repaired;
  Training t;
  Session session(t.graph, OnGpu());
  session.Initialize();
  emulation::Fail("cudaLaunchKernelEx", cudaErrorLaunchFailure);
  const std::string message = ErrorOf([&] { t.Step(session); });
  CHECK(Contains(message, "AssignAdd 'train/assign_add'"));
  CHECK(Contains(message, "kernel '"));
  CHECK(Contains(message, "unspecified launch failure"));
}

TEST_CASE("a step without fetches loses the device in a later call") {
  if (OnRealGpu()) return;
  const Repaired repaired;
  Training t;
  Session session(t.graph, OnGpu());
  session.Initialize();
  const Feed feed = {t.x, Ramp({4, 5})};
  session.Run({feed}, t.update);
  emulation::Fail("work", cudaErrorECCUncorrectable, 5);
  session.Run({feed}, t.update);
  CHECK(Contains(ErrorOf([&] { session.Read(t.w); }), kLost));
}

TEST_CASE("a step on two devices ends when one of them is lost") {
  if (OnRealGpu()) return;
  const Repaired repaired;
  for (const std::string function : {"cudaLaunchKernelEx", "work"}) {
    emulation::Fail("", cudaSuccess);
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {2, 3});
    Output there;
    {
      const DeviceScope on_gpu(graph, "/gpu:0");
      there = Softmax(x);
    }
    const DeviceScope on_cpu(graph, "/cpu:0");
    const Output y = there * 2.0f;
    SessionOptions options = OnGpu();
    options.devices = {"/cpu:0", "/gpu:0"};
    Session session(graph, options);
    const Feed feed = {x, Ramp({2, 3})};
    session.Run({feed}, y);
    emulation::Fail(function, cudaErrorLaunchFailure);
    CHECK(Contains(ErrorOf([&] { session.Run({feed}, y); }), kLost));
  }
}

TEST_CASE("training ends with the first error and names what was saved") {
  if (OnRealGpu()) return;
  const Repaired repaired;
  const testing::TemporaryFolder folder;
  RunContext run = testing::ToyRun(0);
  run.steps = 8;
  TrainingOptions options;
  options.session = OnGpu();
  options.evaluate_every = 0.4;  // and saves, after steps 4 and 8
  for (const bool saves : {true, false}) {
    for (const std::string function : {"cudaGraphLaunch", "work"}) {
      int with = 0, without = 0;
      for (int after = 0; saves || after == 0;
           after += function == "work" ? 250 : 9) {
        CAPTURE(function);
        CAPTURE(after);
        const std::string name = function + std::to_string(after);
        options.log_dir = saves ? folder / name : "";
        emulation::Fail("", cudaSuccess);
        Trainer trainer(testing::ToySpec(), run, options);
        emulation::Fail(function, cudaErrorLaunchFailure, after);
        const std::string message = ErrorOf([&] { trainer.Train(); });
        if (!emulation::Failed()) break;
        CHECK(Contains(message, kLost));
        const std::string named = options.log_dir + "/checkpoint-4.safetensors";
        const bool saved = std::filesystem::exists(named);
        CHECK_EQ(message.find("what was saved last is " + named) !=
                     std::string::npos,
                 saved);
        ++(saved ? with : without);
      }
      CHECK(without > 0);
      CHECK_EQ(with > 0, saves);
    }
  }
}

TEST_CASE("a library's error is the GPU's where that is lost") {
  if (OnRealGpu()) return;
  const Repaired repaired;
  const Status error = Internal("cuBLASLt, product: CUBLAS_STATUS_OF_A_KIND");
  CHECK_EQ(cuda::FailureOfLibrary(error).message(), error.message());
  // Contained errors are new in CUDA 13.
  for (const int code : {226, 700}) {
    emulation::Fail("cudaStreamQuery", static_cast<cudaError_t>(code));
    const Status found = cuda::FailureOfLibrary(error);
    CHECK(found.code() == Code::kUnavailable);
    CHECK(Contains(found.message(), "GPU 0 is lost (CUDA, cuBLASLt, product"));
  }
}

}  // namespace
}  // namespace sluice
