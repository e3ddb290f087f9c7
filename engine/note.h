// Notes: messages of the engine that it can return to no caller, such as that
// it goes on without something, and more slowly. It prints nothing itself.
#ifndef SLUICE_ENGINE_NOTE_H_
#define SLUICE_ENGINE_NOTE_H_

#include <atomic>
#include <string_view>

#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Receives one line, without a newline. May be called by any thread; must not
// throw.
using NoteFunction = void (*)(std::string_view line);

// Sets the function that gets notes from now on; null, the default: none. May
// be called by any thread.
void SetNotes(NoteFunction function);

}  // namespace sluice

namespace SLUICE_INTERNAL sluice {

void Note(std::string_view line);
// Notes the line unless NoteOnce was called with `told` before.
inline void NoteOnce(std::atomic<bool>& told, std::string_view line) {
  if (!told.exchange(true)) Note(line);
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_NOTE_H_
