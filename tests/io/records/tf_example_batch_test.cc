// Batches of tf.Examples as tensors, against the messages that protobuf makes
// of each, and against ParseTfExample and Stack.
#include <doctest/doctest.h>

#include "io/records/tf_example.h"

#if SLUICE_HAVE_PROTOBUF

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include <map>
#include <random>

#include "tests/io/records/tf_example_reference.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Contains;
using testing::Damage;
using testing::ExpectedBatch;
using testing::ExpectedTensor;
using testing::FeatureFor;
using testing::Once;
using testing::RandomSpecs;
using testing::Wire;

using Specs = std::vector<FeatureSpec>;
using Views = std::vector<std::string_view>;

const std::vector<std::string> kNames = {"",  "a", "image", "zw\xc3\xb6lf",
                                         "b", "c", "d",     "e"};

// What specs want and more, in their order or not, some of it twice.
std::string RandomExample(const Specs& specs, size_t wrong, Wire& wire,
                          std::mt19937& random) {
  std::vector<std::string> entries;
  const auto add = [&](const FeatureSpec& spec) {
    entries.push_back(wire.Bytes(1, wire.Entry(spec.name, [&] {
      return FeatureFor(spec, wrong, wire, random);
    })));
  };
  for (const FeatureSpec& spec : specs) {
    if (Once(random, spec.missing ? 5 : wrong)) continue;
    if (Once(random, 5)) {  // counts for nothing
      std::string junk = wire.Feature();
      entries.push_back(
          wire.Bytes(1, wire.Entry(spec.name, [&] { return junk; })));
    }
    add(spec);
    if (Once(random, 5)) add({"other", DType::kInt64, {kUnknown}});
  }
  if (Once(random, 5)) std::shuffle(entries.begin(), entries.end(), random);
  std::string features;
  for (const std::string& entry : entries) features += entry;
  std::string bytes = wire.Bytes(1, features);
  for (size_t n = Once(random, wrong) ? 2 : 0; n > 0; --n) {
    Damage(random, &bytes);
  }
  return bytes;
}

// The batch, or the error and the number of the example that has it.
Result<Example> Expected(const Views& examples, const Specs& specs,
                         size_t* wrong) {
  std::vector<std::vector<Tensor>> columns(specs.size());
  for (*wrong = 0; *wrong < examples.size(); ++*wrong) {
    proto::Example example;
    if (!example.ParseFromString(std::string(examples[*wrong]))) {
      return DataLoss("no tf.Example");
    }
    const auto& map = example.features().feature();
    for (size_t i = 0; i < specs.size(); ++i) {
      const auto found = map.find(specs[i].name);
      SLUICE_RETURN_IF_ERROR(
          ExpectedTensor(found == map.end() ? nullptr : &found->second,
                         specs[i], &columns[i].emplace_back()));
    }
  }
  Example batch;
  for (size_t i = 0; i < specs.size(); ++i) {
    batch.Set(specs[i].name, ExpectedBatch(specs[i], columns[i]));
  }
  return batch;
}

bool Same(const Example& a, const Example& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) {
                      return x.first == y.first && x.second.BitEqual(y.second);
                    });
}

// Each example by itself: the same verdict and error, and where no dimension is
// padded, stacked the same batch.
void CheckOneByOne(const Views& views, const Specs& specs,
                   const Result<Example>& batch) {
  std::vector<Example> examples;
  for (size_t i = 0; i < views.size(); ++i) {
    const auto example = ParseTfExample(views[i], specs);
    if (!example.ok()) {
      CHECK(batch.status().message() ==
            fmt::format("example {}: {}", i, example.status().message()));
      return;
    }
    examples.push_back(*example);
  }
  REQUIRE(batch.ok());
  if (examples.empty()) return;
  const auto stacked = Stack(examples);
  if (stacked.ok()) CHECK(Same(*stacked, *batch));
}

TEST_CASE("random batches are what protobuf makes of each example") {
  const google::protobuf::LogSilencer silent;
  std::mt19937 random(11);
  std::map<Code, int> outcomes;
  for (int trial = 0; trial < 4'000; ++trial) {
    const size_t wrong = Once(random, 2) ? 50 : 5'000;
    Wire wire(random, wrong / 50);
    const Specs specs = RandomSpecs(random, kNames);
    std::vector<std::string> bytes(Once(random, 2) ? Below(random, 3)
                                                   : Below(random, 40));
    for (std::string& b : bytes) b = RandomExample(specs, wrong, wire, random);
    const Views views(bytes.begin(), bytes.end());
    size_t at;
    const auto expected = Expected(views, specs, &at);
    const auto got = ParseTfExamples(views, specs);
    ++outcomes[expected.status().code()];
    REQUIRE(got.status().code() == expected.status().code());
    if (expected.ok()) {
      CHECK(Same(*got, *expected));
    } else {
      const std::string message = got.status().message();
      CHECK(message.starts_with(fmt::format("example {}: ", at)));
      CHECK(Contains(message, expected.status().message()));
    }
    CheckOneByOne(views, specs, got);
  }
  CHECK(outcomes[Code::kOk] > 1'000);
  CHECK(outcomes[Code::kDataLoss] > 300);
  CHECK(outcomes[Code::kNotFound] > 70);
  CHECK(outcomes[Code::kInvalidArgument] > 300);
}

TEST_CASE("wild examples have the verdict they have one by one") {
  const google::protobuf::LogSilencer silent;
  std::mt19937 random(12);
  Wire wire(random);
  int valid = 0, invalid = 0;
  for (int trial = 0; trial < 10'000; ++trial) {
    std::string bytes = wire.Example();
    for (int n = trial % 4; n > 1; --n) Damage(random, &bytes);
    const std::string_view view = bytes;
    const bool is_valid = proto::Example().ParseFromString(bytes);
    (is_valid ? valid : invalid) += 1;
    // Every list is read both as one that is wanted and one that is not.
    const Specs specs = RandomSpecs(random, kNames);
    const auto got = ParseTfExamples({&view, 1}, specs);
    CHECK((got.status().code() != Code::kDataLoss) == is_valid);
    CheckOneByOne({view}, specs, got);
  }
  CHECK(valid > 2'500);
  CHECK(invalid > 2'500);
}

TEST_CASE("a batch of none, of a large string, and what is wrong with one") {
  const Specs specs = {{"label", DType::kInt64, {2}},
                       {"image", DType::kUInt8, {kUnknown}, 7}};
  const Example none = ParseTfExamples({}, specs).ValueOrThrow();
  CHECK(none["label"].shape() == Shape{0, 2});
  CHECK(none["image"].shape() == Shape{0, 0});
  const std::string large(300'000, 'x');
  const auto encode = [](std::vector<int64_t> label, const std::string& image) {
    const std::pair<std::string, TfFeature> features[] = {
        {"label", label}, {"image", std::vector<std::string>{image}}};
    return EncodeTfExample(features).ValueOrThrow();
  };
  const std::string a = encode({1, 2}, "ab"), b = encode({3, 4}, large),
                    bad = encode({5}, "");
  const Example batch = ParseTfExamples(Views{a, b}, specs).ValueOrThrow();
  CHECK(batch["label"].BitEqual(Tensor::Array<int64_t>({2, 2}, {1, 2, 3, 4})));
  REQUIRE(batch["image"].shape() == Shape{2, 300'000});
  CHECK(batch["image"].Rows(0, 1).At(1) == 'b');
  CHECK(batch["image"].Rows(0, 1).At(2) == 7);
  CHECK(batch["image"].At(599'999) == 'x');
  CHECK(ParseTfExamples(Views{a, bad}, specs).status().message() ==
        "example 1: feature 'label' holds 1 values, wanted int64[2]");
  CHECK(ParseTfExamples(Views{a, b, "?"}, specs).status().message() ==
        "example 2: these 1 bytes are no tf.Example");
  const FeatureSpec absent{"x", DType::kInt64, {}};
  CHECK(ParseTfExamples(Views{a}, {&absent, 1}).status().message() ==
        "example 0: no feature 'x' among: image, label");
  const FeatureSpec full{"label", DType::kInt64, {1, 1, 1, 1, 1, 1, 1, 2}};
  CHECK(ParseTfExample(a, {&full, 1}).ok());
  CHECK(Contains(ParseTfExamples(Views{a}, {&full, 1}).status().message(),
                 "no room for another dimension"));
}

}  // namespace
}  // namespace sluice

#endif
