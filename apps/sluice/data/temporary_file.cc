#include "apps/sluice/data/temporary_file.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "io/files/file.h"
#include "io/files/temporary_name.h"

namespace sluice::tool {
namespace {

namespace fs = std::filesystem;

// A process that cannot be looked for is taken to have ended if it has written
// nothing for so long: it may be reading back what it has written, and clocks
// differ.
constexpr std::chrono::hours kLongestPause{24};

// Of /proc/N/stat, "N (NAME) STATE ...", where NAME may have brackets, too.
struct Process {
  std::string name;
  char state = '?';
};

std::optional<Process> Find(const std::string& number) {
  const auto text = FileSystem::Posix().Read("/proc/" + number + "/stat");
  if (!text.ok()) return std::nullopt;
  const size_t begin = text->find('('), end = text->rfind(") ");
  if (begin == std::string::npos || end == std::string::npos) {
    return std::nullopt;
  }
  return Process{text->substr(begin + 1, end - begin - 1), (*text)[end + 2]};
}

// Whether the process of that number may still write a temporary file: one of
// this program that runs. A number may have become another program's, and a
// killed process may wait for ever for a parent to ask for it, as it does in
// containers.
bool MayWrite(const std::string& number) {
  if (number == std::to_string(getpid())) return false;
  const auto owner = Find(number), self = Find("self");
  return owner && owner->state != 'Z' && owner->state != 'X' &&
         (!self || self->name == owner->name);
}

bool IsAbandoned(const std::string& path, const TemporaryParts& parts) {
  if (parts.space == ProcessSpace()) {
    return !MayWrite(std::string(parts.process));
  }
  std::error_code none;
  const fs::file_time_type written = fs::last_write_time(path, none);
  return !none && fs::file_time_type::clock::now() - written > kLongestPause;
}

}  // namespace

Status RemoveAbandoned(const std::string& folder,
                       const std::set<std::string>& names) {
  FileSystem& files = FileSystem::Default();
  SLUICE_ASSIGN_OR_RETURN(const auto there, files.List(folder));
  for (const std::string& name : there) {
    const auto parts = PartsOfTemporaryName(name);
    if (!parts || names.contains(name)) continue;
    const bool ours = std::any_of(
        names.begin(), names.end(),
        [&](const std::string& file) { return IsTemporaryNameOf(name, file); });
    const std::string path = JoinPath(folder, name);
    if (!ours || !IsAbandoned(path, *parts)) continue;
    const Status removed = files.Remove(path);
    if (removed.code() == Code::kNotFound) continue;  // another run was faster
    SLUICE_RETURN_IF_ERROR(removed);
  }
  return {};
}

}  // namespace sluice::tool
