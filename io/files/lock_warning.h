// What a lock says where the file system knows none. Internal to io.
#ifndef SLUICE_IO_FILES_LOCK_WARNING_H_
#define SLUICE_IO_FILES_LOCK_WARNING_H_

#include <string>

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// FileLock::warning() of a lock of `path` for which the system call failed with
// this error, where that says that there are no locks; empty: it says something
// else.
std::string WarningWithoutLocks(int error_number, const std::string& path);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_LOCK_WARNING_H_
