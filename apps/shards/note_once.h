// Notes that several inputs of a program would give.
#ifndef SLUICE_APPS_SHARDS_NOTE_ONCE_H_
#define SLUICE_APPS_SHARDS_NOTE_ONCE_H_

#include <string>

namespace sluice::shards {

// console::Note, unless that line has been said. Thread-safe.
void NoteOnce(const std::string& line);

}  // namespace sluice::shards

#endif  // SLUICE_APPS_SHARDS_NOTE_ONCE_H_
