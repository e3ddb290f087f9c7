#include "io/files/lock_warning.h"

#include <fmt/format.h>

#include <cerrno>

namespace sluice {

std::string WarningWithoutLocks(int error_number, const std::string& path) {
  // Which one it is differs by file system: no lock server, not supported, or
  // no such command.
  const bool unknown = error_number == ENOLCK || error_number == EOPNOTSUPP ||
                       error_number == ENOSYS || error_number == EINVAL;
  if (!unknown) return {};
  return fmt::format(
      "the file system of '{}' has no locks: nothing keeps a second run out",
      path);
}

}  // namespace sluice
