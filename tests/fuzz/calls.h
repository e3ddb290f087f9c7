// Messages of an input: "\x1e" is between heads and bodies, one after another.
#ifndef SLUICE_TESTS_FUZZ_CALLS_H_
#define SLUICE_TESTS_FUZZ_CALLS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dist/cluster/message.h"

namespace sluice::fuzz {

inline std::string_view Piece(std::string_view* text) {
  const std::string_view piece = text->substr(0, text->find('\x1e'));
  text->remove_prefix(std::min(text->size(), piece.size() + 1));
  return piece;
}

// With each "$" a number, which inputs cannot know.
inline std::string With(std::string_view text, uint64_t number) {
  std::string with;
  for (const char c : text) {
    with += c == '$' ? std::to_string(number) : std::string(1, c);
  }
  return with;
}

// The first `most` of them.
inline std::vector<dist::Message> MessagesOf(std::string_view text, size_t most,
                                             uint64_t in_heads,
                                             uint64_t in_bodies) {
  std::vector<dist::Message> messages;
  while (!text.empty() && messages.size() < most) {
    dist::Message& message = messages.emplace_back();
    message.head = With(Piece(&text), in_heads);
    const std::string body = With(Piece(&text), in_bodies);
    const auto bytes = std::as_bytes(std::span(body.data(), body.size()));
    message.body.assign(bytes.begin(), bytes.end());
  }
  return messages;
}

}  // namespace sluice::fuzz

#endif  // SLUICE_TESTS_FUZZ_CALLS_H_
