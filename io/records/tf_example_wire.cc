#include "io/records/tf_example_wire.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cstring>

#include "engine/text/utf8.h"

namespace sluice::tf_wire {

bool ReadLongVarint(const char** at, const char* end, int most_bytes,
                    uint64_t* value) {
  *value = 0;
  for (int i = 0; i < most_bytes && *at != end; ++i) {
    const auto byte = static_cast<uint8_t>(*(*at)++);
    *value |= uint64_t{byte & 0x7Fu} << (7 * i);
    if (byte < 0x80) return true;
  }
  return false;
}

bool Fields::ReadOther(uint32_t tag, int most_nested) {
  const char* const begin = at_;
  switch (TypeOf(tag)) {
    case WireType::kVarint:
      uint64_t number;
      if (!ReadVarint(&at_, end_, kMostVarint64Bytes, &number)) return false;
      value_ = {begin, static_cast<size_t>(at_ - begin)};
      return true;
    case WireType::kFixed64:
      return Take(sizeof(uint64_t));
    case WireType::kFixed32:
      return Take(sizeof(uint32_t));
    case WireType::kStartGroup:
      return SkipGroup(tag, most_nested);
    default:
      return false;
  }
}

// What proto2 wrote for a message; nothing that is known is one.
bool Fields::SkipGroup(uint32_t start, int most_nested) {
  const uint32_t end = start - static_cast<uint32_t>(WireType::kStartGroup) +
                       static_cast<uint32_t>(WireType::kEndGroup);
  uint32_t tag;
  while (most_nested > 0 && ReadTag(&tag)) {
    if (tag == end) return true;
    const bool read = TypeOf(tag) == WireType::kBytes
                          ? ReadValue(tag)
                          : ReadOther(tag, most_nested - 1);
    if (!read) return false;
  }
  return false;
}

namespace {

// Bytes at the begin of `text`, up to 8 short of all that are ASCII.
size_t AsciiBytes(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  size_t at = 0;
  for (uint64_t word; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if ((word & kHighBits) != 0) break;
  }
  return at;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  text.remove_prefix(AsciiBytes(text));
  bool valid = true;
  while (valid && !text.empty()) {
    text.remove_prefix(CharacterBytes(text, valid));
  }
  return valid;
}

std::string_view KindName(int kind) {
  constexpr std::string_view kNames[] = {"nothing", "byte strings", "floats",
                                         "integers"};
  return kNames[kind];
}

Status OtherKind(std::string_view name, int kind, int wanted) {
  return InvalidArgument(fmt::format("feature '{}' holds {}, wanted {}", name,
                                     KindName(kind), KindName(wanted)));
}

Status NotAmong(std::string_view what, std::string_view name,
                std::vector<std::string> names) {
  constexpr size_t kShown = 20;
  if (names.size() > kShown) {
    names.resize(kShown);
    names.emplace_back("...");
  }
  return NotFound(
      fmt::format("no {} '{}' among: {}", what, name, fmt::join(names, ", ")));
}

void CopyFloats(const FloatRun& run, size_t count, float* out) {
  if constexpr (std::endian::native == std::endian::little) {
    if (count > 0) std::memcpy(out, run.bytes.data(), count * sizeof(float));
  } else {
    const auto* in = reinterpret_cast<const uint8_t*>(run.bytes.data());
    for (size_t i = 0; i < count; ++i, in += sizeof(float)) {
      out[i] =
          std::bit_cast<float>(in[0] | uint32_t{in[1]} << 8 |
                               uint32_t{in[2]} << 16 | uint32_t{in[3]} << 24);
    }
  }
}

bool IsList(const List& list) {
  const auto ignore = [](auto /*value*/) {};
  switch (list.kind) {
    case kBytes:
      return ForEach(TypeTag<std::string_view>(), list.bytes, ignore);
    case kFloats:
      return ForEach(TypeTag<float>(), list.bytes, ignore);
    default:
      return ForEach(TypeTag<int64_t>(), list.bytes, ignore);
  }
}

}  // namespace sluice::tf_wire
