#include "io/files/temporary_name.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <system_error>

#include "engine/boot_id.h"
#include "io/files/crc32c.h"
#include "io/files/file.h"

namespace sluice {
namespace {

constexpr std::string_view kTemporaryMark = ".tmp-";

// As much of a file's name as a folder takes with `end` bytes behind it, in
// whole letters of UTF-8: some file systems take nothing else.
std::string_view Shortened(std::string_view file, size_t end) {
  constexpr size_t kMostBytes = 255, kMostOfLetter = 4;
  if (file.size() + end <= kMostBytes || end >= kMostBytes) return file;
  const auto is_within_letter = [&](size_t at) {
    return (static_cast<uint8_t>(file[at]) & 0xc0) == 0x80;
  };
  const size_t room = kMostBytes - end;
  size_t size = room;
  while (size > 0 && room - size < kMostOfLetter && is_within_letter(size)) {
    --size;
  }
  return file.substr(0, size);
}

}  // namespace

std::string TemporaryName(const std::string& path) {
  static std::atomic<int> count = 0;
  const std::string end = fmt::format("{}{}-{}-{}", kTemporaryMark, getpid(),
                                      ProcessSpace(), ++count);
  const size_t file = path.rfind('/') + 1;  // 0 where there is no slash
  const std::string_view name = std::string_view(path).substr(file);
  return path.substr(0, file).append(Shortened(name, end.size())) + end;
}

bool IsTemporaryName(std::string_view name) {
  return PartsOfTemporaryName(name).has_value();
}

std::optional<TemporaryParts> PartsOfTemporaryName(std::string_view name) {
  const size_t mark = name.rfind(kTemporaryMark);
  if (mark == std::string_view::npos) return std::nullopt;
  const std::string_view tail = name.substr(mark + kTemporaryMark.size());
  if (tail.empty() ||
      tail.find_first_not_of("0123456789-") != std::string_view::npos) {
    return std::nullopt;
  }
  const size_t first = tail.find('-'), last = tail.rfind('-');
  TemporaryParts parts = {name.substr(0, mark), tail.substr(0, first), {}};
  if (first != last) parts.space = tail.substr(first + 1, last - first - 1);
  return parts;
}

bool IsTemporaryNameOf(std::string_view temporary, std::string_view file) {
  const auto parts = PartsOfTemporaryName(temporary);
  if (!parts) return false;
  const size_t end = temporary.size() - parts->beginning.size();
  return parts->beginning == Shortened(file, end);
}

std::string ProcessSpace() {
  static const std::string boot = BootId();
  std::error_code none;
  const std::string container =
      std::filesystem::read_symlink("/proc/self/ns/pid", none);
  if (boot.empty() || container.empty()) {
    static const uint32_t random = std::random_device()();
    return fmt::format("{}", random);
  }
  return fmt::format("{}", Crc32c(boot + container));
}

}  // namespace sluice
