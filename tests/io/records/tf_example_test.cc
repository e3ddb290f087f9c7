// tf.Example read, against the messages protobuf makes of
// io/proto/example.proto: of every form, damaged, and by TensorFlow.
#include "io/records/tf_example.h"

#include <doctest/doctest.h>

#include "io/files/record.h"
#include "io/records/tf_sequence_example.h"
#include "tests/support/error_text.h"

#if SLUICE_HAVE_PROTOBUF

#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <bit>
#include <random>

#include "io/proto/example.pb.h"
#include "tests/io/records/tf_example_reference.h"

namespace sluice {
namespace {

using testing::Damage;
using testing::Wire;

using namespace std::string_literals;  // NOLINT: zeros in text

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float v : values) bits.push_back(std::bit_cast<uint32_t>(v));
  return bits;
}

// Is the feature what protobuf has?
bool Same(const TfExample& example, const std::string& name,
          const proto::Feature& feature) {
  const auto bytes = example.BytesList(name);
  const auto floats = example.Floats(name);
  const auto ints = example.Ints(name);
  const auto kind = feature.kind_case();
  const auto& strings = feature.bytes_list().value();
  const auto& reals = feature.float_list().value();
  const auto& whole = feature.int64_list().value();
  // Where it is of another kind the list is empty.
  const auto as_wanted = [&](const auto& got, auto of, const auto& values) {
    if (kind != of && kind != proto::Feature::KIND_NOT_SET) {
      return got.status().code() == Code::kInvalidArgument;
    }
    return got.ok() &&
           std::equal(got->begin(), got->end(), values.begin(), values.end());
  };
  if (floats.ok()) {  // as bits, since NaN is nothing's equal
    if (Bits(*floats) != Bits({reals.begin(), reals.end()})) return false;
  } else if (!as_wanted(floats, proto::Feature::kFloatList, reals)) {
    return false;
  }
  const bool one = strings.size() == 1, one_int = whole.size() == 1;
  return example.contains(name) &&
         as_wanted(bytes, proto::Feature::kBytesList, strings) &&
         as_wanted(ints, proto::Feature::kInt64List, whole) &&
         example.Bytes(name).ok() == one && example.Int(name).ok() == one_int &&
         (!one || *example.Bytes(name) == strings[0]) &&
         (!one_int || *example.Int(name) == whole[0]);
}

bool Same(const TfExample& example, const proto::Example& reference) {
  std::vector<std::string> names;
  for (const auto& [name, feature] : reference.features().feature()) {
    if (!Same(example, name, feature)) return false;
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return example.names() == names;
}

TEST_CASE(
    "examples of every form, whole and damaged, are what protobuf reads") {
  const google::protobuf::LogSilencer silent;  // it says what is no UTF-8
  std::mt19937 random(1);
  Wire wire(random);
  int valid = 0, invalid = 0, different = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = wire.Example();
    for (int n = i % 4; n > 1; --n) Damage(random, &bytes);
    proto::Example reference;
    const bool is_valid = reference.ParseFromString(bytes);
    (is_valid ? valid : invalid) += 1;
    const auto example = TfExample::Parse(bytes);
    if (example.ok() != is_valid || (is_valid && !Same(*example, reference))) {
      ++different;
    }
    if (!is_valid) CHECK(example.status().code() == Code::kDataLoss);
  }
  CHECK(different == 0);
  CHECK(valid > 5'000);
  CHECK(invalid > 5'000);
}

TEST_CASE("what is no example") {
  CHECK(TfExample::Parse("").ok());
  for (const std::string& bad :
       {"\0"s, "\n"s, "\n\x05"s, "hello"s, "\n\x02\n\x01"s,
        std::string(9, '\n'), std::string(300, '\x0b'),
        std::string(20, '\xff')}) {
    const auto example = TfExample::Parse(bad);
    CHECK(example.status().code() == Code::kDataLoss);
    CHECK(!proto::Example().ParseFromString(bad));
  }
}

// By tf.io.TFRecordWriter and tf.train.Example of TensorFlow 2.21:
//   {"image/encoded": [b"\xff\xd8\0\n"], "box": [0.25, -1.5, 3e38],
//    "image/class/label": [-1, 0, 1000, 2**63 - 1, -2**63]}
//   {"names": [b"one", b"", "zwölf"], "none": Feature(), and empty lists
//    "floats", "ints", "bytes"}
//   an empty record
constexpr char kTensorFlow[] =
    "71000000000000009c97e7730a6f0a170a03626f781210120e0a0c0000803e0000c0bfe6b1"
    "617f0a190a0d696d6167652f656e636f64656412080a060a04ffd8000a0a390a11696d6167"
    "652f636c6173732f6c6162656c12241a220a20ffffffffffffffffff0100e807ffffffffff"
    "ffffff7f808080808080808080019f0703304f000000000000006c474f930a4d0a1a0a056e"
    "616d657312110a0f0a036f6e650a000a067a77c3b66c660a0c0a06666c6f61747312021200"
    "0a080a046e6f6e6512000a0a0a04696e747312021a000a0b0a05627974657312020a0044b6"
    "90eb000000000000000029039807d8ea82a2";

TEST_CASE("records by TensorFlow") {
  std::string file;
  for (size_t i = 0; i + 1 < sizeof(kTensorFlow); i += 2) {
    file += static_cast<char>(
        std::stoi(std::string(kTensorFlow + i, 2), nullptr, 16));
  }
  RecordReader reader(file);
  std::string_view payload;
  REQUIRE(*reader.Next(&payload));
  const auto first = TfExample::Parse(payload).ValueOrThrow();
  CHECK(*first.Bytes("image/encoded") == "\xff\xd8\0\n"s);
  CHECK(*first.Floats("box") == std::vector<float>{0.25f, -1.5f, 3e38f});
  CHECK(*first.Ints("image/class/label") ==
        std::vector<int64_t>{-1, 0, 1000, INT64_MAX, INT64_MIN});
  // The same example is the same record.
  std::string ours;
  AppendRecord(payload, &ours);
  CHECK(file.starts_with(ours));
  REQUIRE(*reader.Next(&payload));
  const auto second = TfExample::Parse(payload).ValueOrThrow();
  CHECK(*second.BytesList("names") ==
        std::vector<std::string_view>{"one", "", "zw\xc3\xb6lf"});
  CHECK(second.names() ==
        std::vector<std::string>{"bytes", "floats", "ints", "names", "none"});
  CHECK(second.BytesList("none")->empty());
  CHECK(second.Ints("none")->empty());
  CHECK(second.Floats("floats")->empty());
  CHECK(second.Ints("ints")->empty());
  CHECK(second.BytesList("bytes")->empty());
  CHECK(!second.Ints("bytes").ok());
  REQUIRE(*reader.Next(&payload));
  CHECK(payload.empty());
  CHECK(TfExample::Parse(payload)->names().empty());
  CHECK(!*reader.Next(&payload));
}

}  // namespace
}  // namespace sluice

#else

namespace sluice {

TEST_CASE("without protobuf no tf.Example is written, and one error says so") {
  for (const Status& status : {EncodeTfExample({}).status(),
                               EncodeTfSequenceExample({}, {}).status()}) {
    CHECK(status.code() == Code::kUnimplemented);
    CHECK(testing::Contains(status.message(), "libprotobuf-dev"));
  }
}

}  // namespace sluice

#endif
