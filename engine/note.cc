#include "engine/note.h"

namespace sluice {
namespace {

std::atomic<NoteFunction> notes = nullptr;

}  // namespace

void SetNotes(NoteFunction function) {
  notes = function;
}

void Note(std::string_view line) {
  const NoteFunction function = notes;
  if (function != nullptr) function(line);
}

}  // namespace sluice
