// tf.Example written, and its tensors, against the messages protobuf makes of
// io/proto/example.proto.
#include <doctest/doctest.h>

#include "io/records/tf_example.h"

#if SLUICE_HAVE_PROTOBUF

#include <algorithm>
#include <map>
#include <random>

#include "io/proto/example.pb.h"
#include "tests/io/records/tf_example_reference.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Contains;
using testing::ExpectedTensor;
using testing::Once;
using testing::RandomBytes;
using testing::RandomInt;
using testing::RandomSpec;

using Features = std::vector<std::pair<std::string, TfFeature>>;

Features RandomFeatures(std::mt19937& random) {
  Features features;
  for (const char* name : {"a", "b", "c", "image/encoded", "zw\xc3\xb6lf"}) {
    if (Once(random, 4)) continue;
    const size_t n = Once(random, 3) ? 1 : Below(random, 7);
    switch (Below(random, 3)) {
      case 0: {
        std::vector<std::string> values(n);
        for (auto& v : values) v = RandomBytes(random, Below(random, 12));
        features.emplace_back(name, std::move(values));
        break;
      }
      case 1: {
        std::vector<float> values(n);
        for (auto& v : values) v = static_cast<float>(RandomInt(random)) / 8;
        features.emplace_back(name, std::move(values));
        break;
      }
      default: {
        std::vector<int64_t> values(n);
        for (auto& v : values) v = RandomInt(random);
        features.emplace_back(name, std::move(values));
      }
    }
  }
  return features;
}

TEST_CASE("what is encoded is read by protobuf, the same bytes in any order") {
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    Features features = RandomFeatures(random);
    const std::string bytes = EncodeTfExample(features).ValueOrThrow();
    proto::Example example;
    REQUIRE(example.ParseFromString(bytes));
    const auto& map = example.features().feature();
    REQUIRE(map.size() == features.size());
    for (const auto& [name, feature] : features) {
      const proto::Feature& got = map.at(name);
      CHECK(got.kind_case() == static_cast<int>(feature.index()) + 1);
      const auto same = [](const auto& a, const auto& b) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end());
      };
      CHECK((feature.index() == 0
                 ? same(std::get<0>(feature), got.bytes_list().value())
             : feature.index() == 1
                 ? same(std::get<1>(feature), got.float_list().value())
                 : same(std::get<2>(feature), got.int64_list().value())));
    }
    std::shuffle(features.begin(), features.end(), random);
    CHECK(EncodeTfExample(features).ValueOrThrow() == bytes);
  }
  const TfFeature one = std::vector<int64_t>{1};
  const auto twice = EncodeTfExample(Features{{"a", one}, {"a", one}});
  CHECK(twice.status().code() == Code::kInvalidArgument);
  CHECK(Contains(twice.status().message(), "'a' comes twice"));
  const auto no_text = EncodeTfExample(Features{{"\xff", one}});
  CHECK(no_text.status().code() == Code::kInvalidArgument);
}

TEST_CASE("tensors by random specs") {
  static constexpr const char* kNames[] = {"a", "b", "c", "d", "image/encoded"};
  std::mt19937 random(3);
  std::map<Code, int> outcomes;
  for (int i = 0; i < 6'000; ++i) {
    const std::string bytes =
        EncodeTfExample(RandomFeatures(random)).ValueOrThrow();
    proto::Example reference;
    REQUIRE(reference.ParseFromString(bytes));
    const FeatureSpec spec = RandomSpec(random, kNames[Below(random, 5)]);
    const auto& map = reference.features().feature();
    const auto feature = map.find(spec.name);
    Tensor tensor;
    const Status expected = ExpectedTensor(
        feature == map.end() ? nullptr : &feature->second, spec, &tensor);
    const auto got = ParseTfExample(bytes, {&spec, 1});
    ++outcomes[expected.code()];
    REQUIRE(got.status().code() == expected.code());
    if (expected.ok()) {
      REQUIRE(got->size() == 1);
      CHECK(got->begin()->first == spec.name);
      CHECK((*got)[spec.name].BitEqual(tensor));
    } else {
      const std::string message = got.status().message();
      CHECK(Contains(message, expected.message()));
      CHECK(Contains(message, "'" + spec.name + "'"));
    }
  }
  for (const Code code : {Code::kOk, Code::kNotFound, Code::kInvalidArgument}) {
    CHECK(outcomes[code] > 300);
  }
}

TEST_CASE("what is wrong with a feature is said") {
  const std::string bytes =
      EncodeTfExample(Features{{"label", std::vector<int64_t>{3, 4}},
                               {"image", std::vector<std::string>{"abc"}}})
          .ValueOrThrow();
  const auto error = [&](const FeatureSpec& spec) {
    return ParseTfExample(bytes, {&spec, 1}).status().message();
  };
  CHECK(error({"label", DType::kInt64, {}}) ==
        "feature 'label' holds 2 values, wanted int64[]");
  CHECK(error({"label", DType::kInt64, {kUnknown, 3}}) ==
        "feature 'label' holds 2 values, wanted int64[?,3]");
  CHECK(error({"label", DType::kFloat32, {2}}) ==
        "feature 'label' holds integers, wanted floats");
  CHECK(error({"image", DType::kUInt8, {4}}) ==
        "feature 'image' holds 3 bytes, wanted uint8[4]");
  CHECK(error({"x", DType::kInt64, {}}) ==
        "no feature 'x' among: image, label");
  CHECK(Contains(error({"label", DType::kInt32, {2}}), "wanted as int32"));
  CHECK(Contains(error({"label", DType::kInt64, {2, kUnknown}}),
                 "only the first dimension"));
  CHECK(Contains(error({"x", DType::kUInt8, {}, 256}), "256"));
  CHECK(TfExample::Parse(bytes)->Int("label").status().message() ==
        "feature 'label' holds 2 integers, wanted one");
  const FeatureSpec both[] = {{"label", DType::kInt64, {kUnknown}},
                              {"image", DType::kUInt8, {kUnknown}}};
  const Example example = ParseTfExample(bytes, both).ValueOrThrow();
  CHECK(example.begin()->first == "label");
  CHECK(
      example["image"].BitEqual(Tensor::Array<uint8_t>({3}, {'a', 'b', 'c'})));
}

}  // namespace
}  // namespace sluice

#endif
