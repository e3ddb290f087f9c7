// Tensors that are received where they are joined, and rows that are sent from
// where they are: random graphs of joins, cuts and what overwrites its operands
// over several devices, with tensors that come late, have one device's bits.
#include "graph/compile/part_buffers.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/compile/evaluate.h"
#include "graph/compile/extract.h"
#include "graph/compile/step_part.h"
#include "graph/session/session.h"
#include "tests/support/described.h"
#include "tests/support/wild_rendezvous.h"

namespace sluice {
namespace {

using Names = std::vector<std::string>;

struct Cuts {
  Graph graph;
  Output x;
  std::vector<Output> fetches;

  Cuts(uint32_t seed, const Names& devices) : random_(seed) {
    const auto upto = [&](uint32_t n) {
      return 1 + static_cast<int64_t>(random_() % n);
    };
    const int64_t columns = upto(5);
    x = graph.Placeholder("x", DType::kFloat32, {upto(9), columns});
    std::vector<Output> all = {x};
    const auto any = [&] {
      const size_t back = std::min<size_t>(all.size(), 6);
      return all[all.size() - 1 - random_() % back];
    };
    for (int i = 0; i < 24; ++i) {
      const DeviceScope there(graph, devices[random_() % devices.size()]);
      const Output a = any();
      const int64_t rows = a.shape()[0];
      switch (random_() % 6) {
        case 0:
          all.push_back(Relu(a) * 0.5);
          break;
        case 1:
          all.push_back(a + Reverse(a, {1}));
          break;
        case 2: {
          const int64_t begin =
              static_cast<int64_t>(random_() % static_cast<uint64_t>(rows));
          all.push_back(Slice(a, {begin, 0},
                              {upto(static_cast<uint32_t>(rows - begin)), -1}));
          break;
        }
        case 3: {
          const Output same = Reshape(Neg(a), {columns, rows});
          all.push_back(Reshape(same, {rows, columns}));
          break;
        }
        default: {
          std::vector<Output> parts = {a, any()};
          if (random_() % 2 == 0) parts.push_back(any());
          if (rows > 200) parts.resize(1);
          all.push_back(Concat(parts, random_() % 2 == 0 ? 0 : -2));
        }
      }
    }
    for (int i = 0; i < 4; ++i) fetches.push_back(any());
  }

 private:
  std::mt19937 random_;
};

std::vector<Tensor> RunTwice(const Cuts& cuts, Session& session) {
  std::vector<Tensor> all;
  for (const float first : {0.5F, -3.0F}) {
    Tensor fed(DType::kFloat32, cuts.x.shape());
    float value = first;
    for (float& element : fed.values<float>()) {
      element = value;
      value = -1.25F * value + 0.3F;
    }
    for (Tensor& fetched : session.Run({{cuts.x, fed}}, cuts.fetches)) {
      all.push_back(std::move(fetched));
    }
  }
  return all;
}

struct Idle {
  int joins = 0, cuts = 0;
};

// What no kernel runs for.
Idle IdleOf(const Cuts& cuts, const Names& devices) {
  const StepRequest request = {.feeds = {{cuts.x, cuts.x.shape()}},
                               .fetches = cuts.fetches};
  passes::Context context;
  context.devices = testing::Described(devices);
  context.fold = FoldNode;
  const StepParts parts =
      PartitionStep(ExtractStep(cuts.graph, request).ValueOrThrow(), context,
                    {})
          .ValueOrThrow();
  Idle idle;
  for (const StepPart& part : parts.parts) {
    const PartBuffers buffers(part.graph->TopologicalOrder());
    for (const auto& node : part.graph->nodes()) {
      if (!buffers.NeedsNone(*node)) continue;
      ++(node->Is("Concat") ? idle.joins : idle.cuts);
    }
  }
  return idle;
}

TEST_CASE("random joins and cuts over devices have one device's bits") {
  Idle idle;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    const Names devices = seed % 2 == 0 ? Names{"/cpu:0", "/cpu:1"}
                                        : Names{"/cpu:0", "/cpu:1", "/cpu:2"};
    const Cuts gathered(seed, {"/cpu:0"}), scattered(seed, devices);
    Session single(gathered.graph);
    SessionOptions options;
    options.devices = devices;
    options.fuse = seed % 3 > 0;
    if (seed % 5 == 0) {
      options.rendezvous = std::make_shared<testing::WildRendezvous>(
          testing::WildRendezvous::Options{.seed = seed, .delay_us = 20});
    }
    Session split(scattered.graph, options);
    const std::vector<Tensor> wanted = RunTwice(gathered, single);
    const std::vector<Tensor> got = RunTwice(scattered, split);
    REQUIRE(got.size() == wanted.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i].BitEqual(wanted[i]));
    const Idle here = IdleOf(scattered, devices);
    idle.joins += here.joins;
    idle.cuts += here.cuts;
  }
  CHECK(idle.joins > 30);
  CHECK(idle.cuts > 100);
}

TEST_CASE(
    "what is joined of two devices, and goes back to them, is there once") {
  constexpr int64_t kRows = 4096;
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kRows, 16});
  std::vector<Output> parts;
  for (const char* device : {"/cpu:1", "/cpu:2"}) {
    const DeviceScope there(graph, device);
    parts.push_back(x * 2.0);
  }
  Output all;
  {
    const DeviceScope here(graph, "/cpu:0");
    all = Relu(Concat(parts, 0));
  }
  std::vector<Output> sums;
  for (const int64_t begin : {int64_t{0}, kRows}) {
    Output rows;
    {
      const DeviceScope here(graph, "/cpu:0");
      rows = Slice(all, {begin, 0}, {kRows, 16});
    }
    const DeviceScope there(graph, begin == 0 ? "/cpu:1" : "/cpu:2");
    sums.push_back(Sum(rows));
  }
  const StepRequest request = {.feeds = {{x, x.shape()}}, .fetches = sums};
  passes::Context context;
  context.devices = testing::Described({"/cpu:0", "/cpu:1", "/cpu:2"});
  context.fold = FoldNode;
  const StepParts cut =
      PartitionStep(ExtractStep(graph, request).ValueOrThrow(), context, {})
          .ValueOrThrow();
  const PartBuffers buffers(cut.parts[0].graph->TopologicalOrder());
  int idle = 0;
  for (const auto& node : cut.parts[0].graph->nodes()) {
    idle += buffers.NeedsNone(*node) ? 1 : 0;
  }
  CHECK(idle == 3);
  SessionOptions options;
  options.devices = {"/cpu:0", "/cpu:1", "/cpu:2"};
  Session session(graph, options);
  const Tensor fed = Tensor::Full(DType::kFloat32, {kRows, 16}, 1);
  for (const Tensor& each : session.Run({{x, fed}}, sums)) {
    CHECK(each.At(0) == 2.0 * 16 * kRows);
  }
}

}  // namespace
}  // namespace sluice
