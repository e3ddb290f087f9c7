#include "apps/sluicerun/channel.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "dist/membership/roster.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

constexpr size_t kHeaderBytes = 5;
constexpr size_t kLongestWord = dist::kRosterBytes;

std::string LittleEndian(uint32_t number) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) {
    bytes += static_cast<char>(number >> (8 * i) & 0xff);
  }
  return bytes;
}

uint32_t LittleEndian(std::string_view bytes) {
  uint32_t number = 0;
  for (size_t i = 0; i < 4; ++i) {
    number |= uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return number;
}

}  // namespace

std::string Encoded(WordKind kind, std::string_view text) {
  std::string word(1, static_cast<char>(kind));
  word += LittleEndian(static_cast<uint32_t>(text.size()));
  word += text;
  return word;
}

std::string Encoded(WordKind kind, uint32_t number) {
  return Encoded(kind, std::string_view(LittleEndian(number)));
}

uint32_t NumberOf(const Word& word) {
  return word.text.size() == 4 ? LittleEndian(std::string_view(word.text)) : 0;
}

std::optional<Word> WordReader::Next() {
  if (bytes_.size() < kHeaderBytes) return std::nullopt;
  const size_t size = LittleEndian(std::string_view(bytes_).substr(1));
  constexpr std::string_view kKinds = "rstlkoex";
  if (kKinds.find(bytes_[0]) == std::string_view::npos || size > kLongestWord) {
    throw Error(Code::kDataLoss,
                "what came through ssh is not what sluicerun says there");
  }
  if (bytes_.size() < kHeaderBytes + size) return std::nullopt;
  Word word = {static_cast<WordKind>(bytes_[0]),
               bytes_.substr(kHeaderBytes, size)};
  bytes_.erase(0, kHeaderBytes + size);
  return word;
}

bool WriteAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(descriptor, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd writable = {descriptor, POLLOUT, 0};
      (void)poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace sluice::launcher
