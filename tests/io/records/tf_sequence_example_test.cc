// tf.SequenceExample, against the messages protobuf makes of
// io/proto/example.proto and against TensorFlow's bytes.
#include "io/records/tf_sequence_example.h"

#include <doctest/doctest.h>

#if SLUICE_HAVE_PROTOBUF

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

const std::vector<std::string> kContext = {"a", "b", "image"};
const std::vector<std::string> kLists = {"", "c", "d", "zw\xc3\xb6lf"};

// What the specs want and more.
std::string RandomSequence(const Specs& context, const Specs& lists,
                           size_t wrong, Wire& wire, std::mt19937& random) {
  std::string features, feature_lists;
  for (const FeatureSpec& spec : context) {
    if (Once(random, spec.missing ? 5 : wrong)) continue;
    features += wire.Bytes(1, wire.Entry(spec.name, [&] {
      return FeatureFor(spec, wrong, wire, random);
    }));
  }
  for (const FeatureSpec& spec : lists) {
    if (Once(random, spec.missing ? 5 : wrong)) continue;
    if (Once(random, 5)) {  // counts for nothing
      feature_lists += wire.Bytes(
          1, wire.Entry(spec.name, [&] { return wire.FeatureList(); }));
    }
    feature_lists += wire.Bytes(1, wire.Entry(spec.name, [&] {
      std::string list;
      for (size_t n = Below(random, 5); n > 0; --n) {
        list += wire.Bytes(1, FeatureFor(spec, wrong, wire, random));
      }
      return list;
    }));
    if (Once(random, 5)) {
      feature_lists += wire.Bytes(
          1, wire.Entry("other", [&] { return wire.FeatureList(); }));
    }
  }
  std::string bytes = wire.Bytes(1, features) + wire.Bytes(2, feature_lists);
  for (size_t n = Once(random, wrong) ? 2 : 0; n > 0; --n) {
    Damage(random, &bytes);
  }
  return bytes;
}

Status ExpectedList(const proto::FeatureList* list, const FeatureSpec& spec,
                    Tensor* out) {
  if (list == nullptr && !spec.missing) return NotFound("no feature list");
  std::vector<Tensor> steps;
  for (int i = 0; list != nullptr && i < list->feature_size(); ++i) {
    SLUICE_RETURN_IF_ERROR(
        ExpectedTensor(&list->feature(i), spec, &steps.emplace_back()));
  }
  *out = ExpectedBatch(spec, steps);
  return {};
}

template <typename Map>
auto* Find(const Map& map, const std::string& name) {
  const auto found = map.find(name);
  return found == map.end() ? nullptr : &found->second;
}

Result<Example> Expected(const std::string& bytes, const Specs& context,
                         const Specs& lists) {
  proto::SequenceExample sequence;
  if (!sequence.ParseFromString(bytes)) return DataLoss("no tf.Sequence");
  Example example;
  for (const FeatureSpec& spec : context) {
    const auto& map = sequence.context().feature();
    Tensor tensor;
    SLUICE_RETURN_IF_ERROR(ExpectedTensor(Find(map, spec.name), spec, &tensor));
    example.Set(spec.name, std::move(tensor));
  }
  for (const FeatureSpec& spec : lists) {
    const auto& map = sequence.feature_lists().feature_list();
    Tensor tensor;
    SLUICE_RETURN_IF_ERROR(ExpectedList(Find(map, spec.name), spec, &tensor));
    example.Set(spec.name, std::move(tensor));
  }
  return example;
}

bool Same(const Example& a, const Example& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) {
                      return x.first == y.first && x.second.BitEqual(y.second);
                    });
}

TEST_CASE("random sequences, whole and damaged, are what protobuf reads") {
  const google::protobuf::LogSilencer silent;
  std::mt19937 random(21);
  std::map<Code, int> outcomes;
  for (int trial = 0; trial < 8'000; ++trial) {
    const size_t wrong = Once(random, 3) ? 10 : 1'000;
    Wire wire(random, Once(random, 3) ? 1 : 50);
    const Specs context = RandomSpecs(random, kContext);
    const Specs lists = RandomSpecs(random, kLists);
    std::string bytes = RandomSequence(context, lists, wrong, wire, random);
    if (Once(random, 4)) bytes = wire.SequenceExample();
    const auto expected = Expected(bytes, context, lists);
    const auto got = ParseTfSequenceExample(bytes, context, lists);
    ++outcomes[expected.status().code()];
    REQUIRE(got.status().code() == expected.status().code());
    if (expected.ok()) CHECK(Same(*got, *expected));
  }
  CHECK(outcomes[Code::kOk] > 2'000);
  CHECK(outcomes[Code::kDataLoss] > 500);
  CHECK(outcomes[Code::kNotFound] > 200);
  CHECK(outcomes[Code::kInvalidArgument] > 200);
}

// By tf.train.SequenceExample of TensorFlow 2.21, with the maps' order fixed:
//   context {"id": [-7], "title": [b"zwölf"]}, feature lists
//   {"box": [[0.25, -1.5], [3e38, 0], [1, 2]], "none": [],
//    "pixels": [b"\0\xff", b"ab"], "words": [[1, 2, 2**40], [], [-5]]}
constexpr char kTensorFlow[] =
    "0a2b0a140a026964120e1a0c0a0af9ffffffffffffffff010a130a057469746c65120a0a08"
    "0a067a77c3b66c661286010a310a03626f78122a0a0c120a0a080000803e0000c0bf0a0c12"
    "0a0a08e6b1617f000000000a0c120a0a080000803f000000400a080a046e6f6e6512000a1a"
    "0a06706978656c7312100a060a040a0200ff0a060a040a0261620a2b0a05776f7264731222"
    "0a0c1a0a0a0801028080808080200a021a000a0e1a0c0a0afbffffffffffffffff01";

std::string TensorFlowBytes() {
  std::string bytes;
  for (size_t i = 0; i + 1 < sizeof(kTensorFlow); i += 2) {
    bytes += static_cast<char>(
        std::stoi(std::string(kTensorFlow + i, 2), nullptr, 16));
  }
  return bytes;
}

TEST_CASE("a sequence by TensorFlow is read, and written the same") {
  using Ints = std::vector<int64_t>;
  using Floats = std::vector<float>;
  using Strings = std::vector<std::string>;
  const std::string bytes = TensorFlowBytes();
  const Specs context = {{"id", DType::kInt64, {}},
                         {"title", DType::kUInt8, {kUnknown}}};
  const Specs lists = {{"box", DType::kFloat32, {2}},
                       {"words", DType::kInt64, {kUnknown}, -1},
                       {"pixels", DType::kUInt8, {2}},
                       {"none", DType::kFloat32, {3}},
                       {"absent", DType::kFloat32, {3}, 0}};
  const Example example =
      ParseTfSequenceExample(bytes, context, lists).ValueOrThrow();
  CHECK(example["id"].BitEqual(Tensor::Scalar<int64_t>(-7)));
  CHECK(example["title"].shape() == Shape{6});
  CHECK(example["box"].BitEqual(
      Tensor::Array<float>({3, 2}, {0.25f, -1.5f, 3e38f, 0, 1, 2})));
  CHECK(example["words"].BitEqual(Tensor::Array<int64_t>(
      {3, 3}, {1, 2, int64_t{1} << 40, -1, -1, -1, -5, -1, -1})));
  CHECK(example["pixels"].BitEqual(
      Tensor::Array<uint8_t>({2, 2}, {0, 255, 'a', 'b'})));
  CHECK(example["none"].shape() == Shape{0, 3});
  CHECK(example["absent"].shape() == Shape{0, 3});

  const std::vector<std::pair<std::string, TfFeature>> features = {
      {"title", Strings{"zw\xc3\xb6lf"}}, {"id", Ints{-7}}};
  const std::vector<std::pair<std::string, TfFeatureList>> feature_lists = {
      {"words", {Ints{1, 2, int64_t{1} << 40}, Ints{}, Ints{-5}}},
      {"none", {}},
      {"box", {Floats{0.25f, -1.5f}, Floats{3e38f, 0}, Floats{1, 2}}},
      {"pixels", {Strings{std::string("\0\xff", 2)}, Strings{"ab"}}}};
  CHECK(EncodeTfSequenceExample(features, feature_lists).ValueOrThrow() ==
        bytes);
}

TEST_CASE("what is wrong with a sequence is said") {
  const std::string bytes = TensorFlowBytes();
  const auto error = [&](const Specs& context, const Specs& lists) {
    return ParseTfSequenceExample(bytes, context, lists).status().message();
  };
  CHECK(error({{"box", DType::kFloat32, {2}}}, {}) ==
        "no feature 'box' among: id, title");
  CHECK(error({}, {{"id", DType::kInt64, {}}}) ==
        "no feature list 'id' among: box, none, pixels, words");
  CHECK(error({}, {{"words", DType::kInt64, {3}}}) ==
        "step 1: feature 'words' holds 0 values, wanted int64[3]");
  CHECK(error({}, {{"words", DType::kFloat32, {3}}}) ==
        "step 0: feature 'words' holds integers, wanted floats");
  CHECK(error({{"id", DType::kInt64, {}}}, {{"id", DType::kInt64, {}}}) ==
        "'id' is wanted both of the context and of the feature lists");
  CHECK(Contains(error({}, {{"words", DType::kInt32, {3}}}), "as int32"));
  CHECK(ParseTfSequenceExample("?", {}, {}).status().message() ==
        "these 1 bytes are no tf.SequenceExample");
  CHECK(ParseTfSequenceExample("", {}, {}).ValueOrThrow().empty());
  const TfFeatureList steps = {std::vector<int64_t>{1}};
  const std::vector<std::pair<std::string, TfFeatureList>> twice = {
      {"a", steps}, {"a", steps}};
  CHECK(Contains(EncodeTfSequenceExample({}, twice).status().message(),
                 "feature list 'a' comes twice"));
}

}  // namespace
}  // namespace sluice

#endif
