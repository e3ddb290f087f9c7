// UTF-8, for who must show text of any origin.
#ifndef SLUICE_ENGINE_TEXT_UTF8_H_
#define SLUICE_ENGINE_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

// Bytes at the begin of `text`, which is not empty, that are one character
// (Unicode 15, table 3-7) or, where `valid` becomes false, the longest begin of
// one: what is replaced as a whole.
inline size_t CharacterBytes(std::string_view text, bool& valid) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  valid = lead < 0x80;
  if (lead < 0xC2 || lead > 0xF4) return 1;
  const size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range rules out overlong forms, surrogates and what is
  // above U+10FFFF.
  uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < bytes; ++i) {
    if (i == text.size() || byte(i) < low || byte(i) > high) return i;
    low = 0x80;
    high = 0xBF;
  }
  valid = true;
  return bytes;
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_TEXT_UTF8_H_
