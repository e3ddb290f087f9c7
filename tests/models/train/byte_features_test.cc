// Features of which the batches have bytes: the graph makes of them what maps
// of the input make.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/train/run/model_spec.h"
#include "tests/support/error_text.h"
#include "tests/support/random_bytes.h"
#include "tests/support/sanitizers.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Contains;
using testing::ErrorOf;
using testing::Once;
using testing::Rounds;

Tensor RandomBytes(std::mt19937& random, const Shape& shape) {
  Tensor bytes(DType::kUInt8, shape);
  for (uint8_t& x : bytes.values<uint8_t>()) x = random() & 255;
  return bytes;
}

BytesToFloats RandomMap(std::mt19937& random, int64_t channels) {
  BytesToFloats map = {.who = "it", .name = "x", .factor = {}, .shift = {}};
  std::normal_distribution<float> normal;
  const bool shifts = Once(random, 2);
  for (int64_t c = Once(random, 3) ? 1 : channels; c > 0; --c) {
    map.factor.push_back(normal(random));
    map.shift.push_back(shifts ? normal(random) : 0);
  }
  return map;
}

TEST_CASE("the graph gives a map's bits") {
  for (uint32_t round = 0; round < static_cast<uint32_t>(Rounds(60)); ++round) {
    CAPTURE(round);
    std::mt19937 random(round);
    const int64_t channels = 1 + static_cast<int64_t>(Below(random, 5));
    const Shape shape = {static_cast<int64_t>(Below(random, 4)),
                         1 + static_cast<int64_t>(Below(random, 30)), channels};
    const BytesToFloats map = RandomMap(random, channels);
    Example batch = {{"label", Tensor::Zeros(DType::kInt64, {shape[0]})},
                     {"x", RandomBytes(random, shape)}};
    Graph graph;
    const Features in(graph, batch, {map});
    Output x = in["x"];
    if (Once(random, 2)) {
      Graph other;
      const Features late(other, batch, {map});
      CHECK(late.Varying("x", {1}).shape()[1] == kUnknown);
    }
    CHECK(in["x"] == x);  // once
    CHECK(x.dtype() == DType::kFloat32);
    CHECK(in["label"].node().IsPlaceholder());
    SessionOptions options;
    options.fuse = Once(random, 2);
    Session session(graph, options);
    const Output placeholder = graph.Get("x");
    const Tensor got = session.Run({{placeholder, batch["x"]}}, x);
    MapBytes(map).apply(batch);
    CHECK(got.BitEqual(batch["x"]));
  }
}

TEST_CASE("what cannot be mapped is said as the input would say it") {
  std::mt19937 random(1);
  const BytesToFloats map = {.who = "Standardize",
                             .name = "x",
                             .factor = {1, 2, 3},
                             .shift = {0, 0, 0}};
  const auto error_for = [&](const Tensor& x) {
    Example batch = {{"x", x}};
    std::string by_input = ErrorOf([&] { MapBytes(map).apply(batch); });
    Graph graph;
    CHECK(ErrorOf([&] { Features(graph, batch, {map}); }) == by_input);
    return by_input;
  };
  CHECK(Contains(error_for(Tensor(DType::kFloat32, {2, 3})), "wanted uint8"));
  CHECK(
      Contains(error_for(RandomBytes(random, {2, 4})), "wanted uint8[...,3]"));
}

}  // namespace
}  // namespace sluice
