// Names of files that are not whole yet, of which a killed process leaves some.
#ifndef SLUICE_APPS_SLUICE_DATA_TEMPORARY_FILE_H_
#define SLUICE_APPS_SLUICE_DATA_TEMPORARY_FILE_H_

#include <set>
#include <string>

#include "engine/status.h"

namespace sluice::tool {

// What this process may call the file until it is whole: an IsTemporaryName
// (io/files/file.h) that ends with the process's number.
std::string TemporaryName(const std::string& path);

// Removes from a folder what processes that have ended, or earlier ones of this
// process's number, left of the files `names`: temporary files of theirs, but
// none that is itself one of `names`. Those of this program's processes that
// run on this machine stay.
Status RemoveAbandoned(const std::string& folder,
                       const std::set<std::string>& names);

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_DATA_TEMPORARY_FILE_H_
