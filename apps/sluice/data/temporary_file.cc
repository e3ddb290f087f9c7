#include "apps/sluice/data/temporary_file.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "io/files/file.h"

namespace sluice::tool {
namespace {

constexpr std::string_view kMark = ".tmp-";

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

// Whether the process that gave a temporary file its name may still write it:
// one of this program that runs. A number may have become another program's,
// and a killed process may wait for ever for a parent to ask for it, as it does
// in containers.
bool IsOwned(std::string_view temporary) {
  std::string number(temporary.substr(temporary.rfind(kMark) + kMark.size()));
  number.resize(std::min(number.find('-'), number.size()));
  if (number == std::to_string(getpid())) return false;
  const auto owner = Find(number), self = Find("self");
  return owner && owner->state != 'Z' && owner->state != 'X' &&
         (!self || self->name == owner->name);
}

}  // namespace

Status RemoveAbandoned(const std::string& folder,
                       const std::set<std::string>& names) {
  FileSystem& files = FileSystem::Default();
  SLUICE_ASSIGN_OR_RETURN(const auto there, files.List(folder));
  for (const std::string& name : there) {
    if (!IsTemporaryName(name) || names.contains(name) || IsOwned(name) ||
        !names.contains(name.substr(0, name.rfind(kMark)))) {
      continue;
    }
    SLUICE_RETURN_IF_ERROR(files.Remove(JoinPath(folder, name)));
  }
  return {};
}

}  // namespace sluice::tool
