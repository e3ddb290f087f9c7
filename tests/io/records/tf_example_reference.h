// tf.Examples written as their format allows it, and what protobuf's own parser
// makes of them as tensors.
#ifndef SLUICE_TESTS_IO_RECORDS_TF_EXAMPLE_REFERENCE_H_
#define SLUICE_TESTS_IO_RECORDS_TF_EXAMPLE_REFERENCE_H_

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/tensor.h"
#include "io/proto/example.pb.h"
#include "io/records/tf_example.h"
#include "tests/support/random_bytes.h"

namespace sluice::testing {

// Writes protobuf's wire format as its specification allows it, not only as
// protobuf does.
class Wire {
 public:
  // What is odd but allowed, and what is not, comes `rarer` times as rarely.
  explicit Wire(std::mt19937& random, size_t rarer = 1)
      : random_(random), rarer_(rarer) {}

  std::string Varint(uint64_t value, size_t most_bytes) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) {
      bytes += static_cast<char>(value | 0x80);
    }
    bytes += static_cast<char>(value);
    // Longer than need be; one byte more than may be, too.
    const size_t size = Odd(150) ? Below(random_, most_bytes + 2) : 0;
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
  std::string MaybeUnknown() { return Odd(25) ? Unknown() : ""; }

  // A BytesList, FloatList or Int64List of n values.
  std::string List(uint64_t kind, size_t n) {
    std::string list = MaybeUnknown();
    do {
      const bool packed = kind != 1 && !Once(random_, 3);
      const size_t count = packed ? Below(random_, n + 1) : n > 0 ? 1 : 0;
      std::string values;
      for (size_t i = 0; i < count; ++i) values += Value(kind);
      if (packed) {
        list += Bytes(1, values);
      } else if (count == 1) {
        list += kind == 1 ? Bytes(1, values)
                          : Varint(8 | (kind == 2 ? 5 : 0), 5) + values;
      }
      n -= count;
      list += MaybeUnknown();
    } while (n > 0);
    return list;
  }
  std::string Feature() {
    std::string feature = MaybeUnknown();
    do {
      const uint64_t kind = 1 + Below(random_, 3);
      if (!Once(random_, 6))
        feature += Bytes(kind, List(kind, Below(random_, 8)));
      feature += MaybeUnknown();
    } while (Once(random_, 8));
    return feature;
  }
  // Of a map: a name, and of its value such parts as `part` makes.
  template <typename Part>
  std::string Entry(std::string name, Part part) {
    if (Odd(60)) name += RandomBytes(random_, 2);
    std::vector<std::string> fields;
    if (!Odd(20)) fields.push_back(Bytes(1, name));
    do {
      if (!Odd(20)) fields.push_back(Bytes(2, part()));
      fields.push_back(MaybeUnknown());
    } while (Odd(10));
    if (Once(random_, 3)) {
      std::shuffle(fields.begin(), fields.end(), random_);
    }
    std::string entry;
    for (const std::string& field : fields) entry += field;
    return entry;
  }
  std::string Name() {
    static constexpr const char* kNames[] = {"",  "a", "image", "zw\xc3\xb6lf",
                                             "b", "c", "d",     "e"};
    return kNames[Below(random_, std::size(kNames))];
  }
  // A map of random entries.
  template <typename Part>
  std::string Map(Part part) {
    std::string map = MaybeUnknown();
    for (size_t n = Below(random_, 6); n > 0; --n) {
      map += Bytes(1, Entry(Name(), part)) + MaybeUnknown();
    }
    return map;
  }
  std::string FeatureList() {
    std::string list = MaybeUnknown();
    for (size_t n = Below(random_, 4); n > 0; --n) {
      list += Bytes(1, Feature()) + MaybeUnknown();
    }
    return list;
  }
  std::string Example() {
    std::string example;
    do {
      example += Bytes(1, Map([&] { return Feature(); })) + MaybeUnknown();
    } while (Once(random_, 5));
    return example;
  }
  std::string SequenceExample() {
    std::string example = Example();
    do {
      example += Bytes(2, Map([&] { return FeatureList(); })) + MaybeUnknown();
    } while (Once(random_, 5));
    return example;
  }

 private:
  bool Odd(size_t in) { return Once(random_, in * rarer_); }
  // Of a list, without its tag.
  std::string Value(uint64_t kind) {
    if (kind == 1) return RandomBytes(random_, Below(random_, 200));
    if (kind == 2) return RandomBytes(random_, 4);
    return Varint(static_cast<uint64_t>(RandomInt(random_)), 10);
  }

  std::mt19937& random_;
  const size_t rarer_;
};

inline void Damage(std::mt19937& random, std::string* bytes) {
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

inline FeatureSpec RandomSpec(std::mt19937& random, const std::string& name) {
  static constexpr DType kTypes[] = {DType::kFloat32, DType::kInt64,
                                     DType::kUInt8};
  FeatureSpec spec{name, kTypes[Below(random, 3)], {}};
  for (size_t rank = Below(random, 3); rank > 0; --rank) {
    spec.shape.push_back(static_cast<int64_t>(Below(random, 4)));
  }
  if (spec.shape.rank() > 0 && Once(random, 2)) spec.shape.set(0, kUnknown);
  if (Once(random, 2)) spec.missing = static_cast<double>(Below(random, 100));
  return spec;
}

// Specs of some of these names, one of them perhaps twice.
inline std::vector<FeatureSpec> RandomSpecs(std::mt19937& random,
                                            std::vector<std::string> names) {
  std::shuffle(names.begin(), names.end(), random);
  names.resize(Below(random, names.size() + 1));
  std::vector<FeatureSpec> specs;
  for (const std::string& name : names) {
    specs.push_back(RandomSpec(random, name));
    if (Once(random, 20)) specs.push_back(specs.back());
  }
  return specs;
}

// A feature as a spec wants it; once in `wrong` times it may be another.
inline std::string FeatureFor(const FeatureSpec& spec, size_t wrong, Wire& wire,
                              std::mt19937& random) {
  Shape shape = spec.shape;
  if (shape.rank() > 0 && shape[0] == kUnknown) {
    shape.set(0, static_cast<int64_t>(Below(random, 5)));
  }
  auto n = static_cast<size_t>(shape.elements());
  uint64_t kind = spec.dtype == DType::kUInt8     ? 1
                  : spec.dtype == DType::kFloat32 ? 2
                                                  : 3;
  std::string feature;
  if (Once(random, 10)) feature = wire.Bytes(kind % 3 + 1, "");  // replaced
  if (Once(random, wrong)) kind = 1 + Below(random, 3);
  if (Once(random, wrong)) ++n;
  if (spec.missing && Once(random, 5)) n = 0;
  if (kind == 1) {
    const bool none = spec.missing && Once(random, 5);
    const std::string text = wire.Bytes(1, RandomBytes(random, n));
    return feature + wire.Bytes(1, none ? "" : text);
  }
  const size_t before = Below(random, n + 1);  // the two add up
  return feature + wire.Bytes(kind, wire.List(kind, before)) +
         wire.Bytes(kind, wire.List(kind, n - before));
}

// The tensor that a spec asks for, of these values of its feature.
template <typename T>
Status ShapedAsWanted(const FeatureSpec& spec, std::vector<T> values,
                      Tensor* out) {
  Shape shape = spec.shape;
  const auto count = static_cast<int64_t>(values.size());
  if (shape.rank() > 0 && shape[0] == kUnknown) {  // tries them all
    for (int64_t n = 0; n <= 300 && shape[0] == kUnknown; ++n) {
      Shape rows = shape;
      rows.set(0, n);
      if (rows.elements() == count) shape = rows;
    }
  }
  if (shape.elements() != count) return InvalidArgument("holds");
  *out = Tensor::Array<T>(shape, values);
  return {};
}

// Of a feature, or of none; an error says how ours begins or goes on.
inline Status ExpectedTensor(const proto::Feature* feature,
                             const FeatureSpec& spec, Tensor* out) {
  if (feature == nullptr && !spec.missing) return NotFound("no feature");
  static const proto::Feature kNoFeature;
  const proto::Feature& f = feature == nullptr ? kNoFeature : *feature;
  const auto& strings = f.bytes_list().value();
  const auto& floats = f.float_list().value();
  const auto& ints = f.int64_list().value();
  const int wanted = spec.dtype == DType::kUInt8     ? 1
                     : spec.dtype == DType::kFloat32 ? 2
                                                     : 3;
  const int kind = f.kind_case();
  if (kind != 0 && kind != wanted) return InvalidArgument("holds");
  if (spec.missing && strings.empty() && floats.empty() && ints.empty()) {
    Shape shape = spec.shape;
    if (shape.rank() > 0 && shape[0] == kUnknown) shape.set(0, 0);
    *out = Tensor::Full(spec.dtype, shape, *spec.missing);
    return {};
  }
  if (wanted == 2) {
    return ShapedAsWanted<float>(spec, {floats.begin(), floats.end()}, out);
  }
  if (wanted == 3) {
    return ShapedAsWanted<int64_t>(spec, {ints.begin(), ints.end()}, out);
  }
  if (strings.size() != 1) return InvalidArgument("wanted one");
  return ShapedAsWanted<uint8_t>(spec, {strings[0].begin(), strings[0].end()},
                                 out);
}

// One tensor of those of a spec, the first dimension padded if it is unknown.
inline Tensor ExpectedBatch(const FeatureSpec& spec,
                            std::span<const Tensor> rows) {
  Shape shape{static_cast<int64_t>(rows.size())};
  for (const int64_t d : spec.shape) shape.push_back(d);
  const bool pad = spec.shape.rank() > 0 && spec.shape[0] == kUnknown;
  if (pad) {
    shape.set(1, 0);
    for (const Tensor& row : rows) {
      shape.set(1, std::max(shape[1], row.shape()[0]));
    }
  }
  Tensor batch = Tensor::Full(spec.dtype, shape, spec.missing.value_or(0));
  const size_t stride = rows.empty() ? 0 : batch.bytes() / rows.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].bytes() == 0) continue;
    std::memcpy(static_cast<char*>(batch.raw()) + i * stride, rows[i].raw(),
                rows[i].bytes());
  }
  return batch;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_IO_RECORDS_TF_EXAMPLE_REFERENCE_H_
