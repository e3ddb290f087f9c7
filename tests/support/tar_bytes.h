// Writes tar archives, right and wrong ones.
#ifndef SLUICE_TESTS_SUPPORT_TAR_BYTES_H_
#define SLUICE_TESTS_SUPPORT_TAR_BYTES_H_

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::testing {

struct TarHeader {
  std::string name;
  uint64_t size = 0;
  char type = '0';
  std::string magic = std::string("ustar\00000", 8);
  std::string prefix = {};
  std::string size_field = {};        // instead of `size`
  std::string mtime = "00000000000";  // seconds, octal
  bool signed_sum = false;

  // Its 512 bytes.
  std::string Text() const {
    std::string block(512, '\0');
    const auto put = [&](size_t at, std::string_view text) {
      block.replace(at, text.size(), text);
    };
    put(0, name);
    put(100, "0000644");
    put(124, size_field.empty() ? fmt::format("{:011o}", size) : size_field);
    put(136, mtime);
    put(148, "        ");
    block[156] = type;
    put(257, magic);
    put(345, prefix);
    int sum = 0;
    for (const char c : block) {
      sum += signed_sum ? static_cast<signed char>(c)
                        : static_cast<unsigned char>(c);
    }
    put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
    return block;
  }
};

// Filled with zeros up to a block.
inline std::string TarPadded(std::string bytes) {
  bytes.resize((bytes.size() + 511) / 512 * 512);
  return bytes;
}

inline std::string TarFile(const std::string& name, const std::string& bytes) {
  return TarHeader{.name = name, .size = bytes.size()}.Text() +
         TarPadded(bytes);
}

// An extra header, of type L or x.
inline std::string TarExtra(char type, const std::string& bytes) {
  return TarHeader{.name = "extra", .size = bytes.size(), .type = type}.Text() +
         TarPadded(bytes);
}

inline std::string PaxRecord(const std::string& keyword,
                             const std::string& value) {
  const std::string rest = " " + keyword + "=" + value + "\n";
  size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) ++length;
  return std::to_string(length) + rest;
}

inline std::string TarEnd() {
  return std::string(1024, '\0');
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_TAR_BYTES_H_
