// Objects open for writing.
#ifndef SLUICE_IO_REMOTE_S3_S3_WRITERS_H_
#define SLUICE_IO_REMOTE_S3_S3_WRITERS_H_

#include <chrono>
#include <memory>
#include <string>

#include "engine/status.h"
#include "io/files/file.h"
#include "io/remote/http/retry.h"
#include "io/remote/s3/s3_client.h"
#include "io/remote/s3/s3_upload.h"

namespace sluice::remote {

// An object is never changed, only replaced: what it had stays until Close, or
// Sync where what was appended fits into one part (UploadSizes); Sync of more
// does nothing yet. Appends hand on whole parts and keep the rest in memory.
// Destroyed before Close it leaves what was there, or what Sync put. After an
// error every call returns it. The client outlives it.
std::unique_ptr<WritableFile> NewObjectWriter(S3Client& client,
                                              const std::string& path,
                                              const UploadSizes& sizes);

// A writer for logs, which are small and grow for long: keeps the whole object,
// `bytes` at first, in memory, and puts it again at Sync and Close, when it is
// destroyed, and at an Append so long after the last time: `interval`, and
// twenty times what that took.
std::unique_ptr<WritableFile> NewObjectAppender(
    S3Client& client, const std::string& path, std::string bytes,
    const UploadSizes& sizes, Clock& clock, std::chrono::milliseconds interval);

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_S3_S3_WRITERS_H_
