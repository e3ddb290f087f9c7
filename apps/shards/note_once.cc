#include "apps/shards/note_once.h"

#include <mutex>
#include <set>

#include "models/cli/console.h"

namespace sluice::shards {

void NoteOnce(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(line).second) console::Note(line);
}

}  // namespace sluice::shards
