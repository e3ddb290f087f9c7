// Dataset::LeaveBytes: random pipelines against themselves, with what was left
// done to their elements afterwards.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "io/images/image.h"
#include "io/pipeline/dataset.h"
#include "io/sources/datasets.h"
#include "tests/support/random_bytes.h"
#include "tests/support/sanitizers.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Once;
using testing::Rounds;

// "colour" uint8 [2,3], "grey" uint8 [4], "label" int64.
Dataset Pictures(std::mt19937& random) {
  const int64_t n = 1 + static_cast<int64_t>(Below(random, 40));
  Tensor colour(DType::kUInt8, {n, 2, 3}), grey(DType::kUInt8, {n, 4});
  Tensor label(DType::kInt64, {n});
  for (uint8_t& x : colour.values<uint8_t>()) x = random() & 255;
  for (uint8_t& x : grey.values<uint8_t>()) x = random() & 255;
  for (int64_t& x : label.values<int64_t>()) x = random() % 10;
  return datasets::FromTensors(
      {{"colour", colour}, {"grey", grey}, {"label", label}});
}

Tensor Incremented(const Tensor& labels) {
  Tensor more = labels.Clone();
  for (int64_t& x : more.values<int64_t>()) ++x;
  return more;
}

// A pipeline, and which tensors are to be left as bytes.
struct Case {
  Dataset dataset;
  std::vector<std::string> left = {};
  bool colour_done = false, grey_done = false;
  bool batched = false;
  std::string text = "pictures";
};

void AddStep(Case* c, std::mt19937& random) {
  Dataset& d = c->dataset;
  const auto next = [](Example& e) {
    Tensor label = Incremented(e["label"]);
    e.Set("label", label);
  };
  const auto seed = static_cast<uint64_t>(random());
  const int64_t n = 1 + static_cast<int64_t>(Below(random, 6));
  switch (Below(random, 12)) {
    case 0:
    case 1:
      if (c->colour_done) return;
      d = d.Map(
          Standardize("colour", {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}));
      c->colour_done = true;
      c->left.emplace_back("colour");
      c->text += " colour";
      return;
    case 2:
      if (c->grey_done) return;
      d = d.Map(ScaleTo01("grey"));
      c->grey_done = true;
      c->left.emplace_back("grey");
      c->text += " grey";
      return;
    case 3:
      d = d.Map(next);
      c->left.clear();
      c->text += " map";
      return;
    case 4:
      d = d.Map(RowwiseMap{next});
      c->left.clear();
      c->text += " rowwise";
      return;
    case 5:
      d = d.MapRandom(seed, [](Example& e, uint64_t key) {
        Tensor label = Incremented(e["label"]);
        label.data<int64_t>()[0] += static_cast<int64_t>(key % 100);
        e.Set("label", label);
      });
      c->left.clear();
      c->text += " random";
      return;
    case 10:
    case 11:
      // Leaves all that has been mapped untouched, or the colours alone.
      if (Once(random, 3)) {
        d = d.MapRandom(
            seed,
            [](Example& e, uint64_t /*key*/) { e.Set("more", e["label"]); },
            {.untouched = {"colour"}});
        if (std::find(c->left.begin(), c->left.end(), "grey") !=
            c->left.end()) {
          c->left.clear();
        }
        c->text += " random past colour";
        return;
      }
      d = d.Map(next, {.untouched = {"grey", "colour"}});
      c->text += " past";
      return;
    case 6:
      if (c->batched) return;
      d = d.Batch(n + 2);
      c->batched = true;
      c->text += " batch";
      return;
    case 7:
      d = d.Prefetch(n);
      c->text += " prefetch";
      return;
    case 8:
      if (c->batched) {
        if (c->text.find("share") != std::string::npos) return;
        d = d.Share(n % 3, 3);
        c->text += " share";
        return;
      }
      d = d.PaddedBatch(n + 2);
      c->batched = true;
      c->left.clear();
      c->text += " padded";
      return;
    default:
      // What changes the order goes before maps that stand right before it;
      // elsewhere it comes after them.
      if (c->batched || c->text.find("prefetch") != std::string::npos) return;
      if (c->text.find("random") != std::string::npos) return;
      d = Once(random, 2) ? d.Shuffle(n * 5, seed) : d.Repeat(2);
      c->text += " order";
  }
}

bool SameExamples(const Example& a, const Example& b) {
  for (const auto& [name, tensor] : a) {
    if (!b.contains(name) || !b[name].BitEqual(tensor)) return false;
  }
  return a.size() == b.size() && a.passed_over() == b.passed_over();
}

TEST_CASE("what is left, done afterwards, gives what came before") {
  int some = 0, none = 0, shared = 0, resumed = 0;
  for (uint32_t round = 0; round < static_cast<uint32_t>(Rounds(600));
       ++round) {
    std::mt19937 random(round);
    Case c = {.dataset = Pictures(random)};
    for (size_t steps = 2 + Below(random, 7); steps > 0; --steps) {
      AddStep(&c, random);
    }
    if (c.batched && Once(random, 3) &&
        c.text.find("share") == std::string::npos) {
      c.dataset = c.dataset.Share(1, 3);
      c.text += " share";
    }
    CAPTURE(round);
    CAPTURE(c.text);
    std::vector<BytesToFloats> left;
    const Dataset bytes = c.dataset.LeaveBytes(&left);
    std::vector<std::string> names;
    for (const BytesToFloats& map : left) names.push_back(map.name);
    REQUIRE(names == c.left);
    ++(left.empty() ? none : some);
    if (c.text.find("share") != std::string::npos) ++shared;
    CHECK(bytes.cardinality() == c.dataset.cardinality());
    CHECK(bytes.batch_size() == c.dataset.batch_size());

    Iterator wanted = c.dataset.MakeIterator(), got = bytes.MakeIterator();
    Example a, b;
    const size_t change_over = Below(random, 30);
    for (size_t i = 0; i < 60; ++i) {
      if (i == change_over) {  // each goes on where the other stands
        Iterator other = c.dataset.MakeIterator();
        REQUIRE(other.Restore(got.SavePosition()).ok());
        REQUIRE(got.Restore(wanted.SavePosition()).ok());
        wanted = std::move(other);
        ++resumed;
      }
      REQUIRE(wanted.SavePosition() == got.SavePosition());
      const bool more = wanted.Next(&a).ValueOrThrow();
      REQUIRE(got.Next(&b).ValueOrThrow() == more);
      if (!more) break;
      for (const BytesToFloats& map : left) {
        REQUIRE(b[map.name].dtype() == DType::kUInt8);
        MapBytes(map).apply(b);
      }
      REQUIRE(SameExamples(a, b));
    }
  }
  for (const int count : {some, none, shared, resumed}) {
    CHECK(count > Rounds(50));
  }
}

TEST_CASE("a tensor that is mapped twice stays the error that it is") {
  std::mt19937 random(1);
  const Dataset twice =
      Pictures(random).Map(ScaleTo01("grey")).Map(ScaleTo01("grey")).Batch(3);
  std::vector<BytesToFloats> left;
  const Dataset bytes = twice.LeaveBytes(&left);
  CHECK(left.empty());
  CHECK_THROWS_AS(twice.First(), Error);
  CHECK_THROWS_AS(bytes.First(), Error);
}

TEST_CASE("maps of bytes want as many shifts as factors") {
  CHECK_THROWS_AS(
      MapBytes({.who = "x", .name = "a", .factor = {}, .shift = {}}), Error);
  CHECK_THROWS_AS(
      MapBytes({.who = "x", .name = "a", .factor = {1}, .shift = {1, 2}}),
      Error);
}

}  // namespace
}  // namespace sluice
