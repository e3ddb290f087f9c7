// Mixtures made by a graph of what DrawMix has drawn, from bytes or numbers,
// against MixBatch, which mixes on the host.
#include "models/nn/mixed_images.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "io/images/image.h"
#include "io/images/mix.h"
#include "io/pipeline/dataset.h"
#include "io/sources/datasets.h"
#include "models/train/run/model_spec.h"
#include "tests/support/error_text.h"
#include "tests/support/random.h"
#include "tests/support/sanitizers.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Random;
using testing::Rounds;

// Pictures of bytes with labels.
Dataset Pictures(Random& random, const Shape& shape) {
  Tensor image(DType::kUInt8, shape), label(DType::kInt64, {shape[0]});
  for (uint8_t& x : image.values<uint8_t>()) {
    x = static_cast<uint8_t>(random.Between(0, 255));
  }
  for (int64_t& x : label.values<int64_t>()) x = random.Between(0, 9);
  return datasets::FromTensors({{"image", image}, {"label", label}});
}

std::vector<BatchMix> RandomWays(Random& random) {
  std::vector<BatchMix> ways;
  for (int64_t n = random.Between(1, 3); n > 0; --n) {
    ways.push_back(
        {random.Chance(2) ? BatchMix::Kind::kMixup : BatchMix::Kind::kCutmix,
         random.Chance(5) ? 1e-300 : random.Real(0.1, 2)});
  }
  return ways;
}

// The same floats but for the last bit of sums, which a fused kernel may round
// once where the host rounds twice.
void CheckSame(const Tensor& got, const Tensor& wanted) {
  REQUIRE(got.shape() == wanted.shape());
  for (int64_t i = 0; i < got.elements(); ++i) {
    REQUIRE(got.At(i) == doctest::Approx(wanted.At(i)).scale(1).epsilon(3e-7));
  }
}

ImageMix MixOf(const Features& in) {
  return {.with = in["mixed_with"],
          .own = in["mixed_own"],
          .other = in["mixed_other"],
          .rows = in["mixed_rows"],
          .columns = in["mixed_columns"]};
}

TEST_CASE("a graph mixes as the host does, of bytes too") {
  int mixed = 0, shared = 0, empty = 0;
  for (uint64_t round = 0; round < static_cast<uint64_t>(Rounds(120));
       ++round) {
    CAPTURE(round);
    Random random(round);
    const int64_t rows = random.Between(1, 12), columns = random.Between(1, 12);
    const std::vector<BatchMix> ways = RandomWays(random);
    const int64_t n = random.Between(2, 7);
    const Dataset batches =
        Pictures(random, {random.Between(1, 16), rows, columns, 3})
            .Map(Standardize("image", {0.485, 0.456, 0.406},
                             {0.229, 0.224, 0.225}))
            .Batch(n);
    Dataset by_host = batches.MapRandom(
        round,
        [&](Example& batch, uint64_t key) { MixBatch(ways, batch, key); });
    Dataset by_graph =
        batches.MapRandom(round,
                          [&](Example& batch, uint64_t key) {
                            DrawMix(ways, rows, columns, batch, key);
                          },
                          {.untouched = {"image"}});
    if (random.Chance(3)) {  // the last worker's share may be empty
      by_host = by_host.Share(1, 2);
      by_graph = by_graph.Share(1, 2);
      ++shared;
    }
    std::vector<BytesToFloats> left;
    if (random.Chance(2)) {
      by_graph = by_graph.Prefetch(2).LeaveBytes(&left);
      REQUIRE(left.size() == 1);
      REQUIRE(by_graph.Sample()["image"].dtype() == DType::kUInt8);
    }
    Graph graph;
    const Features in(graph, by_graph.Sample(), left);
    const Output images = MixImages(in["image"], MixOf(in));
    SessionOptions options;
    options.fuse = random.Chance(2);
    Session session(graph, options);
    Iterator wanted = by_host.MakeIterator(), got = by_graph.MakeIterator();
    Example a, b;
    while (wanted.Next(&a).ValueOrThrow()) {
      REQUIRE(got.Next(&b).ValueOrThrow());
      for (const char* name : {"label", "mixed_label", "mixed_share"}) {
        REQUIRE(b[name].BitEqual(a[name]));
      }
      CHECK(b.whole_rows() == a.whole_rows());
      std::vector<Feed> feeds;
      for (const auto& [name, placeholder] : in) {
        feeds.push_back({placeholder, b[name]});
      }
      CheckSame(session.Run(feeds, images), a["image"]);
      mixed += b["mixed_share"].elements() > 0 ? 1 : 0;
      empty += b["label"].elements() == 0 ? 1 : 0;
    }
    CHECK_FALSE(got.Next(&b).ValueOrThrow());
  }
  CHECK(mixed > Rounds(60));
  CHECK(shared > Rounds(15));
  CHECK(empty > 0);
}

// Where nothing is added up not a bit is lost: a cut, and a picture alone.
TEST_CASE("what is not added up keeps its bits") {
  Random random(3);
  for (uint64_t key = 0; key < 60; ++key) {
    const int64_t n = key % 3 == 0 ? 1 : random.Between(2, 5);
    Tensor image(DType::kFloat32, {n, 6, 5, 2});
    for (float& x : image.values<float>()) {
      x = static_cast<float>(random.Real(-1e30, 1e30));
    }
    const std::vector<BatchMix> ways = {{n == 1 && key % 2 == 0
                                             ? BatchMix::Kind::kMixup
                                             : BatchMix::Kind::kCutmix,
                                         0.5}};
    Example drawn = {{"label", Tensor::Zeros(DType::kInt64, {n})}};
    Example by_host = {{"image", image.Clone()}, {"label", drawn["label"]}};
    DrawMix(ways, 6, 5, drawn, key);
    MixBatch(ways, by_host, key);
    drawn.Set("image", image);
    Graph graph;
    const Features in(graph, drawn);
    const Output images = MixImages(in["image"], MixOf(in));
    Session session(graph);
    std::vector<Feed> feeds;
    for (const auto& [name, placeholder] : in) {
      feeds.push_back({placeholder, drawn[name]});
    }
    CHECK(session.Run(feeds, images).BitEqual(by_host["image"]));
  }
}

TEST_CASE("a map that is to leave a tensor untouched has none of it") {
  Random random(4);
  const Dataset pictures = Pictures(random, {4, 2, 2, 3});
  const auto error = [&](const std::function<void(Example&)>& fn) {
    return ErrorOf(
        [&] { (void)pictures.Map(fn, {.untouched = {"image"}}).First(); });
  };
  CHECK(Contains(error([](Example& e) { (void)e["image"]; }),
                 "an example has no tensor 'image'; it has 'label'"));
  CHECK(Contains(error([](Example& e) { e.Set("image", e["label"]); }),
                 "a map was to leave 'image' untouched and makes one"));
  CHECK(Contains(ErrorOf([&] {
                   Example batch = {{"label", Tensor(DType::kInt32, {2})}};
                   DrawMix(std::vector<BatchMix>{{BatchMix::Kind::kMixup, 1}},
                           2, 2, batch, 1);
                 }),
                 "label is int32[2], wanted int64[n]"));
}

}  // namespace
}  // namespace sluice
