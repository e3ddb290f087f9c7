// Web addresses without what may be secret in them.
#ifndef SLUICE_IO_FILES_WITHOUT_QUERY_H_
#define SLUICE_IO_FILES_WITHOUT_QUERY_H_

#include <string>

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// What comes before the query ("?...") and the fragment ("#...") of an address
// https:// or http://, and any other path as it is: "?" and "#" are letters of
// names there. Messages show paths so, since a query may be a signature, which
// is as good as a password.
std::string WithoutQuery(const std::string& path);
// The name of a file without its folders and its query: what a position knows
// it by, so that one that is signed anew is the same.
std::string FileNameOf(const std::string& path);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_WITHOUT_QUERY_H_
