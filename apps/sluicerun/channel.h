// The protocol of a rank's relay and its agent on another host, through ssh:
// words, each of a letter, a length and bytes.
#ifndef SLUICE_APPS_SLUICERUN_CHANNEL_H_
#define SLUICE_APPS_SLUICERUN_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::launcher {

enum class WordKind : char {
  kRoster = 'r',  // a packet (dist/membership/roster.h), either way
  // Words to the agent.
  kSignal = 's',  // a byte: its number, for the rank
  kTaken = 't',   // so many bytes of output were (Number)
  kLives = 'l',   // the relay does
  kKill = 'k',    // the rank, at once
  // Words to the relay.
  kOut = 'o',  // of the rank's stdout
  kErr = 'e',
  kEnded = 'x'  // the rank has: a byte that says by which signal, 0: none, and
                // one with the exit code
};

struct Word {
  WordKind kind;
  std::string text;
};

std::string Encoded(WordKind kind, std::string_view text = {});
std::string Encoded(WordKind kind, uint32_t number);
// The number that a word holds; 0 where it holds none.
uint32_t NumberOf(const Word& word);

// Takes words off what comes in pieces.
class WordReader {
 public:
  void Add(std::string_view bytes) { bytes_ += bytes; }
  // The next word that has come whole; nullopt: none has. Throws Error for
  // bytes that are no word.
  std::optional<Word> Next();

 private:
  std::string bytes_;
};

// The most bytes of a rank's output that may be on their way. A slow reader
// then holds up the rank, as a pipe would, and not the other words.
inline constexpr size_t kOutputAhead = size_t{256} << 10;
// How often the relay says that it lives.
inline constexpr int kLivesSeconds = 2;

// Writes all of the text, waiting if need be. False where the other end is
// gone.
bool WriteAll(int descriptor, std::string_view text);

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_CHANNEL_H_
