// tf.Example read, against the messages protobuf makes of
// io/proto/example.proto: of every form, damaged, and by TensorFlow.
#include "io/records/tf_example.h"

#include <doctest/doctest.h>

#include "io/files/record.h"
#include "tests/support/error_text.h"

#if SLUICE_HAVE_PROTOBUF

#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <bit>
#include <random>

#include "io/proto/example.pb.h"
#include "tests/support/random_bytes.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Once;
using testing::RandomBytes;
using testing::RandomInt;

using namespace std::string_literals;  // NOLINT: zeros in text

// Writes protobuf's wire format as its specification allows it, not only as
// protobuf does.
class Wire {
 public:
  explicit Wire(std::mt19937& random) : random_(random) {}

  std::string Varint(uint64_t value, size_t most_bytes) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) {
      bytes += static_cast<char>(value | 0x80);
    }
    bytes += static_cast<char>(value);
    // Longer than need be; one byte more than may be, too.
    const size_t size = Once(random_, 150) ? Below(random_, most_bytes + 2) : 0;
    while (bytes.size() < size) {
      bytes.back() = static_cast<char>(bytes.back() | 0x80);
      bytes += '\0';
    }
    return bytes;
  }
  std::string Bytes(uint64_t number, const std::string& value) {
    return Varint(number << 3 | 2, 5) + Varint(value.size(), 5) + value;
  }
  std::string Unknown(size_t depth = 0) {
    const uint64_t number = Once(random_, 10) ? Below(random_, 2) * 536870911
                                              : 1 + Below(random_, 20);
    const uint64_t type = Below(random_, Once(random_, 20) ? 8 : 6);
    std::string tag = Varint(number << 3 | type, 5);
    switch (type) {
      case 0:
        return tag + Varint(static_cast<uint64_t>(RandomInt(random_)), 10);
      case 1:
        return tag + RandomBytes(random_, 8);
      case 2:
        return Bytes(number, RandomBytes(random_, Below(random_, 9)));
      case 3:
        return tag + (depth < 3 ? Unknown(depth + 1) : "") +
               Varint(number << 3 | 4, 5);
      case 5:
        return tag + RandomBytes(random_, 4);
      default:
        return tag;
    }
  }
  std::string MaybeUnknown() { return Once(random_, 25) ? Unknown() : ""; }

  // A BytesList, FloatList or Int64List.
  std::string List(uint64_t kind) {
    std::string list = MaybeUnknown();
    for (size_t n = Below(random_, 4); n > 0; --n) {
      if (kind == 1) {
        list += Bytes(1, RandomBytes(random_, Below(random_, 200)));
      } else {
        const bool packed = !Once(random_, 3);
        std::string values;
        for (size_t i = packed ? Below(random_, 5) : 1; i > 0; --i) {
          values += kind == 2
                        ? RandomBytes(random_, 4)
                        : Varint(static_cast<uint64_t>(RandomInt(random_)), 10);
        }
        const uint64_t type = kind == 2 ? 5 : 0;
        list += packed ? Bytes(1, values) : Varint(8 | type, 5) + values;
      }
      list += MaybeUnknown();
    }
    return list;
  }
  std::string Feature() {
    std::string feature = MaybeUnknown();
    do {
      const uint64_t kind = 1 + Below(random_, 3);
      if (!Once(random_, 6)) feature += Bytes(kind, List(kind));
      feature += MaybeUnknown();
    } while (Once(random_, 8));
    return feature;
  }
  std::string Entry() {
    static constexpr const char* kNames[] = {"",  "a", "image", "zw\xc3\xb6lf",
                                             "b", "c", "d",     "e"};
    std::string name = kNames[Below(random_, std::size(kNames))];
    if (Once(random_, 60)) name += RandomBytes(random_, 2);
    std::vector<std::string> fields;
    if (!Once(random_, 20)) fields.push_back(Bytes(1, name));
    do {
      if (!Once(random_, 20)) fields.push_back(Bytes(2, Feature()));
      fields.push_back(MaybeUnknown());
    } while (Once(random_, 10));
    if (Once(random_, 3)) {
      std::shuffle(fields.begin(), fields.end(), random_);
    }
    std::string entry;
    for (const std::string& field : fields) entry += field;
    return entry;
  }
  std::string Example() {
    std::string example;
    do {
      std::string features = MaybeUnknown();
      for (size_t n = Below(random_, 6); n > 0; --n) {
        features += Bytes(1, Entry()) + MaybeUnknown();
      }
      example += Bytes(1, features) + MaybeUnknown();
    } while (Once(random_, 5));
    return example;
  }

 private:
  std::mt19937& random_;
};

void Damage(std::mt19937& random, std::string* bytes) {
  if (bytes->empty()) return;
  const size_t at = Below(random, bytes->size());
  switch (Below(random, 4)) {
    case 0:
      bytes->resize(at);
      break;
    case 1:
      bytes->erase(at, 1 + Below(random, 3));
      break;
    case 2:
      bytes->insert(at, RandomBytes(random, 1 + Below(random, 3)));
      break;
    default:
      (*bytes)[at] = static_cast<char>(random());
  }
}

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

TEST_CASE("without protobuf there is no tf.Example, and one clear error") {
  for (const Status& status :
       {TfExample::Parse("").status(), ParseTfExample("", {}).status(),
        EncodeTfExample({}).status()}) {
    CHECK(status.code() == Code::kUnimplemented);
    CHECK(testing::Contains(status.message(), "libprotobuf-dev"));
  }
}

}  // namespace sluice

#endif
