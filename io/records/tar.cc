#include "io/records/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/parse_number.h"
#include "io/files/crc32c.h"
#include "io/files/gzip.h"

namespace sluice {
namespace {

// Longer extra headers than any name or attribute needs.
constexpr uint64_t kMostExtra = 1 << 20;
// More than archives are padded by.
constexpr uint64_t kMostPadding = 1 << 20;

constexpr size_t kChecksumBegin = 148, kChecksumEnd = 156;

bool IsZero(std::string_view bytes) {
  return bytes.find_first_not_of('\0') == std::string_view::npos;
}

// The text of a field, which a NUL ends where it is shorter.
std::string_view Text(std::string_view field) {
  return field.substr(0, field.find('\0'));
}

// Nothing where it is too large, negative or no number.
std::optional<uint64_t> TarNumber(std::string_view field) {
  if (field[0] == '\x80') {
    uint64_t number = 0;
    for (const char c : field.substr(1)) {
      if (number >> 56 != 0) return std::nullopt;
      number = number << 8 | static_cast<uint8_t>(c);
    }
    return number;
  }
  std::string_view digits = Text(field);
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  digits = digits.substr(0, digits.find(' '));
  if (digits.empty()) return 0;
  return ParseWhole<uint64_t>(digits, 8);
}

// Some have summed up the bytes with their signs.
bool ChecksumFits(std::string_view block) {
  constexpr std::string_view kBlanks = "        ";
  const auto wanted =
      TarNumber(block.substr(kChecksumBegin, kChecksumEnd - kChecksumBegin));
  if (!wanted) return false;
  int64_t plain = 0, with_signs = 0;
  const auto add = [&](std::string_view bytes) {
    for (const char c : bytes) {
      plain += static_cast<uint8_t>(c);
      with_signs += static_cast<signed char>(c);
    }
  };
  add(block.substr(0, kChecksumBegin));
  add(kBlanks);
  add(block.substr(kChecksumEnd));
  const auto sum = static_cast<int64_t>(*wanted);
  return sum == plain || sum == with_signs;
}

std::string NameIn(std::string_view block) {
  std::string name(Text(block.substr(0, 100)));
  // GNU tar's magic is another, and what it has there, too.
  if (block.substr(257, 6) == std::string_view("ustar\0", 6)) {
    const std::string_view prefix = Text(block.substr(345, 155));
    if (!prefix.empty()) return fmt::format("{}/{}", prefix, name);
  }
  return name;
}

bool IsFile(char type, std::string_view name) {
  // Before ustar, folders were files whose names end like that.
  return (type == '0' || type == '\0' || type == '7') && !name.ends_with('/');
}

bool IsLink(char type) {
  return type == '1' || type == '2';
}

// Links, devices and folders may have a size, but nothing that is so long.
bool HasData(char type) {
  return type < '1' || type > '6';
}

}  // namespace

struct TarReader::Header {
  std::string name;
  char type = 0;
  uint64_t size = 0;
  uint32_t checksum = 0;
};

Status TarReader::CheckEnd() {
  uint64_t at = position_ + kTarBlock;
  SLUICE_ASSIGN_OR_RETURN(std::string_view bytes, window_.At(at, kTarBlock));
  if (!IsZero(bytes.substr(0, kTarBlock))) {
    return DataLoss(
        "a block of zeros, which no other follows: wanted a header, or two "
        "such "
        "blocks as the end");
  }
  // Those that programs other than tar have put together.
  const uint64_t end = std::min(size_, at + kMostPadding);
  while (at < end && IsZero(bytes.substr(0, kTarBlock))) {
    at += kTarBlock;
    SLUICE_ASSIGN_OR_RETURN(bytes, window_.At(at, kTarBlock));
  }
  if (bytes.size() >= kTarBlock && !IsZero(bytes.substr(0, kTarBlock)) &&
      ChecksumFits(bytes.substr(0, kTarBlock))) {
    return DataLoss(fmt::format(
        "the archive ends, but another begins behind it, at byte {}, which tar "
        "does not read; join them by tar --concatenate",
        at));
  }
  const uint64_t behind = size_ - position_;
  if (behind > kMostPadding) {
    return DataLoss(
        fmt::format("the archive ends, but the file goes on for {} bytes, more "
                    "than archives are padded by; it may not be written yet",
                    behind));
  }
  return {};
}

Result<bool> TarReader::ReadHeader(Header* header) {
  if (size_ == 0) return DataLoss("the file is empty: wanted a tar archive");
  if (position_ == size_) return false;
  SLUICE_ASSIGN_OR_RETURN(std::string_view block,
                          window_.At(position_, kTarBlock));
  if (position_ == 0 && IsGzip(block)) {
    return Unimplemented(
        "the archive is compressed by gzip; decompress it: gunzip < FILE > "
        "NEW");
  }
  if (block.size() < kTarBlock || size_ - position_ < kTarBlock) {
    return DataLoss("the archive ends within a header");
  }
  block = block.substr(0, kTarBlock);
  if (IsZero(block)) {
    SLUICE_RETURN_IF_ERROR(CheckEnd());
    return false;
  }
  if (!ChecksumFits(block)) {
    return DataLoss(position_ == 0 ? "this is no tar archive: no header with a "
                                     "right checksum"
                                   : "the header's checksum is wrong");
  }
  const auto size = TarNumber(block.substr(124, 12));
  if (!size) return DataLoss("the header's size is no number");
  *header = {.name = NameIn(block),
             .type = block[156],
             .size = *size,
             .checksum = Crc32c(block)};
  return true;
}

Result<uint64_t> TarReader::PassOver(std::string_view name, uint64_t size) {
  const uint64_t data = position_ + kTarBlock, rest = size_ - data;
  const uint64_t padding = (kTarBlock - size % kTarBlock) % kTarBlock;
  if (size > rest || padding > rest - size) {
    return DataLoss(fmt::format(
        "the archive ends within '{}', {} bytes long: it has {} more",
        Escaped(name), size, rest));
  }
  position_ = data + size + padding;
  return data;
}

Status TarReader::ParsePax(std::string_view records, Extra* extra) {
  while (!records.empty()) {
    const size_t blank = records.find(' ');
    const auto length = ParseWhole<uint64_t>(records.substr(0, blank));
    if (!length || *length <= blank || *length > records.size()) {
      return DataLoss("a pax header with a wrong length");
    }
    std::string_view record = records.substr(0, *length);
    records.remove_prefix(*length);
    const size_t equals = record.find('=');
    if (!record.ends_with('\n') || equals == std::string_view::npos ||
        equals < blank) {
      return DataLoss("a pax header that is not KEYWORD=VALUE");
    }
    record.remove_suffix(1);
    const auto keyword = record.substr(blank + 1, equals - blank - 1);
    const auto value = record.substr(equals + 1);
    if (keyword == "path") {
      extra->name.reset();  // an empty one is to be forgotten
      if (!value.empty()) extra->name = value;
    } else if (keyword == "size") {
      extra->size = ParseWhole<uint64_t>(value);
      if (!extra->size && !value.empty()) {
        return DataLoss(
            fmt::format("a pax header with a size '{}'", Escaped(value)));
      }
    } else if (keyword.starts_with("GNU.sparse.")) {
      extra->sparse = true;
    }
  }
  return {};
}

Result<bool> TarReader::TakeExtra(const Header& header) {
  constexpr std::string_view kTypes = "LKxXg";
  if (kTypes.find(header.type) == std::string_view::npos) return false;
  if (header.size > kMostExtra) {
    return DataLoss(
        fmt::format("an extra header of {} bytes, more than any has that tar "
                    "writes",
                    header.size));
  }
  SLUICE_ASSIGN_OR_RETURN(const uint64_t data,
                          PassOver("an extra header", header.size));
  SLUICE_ASSIGN_OR_RETURN(std::string_view bytes,
                          window_.At(data, header.size));
  bytes = bytes.substr(0, header.size);
  if (bytes.size() < header.size) return DataLoss("the file became shorter");
  if (header.type == 'L') {
    next_.name = Text(bytes);
  } else if (header.type == 'g') {
    SLUICE_RETURN_IF_ERROR(ParsePax(bytes, &all_));
  } else if (header.type != 'K') {
    SLUICE_RETURN_IF_ERROR(ParsePax(bytes, &next_));
  }
  begun_ = header.type != 'g' || begun_;
  return true;
}

Result<bool> TarReader::NextMember(TarMember* member) {
  for (;;) {
    at_ = position_;
    Header header;
    SLUICE_ASSIGN_OR_RETURN(const bool more, ReadHeader(&header));
    if (!more) {
      if (begun_) return DataLoss("the archive ends behind an extra header");
      return false;
    }
    SLUICE_ASSIGN_OR_RETURN(const bool extra, TakeExtra(header));
    if (extra) continue;
    const Extra own = std::exchange(next_, {});
    begun_ = false;
    std::string name = own.name ? *own.name : all_.name.value_or(header.name);
    const uint64_t size =
        own.size ? *own.size : all_.size.value_or(header.size);
    if (header.type == 'S' || own.sparse || all_.sparse) {
      return Unimplemented(fmt::format(
          "'{}' is a sparse file; pack it without --sparse", Escaped(name)));
    }
    if (header.type == 'M') {
      return Unimplemented(fmt::format(
          "'{}' goes on from another volume; pack one archive", Escaped(name)));
    }
    SLUICE_ASSIGN_OR_RETURN(const uint64_t data,
                            PassOver(name, HasData(header.type) ? size : 0));
    const bool link = IsLink(header.type);
    if (!link && !IsFile(header.type, name)) continue;
    *member = {std::move(name), data, link ? 0 : size, header.checksum, link};
    return true;
  }
}

Result<bool> TarReader::Next(TarMember* member) {
  auto more = NextMember(member);
  if (more.ok()) return more;
  return more.status().WithContext(PlaceInFile(path_, at_));
}

}  // namespace sluice
