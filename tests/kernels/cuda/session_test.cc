// Whole sessions on /gpu:0, which is the emulation: its device memory faults
// for host code, and its streams do their work as late as they may.
#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "engine/runtime/trace.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "kernels/cuda/runtime/check.h"
#include "tests/kernels/cuda/emulation/emulator.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/error_text.h"
#include "tests/support/ramp.h"

namespace sluice {
namespace {

namespace emulation = cuda::emulation;
using testing::Contains;
using testing::ErrorOf;
using testing::OnGpu;
using testing::OnRealGpu;
using testing::Ramp;

TEST_CASE("a step gives the CPU's values, run after run, with changing feeds") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {4, 5});
  const Output y = Softmax(x);
  Session session(graph, OnGpu());
  Session cpu(graph);
  PreparedStep step = session.Prepare({{x, {4, 5}}}, {y, x});
  for (int run = 0; run < 5; ++run) {  // the third and later are replayed
    const Tensor value = Ramp({7, 4, 5}).Rows(run, run + 1).Reshaped({4, 5});
    std::vector<Tensor> got = step.MakeFetches();
    step.Run(std::vector<Tensor>{value}, got);
    CHECK(got[1].BitEqual(value));
    const Tensor wanted = cpu.Run({{x, value}}, y);
    for (int64_t i = 0; i < wanted.elements(); ++i) {
      CHECK(got[0].At(i) == doctest::Approx(wanted.At(i)).epsilon(1e-6));
    }
  }
  CHECK(step.info().why_not_captured.empty());
}

// y = 2 x and whether all is well with x, for x of n elements fed.
struct Doubling {
  explicit Doubling(int64_t n)
      : x(graph.Placeholder("x", DType::kFloat32, {n})),
        y(x + x),
        session(graph, OnGpu()),
        step(session.Prepare({{x, {n}}}, {y})) {}
  Tensor ValueOf(int64_t i) const {
    return Tensor::Full(DType::kFloat32, x.shape(), 1.5 * i);
  }

  Graph graph;
  Output x, y;
  Session session;
  PreparedStep step;
};

TEST_CASE("two runs are under way at a time, each with its feeds and fetches") {
  // Small blocks are copied by the compute queue, others by queues of their
  // own; the last of a block tells whether all of it was there in time.
  for (const int64_t n : {5, 40'000}) {
    CAPTURE(n);
    Doubling doubling(n);
    std::vector<PendingRun> runs;
    std::vector<std::vector<Tensor>> fetches;
    for (int i = 0; i < 7; ++i) {
      std::vector<Tensor> feeds = {doubling.ValueOf(i)};
      fetches.push_back(doubling.step.MakeFetches());
      runs.push_back(doubling.step.Start(feeds, fetches.back()));
      feeds[0].data<float>()[n - 1] = -1;  // may be reused at once
      CHECK(runs.back().under_way());
      // A third run waits for the first.
      if (i >= 2) CHECK_FALSE(runs[i - 2].under_way());
      if (i >= 2) CHECK(fetches[i - 2][0].At(n - 1) == 3 * (i - 2));
    }
    // In any order, and again.
    for (const int i : {6, 5, 6, 0}) {
      runs[i].Wait();
      CHECK_FALSE(runs[i].under_way());
      CHECK(fetches[i][0].At(0) == 3 * i);
      CHECK(fetches[i][0].At(n - 1) == 3 * i);
    }
  }
}

TEST_CASE("whole runs and started ones may mix") {
  Doubling doubling(30'000);
  std::vector<Tensor> first = doubling.step.MakeFetches(), second = first;
  second = doubling.step.MakeFetches();
  PendingRun run =
      doubling.step.Start(std::vector<Tensor>{doubling.ValueOf(1)}, first);
  doubling.step.Run(std::vector<Tensor>{doubling.ValueOf(2)}, second);
  CHECK(second[0].At(29'999) == 6);
  run.Wait();
  CHECK(first[0].At(29'999) == 3);
}

TEST_CASE("a run may be dropped while it is under way") {
  std::vector<Tensor> fetches, others;
  Doubling doubling(30'000);
  fetches = doubling.step.MakeFetches();
  others = doubling.step.MakeFetches();
  doubling.step.Start(std::vector<Tensor>{doubling.ValueOf(1)}, fetches);
  // Those behind it are as ever, also where nobody waits for the last.
  doubling.step.Run(std::vector<Tensor>{doubling.ValueOf(2)}, others);
  CHECK(others[0].At(29'999) == 6);
  doubling.step.Start(std::vector<Tensor>{doubling.ValueOf(3)}, fetches);
}

TEST_CASE("a run without fetches can be waited for, too") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {3});
  const Output w =
      graph.Variable("w", CopyOf(Tensor::Zeros(DType::kFloat32, {3})));
  const Operation add = AssignAdd(w, x);
  Session session(graph, OnGpu());
  session.Initialize();
  PreparedStep step = session.Prepare({{x, {3}}}, {}, {add});
  PendingRun run;
  for (int i = 0; i < 5; ++i) {
    run = step.Start(std::vector<Tensor>{Tensor::Full(DType::kFloat32, {3}, i)},
                     {});
  }
  run.Wait();
  CHECK(session.Read(w).At(2) == 10);
}

TEST_CASE("tensors without elements are computed, fused or not") {
  Graph graph;
  const Output x =
      graph.Placeholder("x", DType::kFloat32, {kUnknown, kUnknown});
  const Output y = Relu(x * 2.0f + 1.0f);
  const std::vector<Output> fetches = {y, Sum(y, {0}), Sum(y, {1}), Sum(y)};
  for (bool fuse : {true, false}) {
    SessionOptions options = OnGpu();
    options.fuse = fuse;
    Session session(graph, options);
    Session cpu(graph);
    for (const Shape& shape : {Shape{3, 0}, Shape{0, 3}, Shape{0, 0}}) {
      CAPTURE(shape.ToString());
      const Tensor empty(DType::kFloat32, shape);
      const auto got = session.Run({{x, empty}}, fetches);
      const auto wanted = cpu.Run({{x, empty}}, fetches);
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i].BitEqual(wanted[i]));
      }
    }
  }
}

TEST_CASE("variables are written, read and kept in device memory") {
  Graph graph;
  const Output w =
      graph.Variable("w", CopyOf(Tensor::Zeros(DType::kFloat32, {3})));
  const Output y = Softmax(w);
  Session session(graph, OnGpu());
  CHECK(Contains(ErrorOf([&] { session.Run({}, y); }), "not initialised"));
  session.Write(w, Tensor::Vector<float>(std::vector<float>{0, 0, 1000}));
  CHECK(session.Read(w).At(2) == 1000);
  CHECK(session.Run({}, y).At(2) == 1);
  session.Freeze();
  CHECK(session.Run({}, y).At(2) == 1);
}

TEST_CASE("variables of any size cross whole") {
  for (const Shape& shape :
       {Shape{3, 1'000'001} /* 12 MB */, Shape{1}, Shape{0}}) {
    Graph graph;
    const Output w =
        graph.Variable("w", CopyOf(Tensor::Zeros(DType::kFloat32, shape)));
    Session session(graph, OnGpu());
    const Tensor value = Ramp(shape);
    session.Write(w, value);
    CHECK(session.Read(w).BitEqual(value));
  }
}

TEST_CASE("a step split between CPU and GPU sends its tensors across") {
  Graph graph;
  SessionOptions options = OnGpu();
  options.devices = {"/cpu:0", "/gpu:0"};
  const Output x = graph.Placeholder("x", DType::kFloat32, {2, 3});
  Output there;
  {
    const DeviceScope on_gpu(graph, "/gpu:0");
    there = Softmax(x);
  }
  const DeviceScope on_cpu(graph, "/cpu:0");
  const Output y = there * 2.0f;
  Session session(graph, options);
  PreparedStep step = session.Prepare({{x, {2, 3}}}, {y});
  for (int run = 0; run < 4; ++run) {
    std::vector<Tensor> got = step.MakeFetches();
    step.Run(std::vector<Tensor>{Tensor::Full(DType::kFloat32, {2, 3}, run)},
             got);
    CHECK(got[0].At(0) == doctest::Approx(2.0 / 3));
  }
  CHECK(Contains(step.info().why_not_captured, "the host takes part"));
}

TEST_CASE("an observer sees values on the host") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output y = Softmax(x);
  Session session(graph, OnGpu());
  const Tensor bad = Tensor::Vector<float>(
      std::vector<float>{std::numeric_limits<float>::quiet_NaN(), 1});
  CHECK(session.FindNonFinite({{x, bad}}, {y}) == y.node().name());
}

// Where each instruction's time was.
struct Times : Observer {
  bool reads_outputs() const override { return false; }
  Status AfterInstruction(const RanInstruction& ran) override {
    if (ran.position == 0) spans.clear();
    CHECK(ran.position == spans.size());
    spans.emplace_back(ran.begin_ns, ran.end_ns);
    return {};
  }
  std::vector<std::pair<int64_t, int64_t>> spans;
};

TEST_CASE("an observer of times has them from the device, captured or not") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {64, 64});
  const Output y = Softmax(MatMul(Softmax(x), x));
  SessionOptions options = OnGpu();
  Session session(graph, options);
  PreparedStep step = session.Prepare({{x, {64, 64}}}, {y});
  const std::vector<Tensor> feeds = {Ramp({64, 64})};
  std::vector<Tensor> got = step.MakeFetches(), plain = step.MakeFetches();
  step.Run(feeds, plain);
  Times times;
  session.SetObserver(&times);
  for (int run = 0; run < 3; ++run) {  // the second captures, with marks
    const int64_t begin = SteadyNowNs();
    step.Run(feeds, got);
    const int64_t end = SteadyNowNs();
    REQUIRE(times.spans.size() == static_cast<size_t>(step.info().nodes));
    CHECK(times.spans.front().first >= begin);
    CHECK(times.spans.back().second <= end);
    int64_t before = times.spans.front().first;
    bool all_at_once = true;
    for (const auto& [from, to] : times.spans) {
      CHECK(from == before);
      CHECK(to >= from);
      all_at_once = all_at_once && to == from;
      before = to;
    }
    CHECK_FALSE(all_at_once);
    CHECK(got[0].BitEqual(plain[0]));
  }
  CHECK(step.info().why_not_captured.empty());
  session.SetObserver(nullptr);
  step.Run(feeds, got);
  CHECK(got[0].BitEqual(plain[0]));
}

TEST_CASE(
    "running out of device memory says what was wanted and what there is") {
  if (OnRealGpu()) return;  // theirs is not ours to limit
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {1 << 20});
  const Output y = Softmax(Softmax(x));
  Session session(graph, OnGpu());
  emulation::SetMachine({.memory = 6 << 20});
  const std::string message = ErrorOf([&] {
    session.Run({{x, Tensor::Zeros(DType::kFloat32, {1 << 20})}}, y);
  });
  emulation::SetMachine({});
  CHECK(Contains(message, "out of GPU memory"));
  CHECK(Contains(message, "4194368 bytes"));  // the feed and the step's key
  CHECK(Contains(message, "2097152 of 6291456 bytes"));
}

// y = x, on the CPU alone.
const OpDef kCpuOnly = {.name = "CudaTestCpuOnly",
                        .doc = "Its input.",
                        .inputs = {{"x", "T"}},
                        .outputs = {{"y", "T"}},
                        .types = {{"T", kFloating}},
                        .gradient = NotDifferentiable};

TEST_CASE("an op without a GPU kernel is named, or placed softly on the CPU") {
  OpTable::Global().Register(kCpuOnly);
  KernelTable::Global().Register(
      {.op = kCpuOnly.name, .make = [](const KernelSpec& spec) {
         const size_t bytes = spec.inputs[0].bytes();
         return Result<KernelPtr>(KernelOf([bytes](const KernelContext& c) {
           std::memcpy(c.output<char>(0), c.input<char>(0), bytes);
         }));
       }});
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output y =
      Softmax(graph.Add({kCpuOnly.name, {x}, {}, "odd"}).output(0));
  const Feed feed = {x, Tensor::Zeros(DType::kFloat32, {2})};
  SessionOptions options = OnGpu();
  Session hard(graph, options);
  const std::string message = ErrorOf([&] { hard.Run({feed}, y); });
  CHECK(Contains(message, "CudaTestCpuOnly 'odd': no gpu kernel"));
  CHECK(Contains(message, "place it on /cpu:0"));
  options.soft_placement = true;
  Session soft(graph, options);
  for (int run = 0; run < 3; ++run) CHECK(soft.Run({feed}, y).At(1) == 0.5);
}

// y = x, by a kernel that waits for its stream, which a capture cannot hold.
const OpDef kWaits = {.name = "CudaTestWaits",
                      .doc = "Its input.",
                      .inputs = {{"x", "T"}},
                      .outputs = {{"y", "T"}},
                      .types = {{"T", kFloating}},
                      .gradient = NotDifferentiable};

TEST_CASE("a step whose kernels cannot be captured runs without, and says so") {
  if (OnRealGpu()) return;  // the kernel below calls the emulation
  OpTable::Global().Register(kWaits);
  KernelTable::Global().Register(
      {.op = kWaits.name,
       .device = DeviceType::kCuda,
       .make = [](const KernelSpec& spec) {
         const size_t bytes = spec.inputs[0].bytes();
         return Result<KernelPtr>(
             KernelOf([bytes](const KernelContext& c) -> Status {
               auto* const stream = static_cast<cudaStream_t>(c.step().stream);
               SLUICE_RETURN_IF_ERROR(
                   cuda::Check(cudaStreamSynchronize(stream), "test"));
               return cuda::Check(
                   cudaMemcpyAsync(c.output<char>(0), c.input<char>(0), bytes,
                                   cudaMemcpyDefault, stream),
                   "test");
             }));
       }});
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output y =
      Softmax(graph.Add({kWaits.name, {x}, {}, "waits"}).output(0));
  Session session(graph, OnGpu());
  PreparedStep step = session.Prepare({{x, {2}}}, {y});
  std::vector<Tensor> got = step.MakeFetches();
  for (int run = 0; run < 4; ++run) {
    step.Run(std::vector<Tensor>{Tensor::Full(DType::kFloat32, {2}, run)}, got);
    CHECK(got[0].At(1) == 0.5);
  }
  CHECK(Contains(step.info().why_not_captured, "CudaTestWaits 'waits'"));
}

TEST_CASE("GPUs that do not exist are refused, unless they may be shared") {
  if (OnRealGpu()) return;  // how many there are differs
  Graph graph;
  SessionOptions options = OnGpu();
  options.devices = {"/gpu:7"};
  CHECK(Contains(ErrorOf([&] { Session session(graph, options); }),
                 "'/gpu:7': there are 2 GPUs, /gpu:0 to /gpu:1"));
  options.share_accelerators = true;
  const Output y = Softmax(graph.Constant(Tensor::Zeros(DType::kFloat32, {2})));
  options.simplify = false;
  Session session(graph, options);
  CHECK(session.Run({}, y).At(0) == 0.5);
}

}  // namespace
}  // namespace sluice
