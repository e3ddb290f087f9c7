// The warning of a lock where the file system knows no locks. Internal to io.
#ifndef SLUICE_IO_FILES_LOCK_WARNING_H_
#define SLUICE_IO_FILES_LOCK_WARNING_H_

#include <string>

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// FileLock::warning() of a lock of `path` whose system call failed with
// `error_number`, if that means that there are no locks; empty if it means
// something else.
std::string WarningWithoutLocks(int error_number, const std::string& path);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_LOCK_WARNING_H_
