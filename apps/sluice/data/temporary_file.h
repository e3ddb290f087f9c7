// Files that are not whole yet (TemporaryName, io/files/file.h), of which a
// killed process leaves some.
#ifndef SLUICE_APPS_SLUICE_DATA_TEMPORARY_FILE_H_
#define SLUICE_APPS_SLUICE_DATA_TEMPORARY_FILE_H_

#include <set>
#include <string>

#include "engine/status.h"

namespace sluice::tool {

// Removes from a folder what processes that have ended, or earlier ones of this
// process's number, left of the files `names`: temporary files of theirs, but
// none that is itself one of `names`. Those of this program's processes that
// run on this machine stay, and so do those of other machines and containers
// that were written within the last day.
Status RemoveAbandoned(const std::string& folder,
                       const std::set<std::string>& names);

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_DATA_TEMPORARY_FILE_H_
