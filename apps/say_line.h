// Lines that the tool and the launcher print for people, on stderr.
#ifndef SLUICE_APPS_SAY_LINE_H_
#define SLUICE_APPS_SAY_LINE_H_

#include <cstdio>
#include <string>
#include <string_view>

namespace sluice {

// Prints one line, given without its end. Any thread may call it; a line that
// cannot be written is dropped: fmt::print would throw, where there may be
// nobody to catch it.
inline void SayLine(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace sluice

#endif  // SLUICE_APPS_SAY_LINE_H_
