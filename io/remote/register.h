// s3://, https:// and http:// where a path is wanted.
#ifndef SLUICE_IO_REMOTE_REGISTER_H_
#define SLUICE_IO_REMOTE_REGISTER_H_

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// FileSystem::Default() reads and writes "s3://bucket/key" and reads "https://"
// and "http://" from now on, as io/remote/s3/s3_files.h and web_files.h have
// it; in a build without the libraries for it each such call is kUnimplemented
// and says which. Calls after the first do nothing; a scheme that somebody
// registered later stays theirs. Asks no server and reads no credentials before
// a path is used. Thread-safe.
void RegisterRemoteFiles();

}  // namespace sluice

#endif  // SLUICE_IO_REMOTE_REGISTER_H_
