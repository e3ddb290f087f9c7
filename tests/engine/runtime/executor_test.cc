// The executor on Plans made by hand: order, overlap, errors, deadlines.
#include "engine/runtime/executor.h"

#include <doctest/doctest.h>

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/threads.h"

namespace sluice {
namespace {

using Kind = Location::Kind;

// Builds Plans of instructions on int64 cells of the arena.
class PlanBuilder {
 public:
  // Adds an instruction that runs `fn`, reads `in` cells, writes cell `out`,
  // and waits for the instructions `after`.
  template <typename Fn>
  int Add(Fn fn, const std::vector<int>& in, int out,
          const std::vector<int>& after) {
    Instruction instruction;
    const int id = static_cast<int>(plan.instructions.size());
    instruction.kernel = static_cast<uint32_t>(id);
    instruction.first_location = static_cast<uint32_t>(plan.locations.size());
    instruction.num_inputs = static_cast<uint16_t>(in.size());
    instruction.num_outputs = 1;
    for (int cell : in) plan.locations.push_back(Cell(cell));
    plan.locations.push_back(Cell(out));
    plan.locations.push_back({});  // no workspace
    instruction.dependencies = static_cast<uint32_t>(after.size());
    plan.instructions.push_back(instruction);
    plan.kernels.push_back(KernelOf(fn));
    plan.labels.push_back(
        {"node" + std::to_string(id), "Test", {{DType::kInt64, {}}}});
    for (int a : after) successors_[a].push_back(static_cast<uint32_t>(id));
    return id;
  }
  Plan& Finish(bool dataflow) {
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
      plan.instructions[i].first_successor =
          static_cast<uint32_t>(plan.successors.size());
      const auto& users = successors_[static_cast<int>(i)];
      plan.instructions[i].num_successors = static_cast<uint32_t>(users.size());
      plan.successors.insert(plan.successors.end(), users.begin(), users.end());
    }
    plan.dataflow = dataflow;
    return plan;
  }

  Plan plan;

 private:
  Location Cell(int index) {
    const size_t offset = static_cast<size_t>(index) * 8;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + 8);
    return {Kind::kArena, 0, offset};
  }
  std::map<int, std::vector<uint32_t>> successors_;
};

Status RunPlan(const Plan& plan, Device& device, Arena& arena,
               Observer* observer = nullptr) {
  Executor executor(plan, device, arena);
  StepStop stop;
  stop.Begin(nullptr, {}, std::chrono::steady_clock::time_point::max());
  return executor.Run({}, {}, stop, observer);
}

// Adds one to a cell.
void Increment(const KernelContext& c) {
  *c.output<int64_t>(0) = *c.input<int64_t>(0) + 1;
}

TEST_CASE("a chain gives the same result in both modes") {
  for (bool dataflow : {false, true}) {
    CAPTURE(dataflow);
    PlanBuilder builder;
    int last = builder.Add(
        [](const KernelContext& c) { *c.output<int64_t>(0) = 0; }, {}, 0, {});
    for (int i = 0; i < 1000; ++i)
      last = builder.Add(Increment, {0}, 0, {last});
    Device device{DeviceName{}};
    Arena arena(device.memory());
    const Plan& plan = builder.Finish(dataflow);
    REQUIRE(RunPlan(plan, device, arena).ok());
    CHECK(*reinterpret_cast<int64_t*>(arena.data()) == 1000);
  }
}

TEST_CASE("dataflow respects dependencies of a wide graph, again and again") {
  SetComputeThreads(4);
  constexpr int kWide = 500;
  PlanBuilder builder;
  const int source = builder.Add(
      [](const KernelContext& c) { *c.output<int64_t>(0) = 7; }, {}, 0, {});
  std::vector<int> middle, cells;
  for (int i = 0; i < kWide; ++i) {
    middle.push_back(builder.Add(Increment, {0}, i + 1, {source}));
    cells.push_back(i + 1);
  }
  builder.Add(
      [](const KernelContext& c) {
        int64_t sum = 0;
        for (int i = 0; i < kWide; ++i) sum += *c.input<int64_t>(i);
        *c.output<int64_t>(0) = sum;
      },
      cells, kWide + 1, middle);
  const Plan& plan = builder.Finish(true);
  Device device{DeviceName{}};
  Arena arena(device.memory());
  Executor executor(plan, device, arena);
  StepStop stop;
  for (int run = 0; run < 200; ++run) {
    stop.Begin(nullptr, {}, std::chrono::steady_clock::time_point::max());
    REQUIRE(executor.Run({}, {}, stop, nullptr).ok());
    REQUIRE(reinterpret_cast<int64_t*>(arena.data())[kWide + 1] == 8 * kWide);
    reinterpret_cast<int64_t*>(arena.data())[kWide + 1] = 0;
  }
  SetComputeThreads(0);
}

TEST_CASE("random graphs run every node once and after its inputs") {
  SetComputeThreads(3);
  uint32_t random = 1;
  auto next = [&] { return random = random * 1664525u + 1013904223u; };
  for (int round = 0; round < 20; ++round) {
    constexpr int kNodes = 300;
    PlanBuilder builder;
    std::vector<std::atomic<int>> ran(kNodes);
    std::atomic<int> too_early{0};
    for (int i = 0; i < kNodes; ++i) {
      std::vector<int> after;
      for (int k = 0; k < 3 && i > 0; ++k) {
        const int a = static_cast<int>((next() >> 8) % i);
        if (std::find(after.begin(), after.end(), a) == after.end()) {
          after.push_back(a);
        }
      }
      builder.Add(
          [&, i, after](const KernelContext&) {
            for (int a : after) too_early += ran[a].load() == 0;
            ++ran[i];
          },
          {}, i, after);
    }
    Device device{DeviceName{}};
    Arena arena(device.memory());
    REQUIRE(RunPlan(builder.Finish(true), device, arena).ok());
    CHECK(too_early == 0);
    for (auto& count : ran) CHECK(count == 1);
  }
  SetComputeThreads(0);
}

TEST_CASE("the first error ends the step once and names the node") {
  for (bool dataflow : {false, true}) {
    CAPTURE(dataflow);
    PlanBuilder builder;
    std::atomic<int> after_error{0};
    int last = builder.Add([](const KernelContext&) {}, {}, 0, {});
    last = builder.Add(
        [](const KernelContext&) { return OutOfRange("label 12 of row 3"); },
        {}, 0, {last});
    builder.Add([&](const KernelContext&) { ++after_error; }, {}, 0, {last});
    Device device{DeviceName{}};
    Arena arena(device.memory());
    const Status status = RunPlan(builder.Finish(dataflow), device, arena);
    CHECK(status.code() == Code::kOutOfRange);
    CHECK(status.message() == "Test 'node1': label 12 of row 3");
    CHECK(after_error == 0);
  }
}

TEST_CASE("a deadline ends the step between nodes") {
  for (bool dataflow : {false, true}) {
    CAPTURE(dataflow);
    PlanBuilder builder;
    int last = -1;
    std::atomic<int> ran{0};
    for (int i = 0; i < 100; ++i) {
      last = builder.Add(
          [&](const KernelContext&) {
            ++ran;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
          },
          {}, 0, i ? std::vector<int>{last} : std::vector<int>{});
    }
    const Plan& plan = builder.Finish(dataflow);
    Device device{DeviceName{}};
    Arena arena(device.memory());
    Executor executor(plan, device, arena);
    StepStop stop;
    stop.Begin(
        nullptr, {},
        std::chrono::steady_clock::now() + std::chrono::milliseconds(20));
    CHECK(executor.Run({}, {}, stop, nullptr).code() ==
          Code::kDeadlineExceeded);
    CHECK(ran < 100);
  }
}

TEST_CASE("another thread can stop a step") {
  PlanBuilder builder;
  std::atomic<bool> started{false};
  int last = -1;
  for (int i = 0; i < 2000; ++i) {
    last = builder.Add(
        [&](const KernelContext&) {
          started = true;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        },
        {}, 0, i ? std::vector<int>{last} : std::vector<int>{});
  }
  const Plan& plan = builder.Finish(false);
  Device device{DeviceName{}};
  Arena arena(device.memory());
  Executor executor(plan, device, arena);
  StepStop stop;
  stop.Begin(nullptr, {}, std::chrono::steady_clock::time_point::max());
  std::thread canceller([&] {
    while (!started) std::this_thread::yield();
    stop.Stop(Cancelled("enough"));
    stop.Stop(Internal("a later error does not count"));
  });
  const Status status = executor.Run({}, {}, stop, nullptr);
  canceller.join();
  CHECK(status.code() == Code::kCancelled);
  CHECK(status.message() == "enough");
}

TEST_CASE("observers see every instruction; a trace is valid JSON") {
  PlanBuilder builder;
  int last = builder.Add(
      [](const KernelContext& c) { *c.output<int64_t>(0) = 0; }, {}, 0, {});
  for (int i = 0; i < 9; ++i) last = builder.Add(Increment, {0}, 0, {last});
  builder.plan.labels[0].node = "\xff";  // no UTF-8
  Device device{DeviceName{}};
  Arena arena(device.memory());
  ChromeTrace trace;
  REQUIRE(RunPlan(builder.Finish(false), device, arena, &trace).ok());
  CHECK(trace.events() == 10);
  CHECK(trace.ToJson().find("\"node\":\"node9\"") != std::string::npos);
  // Parsed strictly.
  const auto json = nlohmann::json::parse(trace.ToJson());
  int damaged = 0;
  for (const auto& event : json.at("traceEvents")) {
    const auto& args = event.at("args");
    if (args.contains("node") && args["node"] == "\xef\xbf\xbd") ++damaged;
  }
  CHECK(damaged == 1);
}

TEST_CASE("an uninitialised variable that is read is an error, not a read") {
  const DeviceMemory memory(nullptr);
  VariableStore store(memory);
  Variable* variable = *store.Declare("weights", {DType::kFloat32, Shape{2}});
  Plan plan;
  plan.variables = {variable};
  plan.reads = {0};
  Device device{DeviceName{}};
  Arena arena(device.memory());
  const Status status = RunPlan(plan, device, arena);
  CHECK(status.code() == Code::kFailedPrecondition);
  CHECK(status.message().find("'weights'") != std::string::npos);
  CHECK_FALSE(store.Declare("weights", {DType::kFloat32, Shape{3}}).ok());
}

}  // namespace
}  // namespace sluice
