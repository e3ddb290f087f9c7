// The bytes of TensorFlow's example messages, read in place: protobuf's wire
// format, and of io/proto/example.proto what tf.Example and tf.SequenceExample
// have in common. Bytes are refused exactly where protobuf's own parser refuses
// them; nothing is copied and nothing allocated.
#ifndef SLUICE_IO_RECORDS_TF_EXAMPLE_WIRE_H_
#define SLUICE_IO_RECORDS_TF_EXAMPLE_WIRE_H_

#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/dtype.h"
#include "engine/status.h"

namespace sluice::tf_wire {

enum class WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5,
};

inline constexpr int kMostVarint32Bytes = 5;
inline constexpr int kMostVarint64Bytes = 10;

// Advances *at. Bits above the 64th are dropped.
bool ReadLongVarint(const char** at, const char* end, int most_bytes,
                    uint64_t* value);
inline bool ReadVarint(const char** at, const char* end, int most_bytes,
                       uint64_t* value) {
  if (*at == end || static_cast<uint8_t>(**at) >= 0x80) {
    return ReadLongVarint(at, end, most_bytes, value);
  }
  *value = static_cast<uint8_t>(*(*at)++);
  return true;
}

// The fields of a serialised message, as views into it.
class Fields {
 public:
  explicit Fields(std::string_view message)
      : at_(message.data()), end_(at_ + message.size()) {}

  // False at the end; also, and then ok() is false, where the bytes are no
  // message.
  bool Next() {
    if (at_ == end_) return false;
    uint32_t tag;
    ok_ = ReadTag(&tag) && ReadValue(tag);
    number_ = NumberOf(tag);
    type_ = TypeOf(tag);
    return ok_;
  }
  bool ok() const { return ok_; }

  // Whether the field that Next found has this number and type. A field of
  // another type than is expected counts as unknown.
  bool Is(uint32_t number, WireType type = WireType::kBytes) const {
    return number_ == number && type_ == type;
  }
  uint32_t number() const { return number_; }
  // The field's bytes, without their length, if it has one.
  std::string_view value() const { return value_; }

 private:
  static uint32_t NumberOf(uint32_t tag) { return tag >> 3; }
  static WireType TypeOf(uint32_t tag) {
    return static_cast<WireType>(tag & 7);
  }

  bool ReadTag(uint32_t* tag) {
    uint64_t value = 0;
    const bool read = ReadVarint(&at_, end_, kMostVarint32Bytes, &value);
    *tag = static_cast<uint32_t>(value);  // as protobuf, which drops the rest
    return read && NumberOf(*tag) > 0;
  }
  bool ReadValue(uint32_t tag) {
    if (TypeOf(tag) != WireType::kBytes) return ReadOther(tag, kMostNested);
    uint64_t size;
    return ReadVarint(&at_, end_, kMostVarint32Bytes, &size) && Take(size);
  }
  bool Take(uint64_t size) {
    if (size > static_cast<uint64_t>(end_ - at_)) return false;
    value_ = {at_, static_cast<size_t>(size)};
    at_ += size;
    return true;
  }
  bool ReadOther(uint32_t tag, int most_nested);
  bool SkipGroup(uint32_t start, int most_nested);

  static constexpr int kMostNested = 100;

  const char* at_;
  const char* const end_;
  bool ok_ = true;
  uint32_t number_ = 0;
  WireType type_ = WireType::kVarint;
  std::string_view value_;
};

bool IsUtf8(std::string_view text);

// The numbers of the fields of Feature.
enum Kind { kNone = 0, kBytes = 1, kFloats = 2, kInts = 3 };
template <typename T>
constexpr int kKindOf = kNone;
template <>
inline constexpr int kKindOf<std::string_view> = kBytes;
template <>
inline constexpr int kKindOf<float> = kFloats;
template <>
inline constexpr int kKindOf<int64_t> = kInts;

// "byte strings", ...
std::string_view KindName(int kind);
Status OtherKind(std::string_view name, int kind, int wanted);
// kNotFound: "no `what` '`name`' among: ", some of the names there are.
Status NotAmong(std::string_view what, std::string_view name,
                std::vector<std::string> names);

// Floats as they are written: four bytes each, the lowest first.
struct FloatRun {
  std::string_view bytes;
  size_t size() const { return bytes.size() / sizeof(float); }
};
void CopyFloats(const FloatRun& run, size_t count, float* out);

// ForEach calls fn for each value of a serialised list, for floats for each run
// of them; it is false where the bytes are none. Numbers are packed or one a
// field, which looks alike.
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
    if (!fields.Is(1) && !fields.Is(1, WireType::kFixed32)) continue;
    if (fields.value().size() % sizeof(float) != 0) return false;
    fn(FloatRun{fields.value()});
  }
  return fields.ok();
}
template <typename Fn>
bool ForEach(TypeTag<int64_t> /*type*/, std::string_view list, Fn fn) {
  Fields fields(list);
  while (fields.Next()) {
    if (!fields.Is(1) && !fields.Is(1, WireType::kVarint)) continue;
    const char* at = fields.value().data();
    const char* const end = at + fields.value().size();
    while (at != end) {
      uint64_t value;
      if (!ReadVarint(&at, end, kMostVarint64Bytes, &value)) return false;
      fn(static_cast<int64_t>(value));
    }
  }
  return fields.ok();
}

// A list in Feature's oneof: a BytesList, FloatList or Int64List, serialised.
struct List {
  int kind;
  std::string_view bytes;
};
// Whether the list can be read.
bool IsList(const List& list);

// Calls fn(list) for each list of a serialised Feature until one call is false.
// There is but one, unless the writer has joined messages: then one of the same
// kind adds values to those before it, one of another kind replaces them.
template <typename Fn>
bool ForEachList(std::string_view feature, Fn fn) {
  Fields fields(feature);
  while (fields.Next()) {
    const bool is_list =
        fields.Is(kBytes) || fields.Is(kFloats) || fields.Is(kInts);
    if (is_list &&
        !fn(List{static_cast<int>(fields.number()), fields.value()})) {
      return false;
    }
  }
  return fields.ok();
}

// Reads a map's entry: its name, and by calls of fn until one is false the
// parts of its value, of which too there is but one as a rule.
template <typename Fn>
bool ParseEntry(std::string_view entry, std::string_view* name, Fn fn) {
  Fields fields(entry);
  while (fields.Next()) {
    if (fields.Is(1)) {
      *name = fields.value();
      if (!IsUtf8(*name)) return false;
    } else if (fields.Is(2)) {
      if (!fn(fields.value())) return false;
    }
  }
  return fields.ok();
}

// Calls fn(entry), until one call is false, for each entry of the map in field
// `number` of a message: of Features or FeatureLists.
template <typename Fn>
bool ForEachEntry(std::string_view message, uint32_t number, Fn fn) {
  if (message.size() > INT_MAX) return false;  // protobuf counts in int
  Fields fields(message);
  while (fields.Next()) {
    if (!fields.Is(number)) continue;
    Fields entries(fields.value());
    while (entries.Next()) {
      if (entries.Is(1) && !fn(entries.value())) return false;
    }
    if (!entries.ok()) return false;
  }
  return fields.ok();
}

}  // namespace sluice::tf_wire

#endif  // SLUICE_IO_RECORDS_TF_EXAMPLE_WIRE_H_
