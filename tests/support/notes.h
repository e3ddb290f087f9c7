// What the engine has to say (engine/note.h).
#ifndef SLUICE_TESTS_SUPPORT_NOTES_H_
#define SLUICE_TESTS_SUPPORT_NOTES_H_

#include <string>
#include <string_view>

#include "engine/note.h"

namespace sluice::testing {

// During fn(), by its own thread alone; each line ends with a newline.
template <typename Fn>
std::string NotesOf(Fn&& fn) {
  static std::string text;
  text.clear();
  SetNotes([](std::string_view line) { text.append(line) += '\n'; });
  fn();
  SetNotes(nullptr);
  return text;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_NOTES_H_
