// Which updates become additions to what a server has, and that they are the
// same to rounding where nobody else writes.
#include "dist/servers/additive_updates.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph/ops/control.h"
#include "graph/ops/state.h"
#include "models/nn/layers.h"
#include "tests/dist/servers/on_servers.h"

namespace sluice::dist::testing {
namespace {

constexpr int64_t kRows = 6, kColumns = 8;

// A variable v, and what is assigned to it, of it and of a batch's mean m.
struct Kind {
  const char* name;
  bool adds;
  std::function<Output(const Output& v, const Output& m)> value;
};

const std::vector<Kind>& Kinds() {
  static const std::vector<Kind> kinds = {
      {"average", true,
       [](auto v, auto m) { return 0.9f * v + (1 - 0.9) * m; }},
      {"moved", true, [](auto v, auto m) { return v - 0.25f * (v - m); }},
      {"sum", true, [](auto v, auto m) { return m + v; }},
      {"halved", true,
       [](auto v, auto m) { return (StopGradient(v) + m) / 2; }},
      {"turned", true, [](auto v, auto m) { return -v + m; }},
      {"of_itself", true, [](auto v, auto) { return v * 0.5f; }},
      {"latest", false, [](auto, auto m) { return m * 1.0f; }},
      {"largest", false, [](auto v, auto m) { return Maximum(v, m); }},
      {"by_batch", false, [](auto v, auto m) { return v * m; }},
      {"square", false, [](auto v, auto m) { return v * v + m; }},
      {"mixed", false,
       [](auto v, auto m) { return 0.5f * Reverse(v, {0}) + m; }},
  };
  return kinds;
}

struct Statistics {
  Graph graph;
  Output x, counts, loss;
  Operation train;

  Statistics() {
    x = graph.Placeholder("x", DType::kFloat32, {kRows, kColumns});
    counts = graph.Placeholder("counts", DType::kBool, {});
    const Output mean = Mean(x, {0});
    std::vector<Operation> grouped;
    for (const Kind& kind : Kinds()) {
      for (const Shape& shape : {Shape{kColumns}, Shape{}}) {
        const std::string name =
            kind.name + std::string(shape.scalar() ? "_of_all" : "");
        if (shape.scalar() && name.starts_with("mixed")) continue;
        const Output v = Untrained(name, Filled(1.5, shape));
        const Output m = shape.scalar() ? Mean(mean) : mean;
        grouped.emplace_back(Assign(v, kind.value(v, m)));
      }
    }
    graph.AddUpdate(Group(graph, grouped));

    const Output sometimes = Untrained("sometimes", Zeros({kColumns}));
    const Operation conditional = Assign(sometimes, sometimes + mean);
    MakeConditional(conditional, counts);
    graph.AddUpdate(conditional);
    const Output wide = Untrained("half", Filled(900, {kColumns}, kHalf));
    graph.AddUpdate(Assign(
        wide, Cast(0.9f * Cast(wide, DType::kFloat32) + 0.1f * mean, kHalf)));
    const Output whole = Untrained("whole", Zeros({kColumns}, DType::kInt64));
    graph.AddUpdate(Assign(whole, whole + 2));
    const Output twice = Untrained("twice", Zeros({kColumns}));
    const Output first = Assign(twice, 0.5f * twice + mean);
    graph.AddUpdate(AssignAdd(twice, first));

    const Output y = layers::BatchNorm(Scope(graph, "norm"), x,
                                       {.training = true, .momentum = 0.7});
    loss = Mean(Square(layers::Dense(Scope(graph, "fc"), y, {.units = 3}) - 1));
    train = optimizers::Lamb(0.1).WithAverages(0.9).Minimize(loss);
  }
  Output Untrained(const std::string& name, const Initializer& first) {
    return graph.Variable(name, first, {.trainable = false});
  }

  std::vector<Feed> Feeds(int step) const {
    std::mt19937 random(static_cast<uint32_t>(step));
    Tensor value(DType::kFloat32, x.shape());
    for (float& each : value.values<float>()) {
      each = static_cast<float>(random() % 1000) / 500 - 1;
    }
    return {{x, value}, {counts, Tensor::Scalar(step % 2 == 0)}};
  }

  // The op that writes a variable in each step.
  std::string WriterOf(const std::string& name) const {
    std::string ops;
    for (const auto& node : graph.nodes()) {
      if (node->mutates() == 0 || node->IsInitializer()) continue;
      if (node->input(0).name() == name) ops += node->op().name;
    }
    return ops;
  }

  static constexpr DType kHalf = DType::kFloat16;
};

void CheckNear(const std::vector<Tensor>& got,
               const std::vector<Tensor>& wanted) {
  REQUIRE_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    REQUIRE(got[i].shape() == wanted[i].shape());
    const double unit = IsHalf(got[i].dtype()) ? 4e-3 : 1e-5;
    for (int64_t e = 0; e < got[i].elements(); ++e) {
      const double value = wanted[i].At(e);
      CHECK(std::abs(got[i].At(e) - value) <= unit * (1 + std::abs(value)));
    }
  }
}

TEST_CASE("averages and sums become additions, nothing else does") {
  Statistics statistics;
  ThrowIfError(PlaceOnServers(statistics.graph, kWorker, Cpus(2)));
  MakeUpdatesAdditive(statistics.train);
  for (const Kind& kind : Kinds()) {
    for (const char* shape : {"", "_of_all"}) {
      const std::string name = kind.name + std::string(shape);
      if (name == "mixed_of_all") continue;
      CAPTURE(name);
      CHECK(statistics.WriterOf(name) == (kind.adds ? "AssignAdd" : "Assign"));
    }
  }
  for (const char* name :
       {"norm/running_mean", "norm/running_variance", "sometimes", "half",
        "fc/weights/m", "fc/weights/v", "fc/bias/m"}) {
    CAPTURE(name);
    CHECK(statistics.WriterOf(name) == "AssignAdd");
  }
  CHECK(statistics.WriterOf("fc/weights/average") == "Assign");
  CHECK(statistics.WriterOf("whole") == "Assign");
  CHECK(statistics.WriterOf("twice") == "AssignAssignAdd");
}

TEST_CASE("alone they are what was assigned, to rounding") {
  const Statistics local;
  Session alone(local.graph);
  const std::vector<Tensor> wanted = RunSteps(local, alone);
  for (const bool cut : {false, true}) {
    for (const bool shared : {false, true}) {
      CAPTURE(cut);
      CAPTURE(shared);
      Statistics spread;
      CutFrom from;
      if (cut) from.dense = 1;
      ThrowIfError(PlaceOnServers(spread.graph, kWorker, Cpus(2), from));
      CHECK((Spread(spread.graph) > 0) == cut);
      MakeUpdatesAdditive(spread.train);
      SessionOptions options = On(Cpus(2));
      if (shared) options.container = "statistics";
      Session session(spread.graph, options);
      CheckNear(RunSteps(spread, session), wanted);
    }
  }
}

// Without calling itself for each, nor for each of the 2^64 ways to v.
TEST_CASE("an average may be made in many steps") {
  Graph graph;
  const Output v = graph.Variable("v", Filled(1, {}), {.trainable = false});
  const Output x = graph.Placeholder("x", DType::kFloat32, {});
  Output value = v;
  for (int i = 0; i < 100'000; ++i) value = -value;
  for (int i = 0; i < 64; ++i) value = (value + value) * 0.5f;
  const Operation update = Assign(v, 0.75f * value + 0.25f * x);
  MakeUpdatesAdditive(Group(graph, {update}));
  CHECK(update.node().Is("AssignAdd"));
}

}  // namespace
}  // namespace sluice::dist::testing
