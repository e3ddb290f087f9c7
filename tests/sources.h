// The sources of the tree, as text, for the tests of what may be in them.
#ifndef SLUICE_TESTS_SOURCES_H_
#define SLUICE_TESTS_SOURCES_H_

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "tests/places.h"
#include "tests/rooms.h"

namespace sluice::testing {

inline std::filesystem::path Root() {
  return SLUICE_SOURCE_DIR;
}

// Folders that are no rooms: they may use anything.
inline const std::set<std::string>& Unrestricted() {
  static const std::set<std::string> folders = {"apps", "tests", "bench"};
  return folders;
}

// Whether a room is among these, where "engine/*" is a folder and its rooms.
inline bool Allows(const std::set<std::string>& may, const std::string& room) {
  return std::any_of(may.begin(), may.end(), [&](const std::string& entry) {
    if (!entry.ends_with("/*")) return entry == room;
    const std::string folder = entry.substr(0, entry.size() - 2);
    return room == folder || room.starts_with(folder + "/");
  });
}

// "graph/ops/array.cc" is of the room "graph/ops", "apps/sluice/json.h" of
// "apps"; empty for a path of no known room.
inline std::string RoomOf(std::string_view path) {
  std::string room(path);
  while (true) {
    const size_t slash = room.rfind('/');
    if (slash == std::string::npos) return "";
    room.resize(slash);
    if (MayUse().contains(room) || Unrestricted().contains(room)) return room;
  }
}
inline std::string TopOf(const std::string& room) {
  return room.substr(0, room.find('/'));
}

// The text without its comments.
inline std::string CodeOf(const std::string& text) {
  std::string code;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    code += line.substr(0, line.find("//")) + '\n';
  }
  return code;
}

// Whether `word` is there, not as the end of a longer one.
inline bool Says(const std::string& code, std::string_view word) {
  for (size_t at = 0; (at = code.find(word, at)) != std::string::npos; ++at) {
    const auto before = static_cast<unsigned char>(at > 0 ? code[at - 1] : 0);
    if (std::isalnum(before) == 0 && before != '_') return true;
  }
  return false;
}

inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline bool IsSource(const std::filesystem::path& path) {
  static const std::set<std::string> kExtensions = {".h", ".cc", ".cu"};
  return kExtensions.contains(path.extension().string());
}

// Calls use(path, text) for each source, with its path from the root; returns
// how many there are.
template <typename Fn>
int ForEachSource(const Fn& use) {
  namespace fs = std::filesystem;
  std::set<std::string> folders = Unrestricted();
  for (const auto& [room, unused] : MayUse()) folders.insert(TopOf(room));
  int files = 0;
  for (const std::string& folder : folders) {
    if (!fs::exists(Root() / folder)) continue;
    for (const fs::directory_entry& entry :
         fs::recursive_directory_iterator(Root() / folder)) {
      if (!entry.is_regular_file() || !IsSource(entry.path())) continue;
      use(entry.path().lexically_relative(Root()).string(),
          ReadText(entry.path()));
      ++files;
    }
  }
  return files;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SOURCES_H_
