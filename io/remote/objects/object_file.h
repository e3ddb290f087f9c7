// Objects as files: whole, or read anywhere.
#ifndef SLUICE_IO_REMOTE_OBJECTS_OBJECT_FILE_H_
#define SLUICE_IO_REMOTE_OBJECTS_OBJECT_FILE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "engine/status.h"
#include "io/files/file.h"
#include "io/remote/objects/fetch_threads.h"
#include "io/remote/objects/object_reader.h"
#include "io/remote/objects/readahead.h"

namespace sluice::remote {

// One request opens it and reads its first bytes. All its bytes are of the
// version it was opened at. `reader` and `threads` outlive it. Errors of
// ObjectReader; kUnimplemented for a larger object at a server that knows no
// ranges.
Result<std::unique_ptr<ReadableFile>> OpenObject(ObjectReader& reader,
                                                 const std::string& path,
                                                 FetchThreads& threads,
                                                 const ReadSizes& sizes);

// The first `limit` bytes, in parts at the same time where they are many, of
// one version.
Result<std::string> ReadObject(ObjectReader& reader, const std::string& path,
                               size_t limit, const ReadSizes& sizes);

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_OBJECTS_OBJECT_FILE_H_
