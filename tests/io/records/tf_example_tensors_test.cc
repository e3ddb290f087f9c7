// tf.Example written, and its tensors, against the messages protobuf makes of
// io/proto/example.proto.
#include <doctest/doctest.h>

#include "io/records/tf_example.h"

#if SLUICE_HAVE_PROTOBUF

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>

#include "io/proto/example.pb.h"
#include "tests/support/error_text.h"
#include "tests/support/random_bytes.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Contains;
using testing::Once;
using testing::RandomBytes;
using testing::RandomInt;

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

FeatureSpec RandomSpec(std::mt19937& random) {
  static constexpr const char* kNames[] = {"a", "b", "c", "d", "image/encoded"};
  static constexpr DType kTypes[] = {DType::kFloat32, DType::kInt64,
                                     DType::kUInt8};
  FeatureSpec spec{kNames[Below(random, 5)], kTypes[Below(random, 3)], {}};
  for (size_t rank = Below(random, 3); rank > 0; --rank) {
    spec.shape.push_back(static_cast<int64_t>(Below(random, 4)));
  }
  if (spec.shape.rank() > 0 && Once(random, 2)) spec.shape.set(0, kUnknown);
  if (Once(random, 2)) spec.missing = static_cast<double>(Below(random, 100));
  return spec;
}

// The tensor a spec asks for, one element after the other; or the error.
Result<Tensor> ExpectedTensor(const proto::Example& example,
                              const FeatureSpec& spec) {
  const auto& map = example.features().feature();
  const auto found = map.find(spec.name);
  std::vector<double> values;
  const bool text = spec.dtype == DType::kUInt8;
  int lists = 0;  // of text, strings
  if (found != map.end()) {
    const proto::Feature& f = found->second;
    const int kind = text ? 1 : spec.dtype == DType::kFloat32 ? 2 : 3;
    if (f.kind_case() != kind) return InvalidArgument("holds");
    lists = f.bytes_list().value_size();
    if (text && lists > 1) return InvalidArgument("wanted one");
    for (const std::string& s : f.bytes_list().value()) {
      for (const char c : s) values.push_back(static_cast<uint8_t>(c));
    }
    for (const float v : f.float_list().value()) values.push_back(v);
    for (const int64_t v : f.int64_list().value()) {
      values.push_back(static_cast<double>(v));
    }
  } else if (!spec.missing) {
    return NotFound("no feature");
  }
  Shape shape = spec.shape;
  const bool any_rows = shape.rank() > 0 && shape[0] == kUnknown;
  const bool none = text ? lists == 0 : values.empty();
  if (none && spec.missing) {
    if (any_rows) shape.set(0, 0);
    return Tensor::Full(spec.dtype, shape, *spec.missing);
  }
  if (text && none) return InvalidArgument("wanted one");
  if (any_rows) {  // tries them all
    for (int64_t n = 0; n <= 200 && shape[0] == kUnknown; ++n) {
      Shape rows = shape;
      rows.set(0, n);
      if (rows.elements() == static_cast<int64_t>(values.size())) shape = rows;
    }
  }
  if (shape.elements() != static_cast<int64_t>(values.size())) {
    return InvalidArgument(fmt::format("holds {}", values.size()));
  }
  return Tensor::Array<double>(shape, values).Cast(spec.dtype);
}

TEST_CASE("tensors by random specs") {
  std::mt19937 random(3);
  std::map<Code, int> outcomes;
  for (int i = 0; i < 6'000; ++i) {
    Features features = RandomFeatures(random);
    for (auto& [name, feature] : features) {  // what a double can hold
      if (auto* ints = std::get_if<std::vector<int64_t>>(&feature)) {
        for (int64_t& v : *ints) v /= 4096;
      }
    }
    const std::string bytes = EncodeTfExample(features).ValueOrThrow();
    proto::Example reference;
    REQUIRE(reference.ParseFromString(bytes));
    const FeatureSpec spec = RandomSpec(random);
    const auto expected = ExpectedTensor(reference, spec);
    const auto got = ParseTfExample(bytes, {&spec, 1});
    ++outcomes[expected.status().code()];
    REQUIRE(got.status().code() == expected.status().code());
    if (expected.ok()) {
      REQUIRE(got->size() == 1);
      CHECK(got->begin()->first == spec.name);
      CHECK((*got)[spec.name].BitEqual(*expected));
    } else {
      const std::string message = got.status().message();
      CHECK(Contains(message, expected.status().message()));
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
