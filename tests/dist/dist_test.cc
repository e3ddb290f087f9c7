// The process-wide verbs, where no launcher has started the process. What
// several processes do together is tested below them, on groups.
#include "dist/dist.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/dtype.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/optim/distributed_optimizer.h"
#include "tests/dist/collective/processes.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;

template <typename Call>
Code CodeOf(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return Code::kOk;
}

}  // namespace

TEST_CASE("dist: nothing works before Init, which comes once") {
  CHECK(CodeOf([] { dist::Rank(); }) == Code::kFailedPrecondition);
  CHECK(CodeOf([] { dist::Barrier(); }) == Code::kFailedPrecondition);
  dist::Shutdown();
  dist::Init();
  CHECK(CodeOf([] { dist::Init(); }) == Code::kFailedPrecondition);
  dist::Shutdown();
  CHECK(CodeOf([] { dist::Size(); }) == Code::kFailedPrecondition);
}

TEST_CASE("dist: a process of sluicerun's is in no MPI") {
  setenv("SLUICE_RANK", "0", 1);
  CHECK(CodeOf([] { dist::InitByMpi(); }) == Code::kInvalidArgument);
  unsetenv("SLUICE_RANK");
  dist::Init();  // that was none
  CHECK(CodeOf([] { dist::InitByMpi(); }) == Code::kFailedPrecondition);
  dist::Shutdown();
}

TEST_CASE("dist: a process without a launcher is a job of its own") {
  dist::Init();
  CHECK(dist::Rank() == 0);
  CHECK(dist::Size() == 1);
  CHECK(dist::LocalRank() == 0);
  CHECK(dist::LocalSize() == 1);
  const Tensor x = Tensor::Array<float>({2, 2}, {1, 2, 3, 4});
  const Tensor mean = dist::AllReduce("x", x);
  CHECK(mean.BitEqual(x));
  CHECK(mean.raw() != x.raw());
  CHECK(dist::AllGather("x", x).BitEqual(x));
  CHECK(dist::Broadcast("x", x, 0).BitEqual(x));
  CHECK(dist::ReduceScatter("x", x).BitEqual(x));
  CHECK(dist::AllToAll("x", x).BitEqual(x));
  const Tensor scalar = dist::AllGather("s", Tensor::Scalar<int64_t>(7));
  CHECK(scalar.BitEqual(Tensor::Array<int64_t>({1}, {7})));
  dist::Split("mine", 3);
  CHECK(dist::JobCollective()->Subgroup("mine")->size() == 1);
  dist::Split("nobody's", -1);
  CHECK((dist::JobCollective()->Subgroup("nobody's") == nullptr));
  CHECK(dist::Join() == 0);
  dist::Barrier();
  dist::Shutdown();

  dist::Init();
  CHECK(CodeOf([&] { dist::Broadcast("x", x, 1); }) == Code::kInvalidArgument);
  // From now on the group is broken.
  CHECK(CodeOf([&] { dist::AllReduce("x", x); }) == Code::kInvalidArgument);
  dist::Shutdown();
}

namespace {

// As a launcher would have started it.
void Launched(const dist::LaunchInfo& info) {
  int token[2];
  REQUIRE(pipe(token) == 0);
  REQUIRE(write(token[1], info.token.data(), info.token.size()) > 0);
  close(token[1]);
  const auto set = [](const char* name, int value) {
    setenv(name, std::to_string(value).c_str(), 1);
  };
  set("SLUICE_RANK", info.rank);
  set("SLUICE_SIZE", info.size);
  set("SLUICE_LOCAL_RANK", info.local_rank);
  set("SLUICE_LOCAL_SIZE", info.local_size);
  set("SLUICE_TOKEN_FD", token[0]);
  if (info.listen_fd >= 0) set("SLUICE_LISTEN_FD", info.listen_fd);
  setenv("SLUICE_COORDINATOR",
         (info.host + ":" + std::to_string(info.port)).c_str(), 1);
  dist::Init();
}

using Say = dist::testing::Process::Say;

// Each process of a job of three says a line.
std::vector<std::string> OfThree(const std::function<std::string()>& body) {
  const dist::testing::Watchdog watchdog(std::chrono::minutes(2));
  dist::testing::Processes processes;
  for (const dist::LaunchInfo& info : dist::testing::Launch(3)) {
    processes.push_back(
        std::make_unique<dist::testing::Process>([&](const Say& say) {
          try {
            Launched(info);
            say(body());
            // A program's end does so; who is just gone is lost to the others,
            // which may still be at it.
            dist::Shutdown();
          } catch (const Error& error) {
            say(error.what());
          }
        }));
    if (info.listen_fd >= 0) close(info.listen_fd);
  }
  std::vector<std::string> lines;
  for (const auto& process : processes) lines.push_back(process->Line());
  return lines;
}

}  // namespace

TEST_CASE("dist: each process gets its part of what is shared out") {
  const auto lines = OfThree([]() -> std::string {
    const auto rank = static_cast<float>(dist::Rank());
    // Four rows for three processes, of two elements each.
    Tensor rows(DType::kFloat32, {4, 2});
    for (int64_t i = 0; i < 8; ++i) {
      rows.data<float>()[i] = rank + static_cast<float>(i);
    }
    const Tensor part = dist::ReduceScatter("r", rows);
    const std::vector<Tensor> wanted = {
        Tensor::Array<float>({2, 2}, {1, 2, 3, 4}),
        Tensor::Array<float>({1, 2}, {5, 6}),
        Tensor::Array<float>({1, 2}, {7, 8})};
    if (!part.BitEqual(wanted[static_cast<size_t>(dist::Rank())])) {
      return "wrong rows";
    }
    const Tensor none =
        dist::ReduceScatter("e", Tensor(DType::kFloat32, {2, 0, 3}));
    if (none.shape() != Shape{dist::Rank() < 2 ? 1 : 0, 0, 3}) return "none";
    const Tensor all = dist::AllToAll(
        "t", Tensor::Array<float>({3}, {rank, rank + 10, rank + 20}));
    if (!all.BitEqual(Tensor::Array<float>(
            {3}, {10 * rank, 10 * rank + 1, 10 * rank + 2}))) {
      return "wrong bytes";
    }
    return "ok";
  });
  for (const std::string& line : lines) CHECK(line == "ok");
}

TEST_CASE("dist: what cannot be shared out is everyone's error") {
  const auto lines = OfThree([]() -> std::string {
    const int rows = dist::Rank() == 1 ? 4 : 3;
    dist::AllToAll("t", Tensor::Zeros(DType::kInt32, {rows, 2}));
    return "ok";
  });
  for (const std::string& line : lines) {
    CHECK(line ==
          "rank 1 of 3 failed: all-to-all 't' of shape [4,2]: wanted a first "
          "dimension that is a multiple of 3");
  }
}

namespace {

// Four variables, of values that are `rank`'s own.
struct Model {
  Graph graph;
  std::optional<Session> session;

  explicit Model(int rank, int64_t part_of = 0) {
    const float first = 1.F + static_cast<float>(rank);
    graph.Variable("w", Filled(first, {3, 2}));
    graph.Variable("empty", Zeros({0, 2}));
    graph.Variable("b", Filled(-first, {4}),
                   {.trainable = false, .part_of = part_of});
    graph.Variable("n", Filled(rank, {}, DType::kInt64));
    session.emplace(graph);
  }
};

}  // namespace

// Horovod's loop, against the same by hand: a line through points, of which the
// processes have one, two and three, and count alike.
TEST_CASE("dist: a training below the trainer is of all processes' examples") {
  constexpr int kSteps = 20;
  constexpr double kRate = 0.05;
  const auto x = [](int rank, int i) { return 0.5 * rank - 0.75 * i + 0.3; };
  const auto y = [&](int rank, int i) {
    return 2 * x(rank, i) - 0.5 + 0.1 * i;
  };
  double slope = 3, offset = -1;
  for (int step = 0; step < kSteps; ++step) {
    double to_slope = 0, to_offset = 0;
    for (int rank = 0; rank < 3; ++rank) {
      for (int i = 0; i <= rank; ++i) {
        const double off = slope * x(rank, i) + offset - y(rank, i);
        to_slope += 2 * off * x(rank, i) / (rank + 1) / 3;
        to_offset += 2 * off / (rank + 1) / 3;
      }
    }
    slope -= kRate * to_slope;
    offset -= kRate * to_offset;
  }
  const auto lines = OfThree([&]() -> std::string {
    const int rank = dist::Rank();
    Graph graph;
    // What the root does not have is overwritten.
    const float start = rank == 0 ? 3 : 100;
    const Output a = graph.Variable("a", Filled(start, {}));
    const Output b = graph.Variable("b", Filled(start - 4, {}));
    std::vector<float> xs, ys;
    for (int i = 0; i <= rank; ++i) {
      xs.push_back(static_cast<float>(x(rank, i)));
      ys.push_back(static_cast<float>(y(rank, i)));
    }
    const Output off =
        a * graph.Constant(Tensor::Array<float>({rank + 1}, xs)) + b -
        graph.Constant(Tensor::Array<float>({rank + 1}, ys));
    const Operation train = dist::DistributedOptimizer(optimizers::Sgd(kRate))
                                .Minimize(Mean(off * off));
    Session session(graph, {.collective = dist::JobCollective()});
    session.Initialize();
    dist::BroadcastVariables(session, graph.Variables());
    for (int step = 0; step < kSteps; ++step) session.Run({}, train);
    return fmt::format("{:.4f} {:.4f}", session.Read(a).At(0),
                       session.Read(b).At(0));
  });
  for (const std::string& line : lines) {
    CHECK(line == fmt::format("{:.4f} {:.4f}", slope, offset));
  }
}

TEST_CASE("dist: variables and the step's number become the root's") {
  for (int root = 0; root < 3; ++root) {
    const auto lines = OfThree([root]() -> std::string {
      Model model(dist::Rank());
      if (dist::Rank() == root) {
        model.session->Initialize();
        model.session->set_step(70 + static_cast<uint64_t>(root));
      }
      dist::BroadcastVariables(*model.session, model.graph.Variables(), root);
      const auto value = [&](const char* name) {
        return model.session->Read(model.graph.Get(name));
      };
      const auto first = 1.F + static_cast<float>(root);
      const Tensor weights = value("w");
      for (const float x : weights.values<float>()) {
        if (x != first) return "weights";
      }
      if (value("empty").shape() != Shape{0, 2}) return "empty";
      if (value("b").data<float>()[3] != -first) return "bias";
      if (value("n").IntAt(0) != root) return "number";
      return std::to_string(model.session->step());
    });
    for (const std::string& line : lines) {
      CHECK(line == std::to_string(70 + root));
    }
  }
}

TEST_CASE("dist: variables that are not the same are everyone's error") {
  const auto all = [](const std::function<void(Model&)>& body) {
    return OfThree([&]() -> std::string {
      Model model(dist::Rank());
      model.session->Initialize();
      body(model);
      return "ok";
    });
  };
  // One variable fewer, another order, one that only the root has not.
  for (const std::string& line : all([](Model& model) {
         std::vector<Output> variables = model.graph.Variables();
         if (dist::Rank() == 1) variables.pop_back();
         dist::BroadcastVariables(*model.session, variables);
       })) {
    CHECK(line != "ok");
  }
  for (const std::string& line : all([](Model& model) {
         std::vector<Output> variables = model.graph.Variables();
         if (dist::Rank() == 2) std::swap(variables[0], variables[1]);
         dist::BroadcastVariables(*model.session, variables, 1);
       })) {
    CHECK(line != "ok");
  }
  for (const std::string& line : OfThree([]() -> std::string {
         Model model(dist::Rank());
         dist::BroadcastVariables(*model.session, model.graph.Variables());
         return "ok";
       })) {
    CHECK(Contains(line, "rank 0 of 3 failed: "));
    CHECK(Contains(line, "'w'"));
  }
  for (const std::string& line : all([](Model& model) {
         if (dist::Rank() == 1) model.session->Freeze();
         dist::BroadcastVariables(*model.session, model.graph.Variables());
       })) {
    CHECK(Contains(line, "rank 1 of 3 failed: "));
    CHECK(Contains(line, "'w' cannot be written"));
  }
  for (const std::string& line : OfThree([]() -> std::string {
         Model model(dist::Rank(), /*part_of=*/12);
         model.session->Initialize();
         dist::BroadcastVariables(*model.session, model.graph.Variables());
         return "ok";
       })) {
    CHECK(Contains(line, "variable 'b': it is a part"));
  }
}

}  // namespace sluice
