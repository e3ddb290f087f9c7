// Paths that name their file system: "s3://bucket/key".
#ifndef SLUICE_IO_FILES_SCHEMES_H_
#define SLUICE_IO_FILES_SCHEMES_H_

#include <string>
#include <string_view>

#include "engine/visibility.h"
#include "io/files/file.h"

namespace SLUICE_PUBLIC sluice {

// "s3" of "s3://bucket/key", empty where a path has no scheme: a letter, then
// letters, digits, "+", "-" and "." (RFC 3986, section 3.1), then "://".
std::string_view SchemeOf(std::string_view path);

// FileSystem::Default() hands whole paths of the scheme to `files` from now on,
// which must live as long as the process. Thread-safe. A scheme that nobody
// registered is an error of every operation on its paths.
void RegisterScheme(const std::string& scheme, FileSystem& files);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_SCHEMES_H_
