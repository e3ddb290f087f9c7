// What the engine has to say and can return to nobody: that it goes on without
// something, and more slowly. It prints nothing itself.
#ifndef SLUICE_ENGINE_NOTE_H_
#define SLUICE_ENGINE_NOTE_H_

#include <atomic>
#include <string_view>

#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// One line, without a newline. By any thread; it must not throw.
using NoteFunction = void (*)(std::string_view line);

// Who is told from now on; null, as at first: nobody. Any thread.
void SetNotes(NoteFunction function);

}  // namespace sluice

namespace SLUICE_INTERNAL sluice {

void Note(std::string_view line);
// Unless something was said with `told` before.
inline void NoteOnce(std::atomic<bool>& told, std::string_view line) {
  if (!told.exchange(true)) Note(line);
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_NOTE_H_
