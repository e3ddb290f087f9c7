#include "io/records/tf_example.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <climits>

#include "engine/utf8.h"

#if SLUICE_HAVE_PROTOBUF
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include "io/proto/example.pb.h"
#endif

namespace sluice {
namespace {

// The numbers of the fields of Feature.
enum Kind { kNone = 0, kBytes = 1, kFloats = 2, kInts = 3 };

template <typename T>
constexpr int kKindOf = kNone;
template <>
constexpr int kKindOf<std::string_view> = kBytes;
template <>
constexpr int kKindOf<float> = kFloats;
template <>
constexpr int kKindOf<int64_t> = kInts;

constexpr std::string_view kKindNames[] = {"nothing", "byte strings", "floats",
                                           "integers"};

}  // namespace

#if SLUICE_HAVE_PROTOBUF

namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

bool IsUtf8(std::string_view text) {
  bool valid = true;
  while (valid && !text.empty())
    text.remove_prefix(CharacterBytes(text, valid));
  return valid;
}

// The fields of a serialised message as views into it, where protobuf's own
// parsers copy every string. What these refuse is refused.
class Fields {
 public:
  using Type = WireFormatLite::WireType;

  explicit Fields(std::string_view message)
      : message_(message),
        stream_(reinterpret_cast<const uint8_t*>(message.data()),
                static_cast<int>(message.size())) {}

  // False at the end; also, and then ok() is false, where the bytes are no
  // message.
  bool Next() {
    if (at() == message_.size()) return false;
    uint32_t tag;
    ok_ = ReadTag(&tag) && ReadValue(tag, kMostNested);
    number_ = WireFormatLite::GetTagFieldNumber(tag);
    type_ = WireFormatLite::GetTagWireType(tag);
    return ok_;
  }
  bool ok() const { return ok_; }

  // About the field that Next found. One of another type than is expected
  // counts as unknown.
  bool Is(int number,
          Type type = WireFormatLite::WIRETYPE_LENGTH_DELIMITED) const {
    return number_ == number && type_ == type;
  }
  int number() const { return number_; }
  // Without the length, if it has one.
  std::string_view value() const { return value_; }

 private:
  // CodedInputStream itself takes longer ones, whose upper bits it drops.
  static constexpr size_t kMostVarint32Bytes = 5;
  static constexpr int kMostNested = 100;

  size_t at() const { return stream_.CurrentPosition(); }

  bool ReadTag(uint32_t* tag) {
    const size_t begin = at();
    *tag = stream_.ReadTag();
    return WireFormatLite::GetTagFieldNumber(*tag) > 0 &&
           at() - begin <= kMostVarint32Bytes;
  }
  bool ReadValue(uint32_t tag, int most_nested) {
    const size_t begin = at();
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_VARINT:
        uint64_t number;
        if (!stream_.ReadVarint64(&number)) return false;
        break;
      case WireFormatLite::WIRETYPE_FIXED64:
        if (!stream_.Skip(sizeof(uint64_t))) return false;
        break;
      case WireFormatLite::WIRETYPE_FIXED32:
        if (!stream_.Skip(sizeof(uint32_t))) return false;
        break;
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return ReadBytes();
      case WireFormatLite::WIRETYPE_START_GROUP:
        return SkipGroup(tag, most_nested);
      default:
        return false;
    }
    value_ = message_.substr(begin, at() - begin);
    return true;
  }
  bool ReadBytes() {
    const size_t begin = at();
    int size;
    if (!stream_.ReadVarintSizeAsInt(&size)) return false;
    if (at() - begin > kMostVarint32Bytes) return false;
    value_ = message_.substr(at(), size);
    return stream_.Skip(size);
  }
  // What proto2 wrote for a message; nothing that is known is one.
  bool SkipGroup(uint32_t start, int most_nested) {
    const uint32_t end =
        WireFormatLite::MakeTag(WireFormatLite::GetTagFieldNumber(start),
                                WireFormatLite::WIRETYPE_END_GROUP);
    uint32_t tag;
    while (most_nested > 0 && ReadTag(&tag)) {
      if (tag == end) return true;
      if (!ReadValue(tag, most_nested - 1)) return false;
    }
    return false;
  }

  const std::string_view message_;
  CodedInputStream stream_;
  bool ok_ = true;
  int number_ = 0;
  Type type_ = WireFormatLite::WIRETYPE_VARINT;
  std::string_view value_;
};

// ForEach calls fn for each value of a serialised list; it is false where the
// bytes are none. Numbers are packed or one a field, which looks alike.
template <typename Fn>
bool ForEach(TypeTag<std::string_view> /*type*/, std::string_view list, Fn fn) {
  Fields fields(list);
  while (fields.Next()) {
    if (fields.Is(1)) fn(fields.value());
  }
  return fields.ok();
}
template <typename Fn>
bool ForEach(TypeTag<float> /*type*/, std::string_view list, Fn fn) {
  Fields fields(list);
  while (fields.Next()) {
    if (!fields.Is(1) && !fields.Is(1, WireFormatLite::WIRETYPE_FIXED32)) {
      continue;
    }
    const std::string_view values = fields.value();
    if (values.size() % sizeof(float) != 0) return false;
    for (size_t i = 0; i < values.size(); i += sizeof(float)) {
      uint32_t bits;
      CodedInputStream::ReadLittleEndian32FromArray(
          reinterpret_cast<const uint8_t*>(values.data() + i), &bits);
      fn(std::bit_cast<float>(bits));
    }
  }
  return fields.ok();
}
template <typename Fn>
bool ForEach(TypeTag<int64_t> /*type*/, std::string_view list, Fn fn) {
  Fields fields(list);
  while (fields.Next()) {
    if (!fields.Is(1) && !fields.Is(1, WireFormatLite::WIRETYPE_VARINT)) {
      continue;
    }
    const auto size = static_cast<int>(fields.value().size());
    CodedInputStream values(
        reinterpret_cast<const uint8_t*>(fields.value().data()), size);
    while (values.CurrentPosition() < size) {
      uint64_t value;
      if (!values.ReadVarint64(&value)) return false;
      fn(static_cast<int64_t>(value));
    }
  }
  return fields.ok();
}

bool IsList(int kind, std::string_view bytes) {
  const auto ignore = [](auto /*value*/) {};
  switch (kind) {
    case kBytes:
      return ForEach(TypeTag<std::string_view>(), bytes, ignore);
    case kFloats:
      return ForEach(TypeTag<float>(), bytes, ignore);
    default:
      return ForEach(TypeTag<int64_t>(), bytes, ignore);
  }
}

// Calls fn(kind, list) for each list of a feature. There is but one, unless the
// writer has joined messages: then one of the same kind adds values to those
// before it, one of another kind replaces them.
template <typename Fn>
bool ForEachList(std::string_view feature, Fn fn) {
  Fields fields(feature);
  while (fields.Next()) {
    const bool is_list =
        fields.Is(kBytes) || fields.Is(kFloats) || fields.Is(kInts);
    if (is_list && !fn(fields.number(), fields.value())) return false;
  }
  return fields.ok();
}

// The name and the kind of a feature, an entry of the map.
bool ParseEntry(std::string_view entry, std::string_view* name, int* kind) {
  Fields fields(entry);
  while (fields.Next()) {
    if (fields.Is(1)) {
      *name = fields.value();
      if (!IsUtf8(*name)) return false;
    } else if (fields.Is(2)) {
      const bool valid =
          ForEachList(fields.value(), [&](int of, std::string_view list) {
            *kind = of;
            return IsList(of, list);
          });
      if (!valid) return false;
    }
  }
  return fields.ok();
}

Status NoFeature(std::string_view name, std::vector<std::string> names) {
  constexpr size_t kShown = 20;
  if (names.size() > kShown) {
    names.resize(kShown);
    names.emplace_back("...");
  }
  return NotFound(
      fmt::format("no feature '{}' among: {}", name, fmt::join(names, ", ")));
}

}  // namespace

Result<TfExample> TfExample::Parse(std::string_view bytes) {
  const Status bad =
      DataLoss(fmt::format("these {} bytes are no tf.Example", bytes.size()));
  if (bytes.size() > INT_MAX) return bad;  // protobuf counts in int
  TfExample example;
  std::vector<Feature>& features = example.features_;
  Fields fields(bytes);
  while (fields.Next()) {
    if (!fields.Is(1)) continue;
    Fields entries(fields.value());
    while (entries.Next()) {
      if (!entries.Is(1)) continue;
      Feature feature;
      feature.entry = entries.value();
      if (!ParseEntry(feature.entry, &feature.name, &feature.kind)) return bad;
      features.push_back(feature);
    }
    if (!entries.ok()) return bad;
  }
  if (!fields.ok()) return bad;
  // Of one name the last comes first, and stays.
  std::sort(features.begin(), features.end(),
            [](const Feature& a, const Feature& b) {
              if (const int order = a.name.compare(b.name)) return order < 0;
              return a.entry.data() > b.entry.data();
            });
  const auto end = std::unique(
      features.begin(), features.end(),
      [](const Feature& a, const Feature& b) { return a.name == b.name; });
  features.erase(end, features.end());
  return example;
}

template <typename T>
Result<std::vector<T>> TfExample::Values(std::string_view name) const {
  const Feature* feature = Find(name);
  if (feature == nullptr) return NoFeature(name, names());
  if (feature->kind != kNone && feature->kind != kKindOf<T>) {
    return InvalidArgument(fmt::format("feature '{}' holds {}, wanted {}", name,
                                       kKindNames[feature->kind],
                                       kKindNames[kKindOf<T>]));
  }
  std::vector<T> values;
  const auto add = [&](int kind, std::string_view list) {
    if (kind != kKindOf<T>) {
      values.clear();
      return true;
    }
    return ForEach(TypeTag<T>(), list, [&](T v) { values.push_back(v); });
  };
  Fields fields(feature->entry);
  while (fields.Next()) {
    if (fields.Is(2)) ForEachList(fields.value(), add);
  }
  return values;
}

namespace {

void ToProto(const std::vector<std::string>& values, proto::Feature* out) {
  auto* list = out->mutable_bytes_list();
  for (const std::string& value : values) list->add_value(value);
}
void ToProto(const std::vector<float>& values, proto::Feature* out) {
  out->mutable_float_list()->mutable_value()->Add(values.begin(), values.end());
}
void ToProto(const std::vector<int64_t>& values, proto::Feature* out) {
  out->mutable_int64_list()->mutable_value()->Add(values.begin(), values.end());
}

}  // namespace

Result<std::string> EncodeTfExample(
    std::span<const std::pair<std::string, TfFeature>> features) {
  proto::Example example;
  auto& map = *example.mutable_features()->mutable_feature();
  for (const auto& [name, feature] : features) {
    if (!IsUtf8(name)) {
      return InvalidArgument(
          fmt::format("the name of feature '{}' is no UTF-8", name));
    }
    if (map.contains(name)) {
      return InvalidArgument(fmt::format("feature '{}' comes twice", name));
    }
    proto::Feature* out = &map[name];
    std::visit([out](const auto& values) { ToProto(values, out); }, feature);
  }
  const size_t size = example.ByteSizeLong();
  if (size > INT_MAX) {
    return InvalidArgument(fmt::format(
        "a tf.Example of {} bytes; at most {} can be", size, INT_MAX));
  }
  std::string bytes;
  bytes.reserve(size);
  {
    google::protobuf::io::StringOutputStream to(&bytes);
    google::protobuf::io::CodedOutputStream out(&to);
    out.SetSerializationDeterministic(true);
    example.SerializeWithCachedSizes(&out);
  }
  return bytes;
}

#else  // !SLUICE_HAVE_PROTOBUF

namespace {

Status NoProtobuf() {
  return Unimplemented(
      "this build has no protobuf, so it has no tf.Example; install "
      "libprotobuf-dev and protobuf-compiler and build again");
}

}  // namespace

Result<TfExample> TfExample::Parse(std::string_view) {
  return NoProtobuf();
}
template <typename T>
Result<std::vector<T>> TfExample::Values(std::string_view) const {
  return NoProtobuf();
}
Result<std::string> EncodeTfExample(
    std::span<const std::pair<std::string, TfFeature>>) {
  return NoProtobuf();
}

#endif

const TfExample::Feature* TfExample::Find(std::string_view name) const {
  const auto found = std::lower_bound(
      features_.begin(), features_.end(), name,
      [](const Feature& f, std::string_view n) { return f.name < n; });
  const bool is_there = found != features_.end() && found->name == name;
  return is_there ? &*found : nullptr;
}

bool TfExample::contains(std::string_view feature) const {
  return Find(feature) != nullptr;
}

std::vector<std::string> TfExample::names() const {
  std::vector<std::string> names;
  for (const Feature& feature : features_) names.emplace_back(feature.name);
  return names;
}

Result<std::vector<std::string_view>> TfExample::BytesList(
    std::string_view name) const {
  return Values<std::string_view>(name);
}
Result<std::vector<int64_t>> TfExample::Ints(std::string_view name) const {
  return Values<int64_t>(name);
}
Result<std::vector<float>> TfExample::Floats(std::string_view name) const {
  return Values<float>(name);
}

template <typename T>
Result<T> TfExample::Value(std::string_view name) const {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<T> values, Values<T>(name));
  if (values.size() == 1) return values[0];
  return InvalidArgument(fmt::format("feature '{}' holds {} {}, wanted one",
                                     name, values.size(),
                                     kKindNames[kKindOf<T>]));
}

Result<std::string_view> TfExample::Bytes(std::string_view name) const {
  return Value<std::string_view>(name);
}
Result<int64_t> TfExample::Int(std::string_view name) const {
  return Value<int64_t>(name);
}

}  // namespace sluice
