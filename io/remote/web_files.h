// https:// and http:// as a file system for reading.
#ifndef SLUICE_IO_REMOTE_WEB_FILES_H_
#define SLUICE_IO_REMOTE_WEB_FILES_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "io/files/file.h"
#include "io/remote/http/http.h"
#include "io/remote/http/retry.h"
#include "io/remote/objects/fetch_threads.h"
#include "io/remote/objects/object_reader.h"
#include "io/remote/objects/readahead.h"

namespace sluice::remote {

// What web servers answer to GET, addresses that carry a signature included:
// messages leave out what follows the "?". Redirections are followed. Thread-
// safe.
class WebReader : public ObjectReader {
 public:
  explicit WebReader(Retrier& retrier) : retrier_(retrier) {}
  Result<ObjectPiece> Get(const std::string& path, uint64_t offset, uint64_t n,
                          const ObjectVersion* version, char* into) override;
  // Asks for the first byte, since a signature may be good for GET alone.
  Result<ObjectVersion> Head(const std::string& path) override;

 private:
  Retrier& retrier_;
};

// Changes are kUnavailable, as on a disk that is read-only; listing is
// kUnimplemented, and so is the size of what has no stated length. The client
// and the clock outlive it, and it outlives its files.
class WebFiles : public FileSystem {
 public:
  explicit WebFiles(HttpClient& client, Clock& clock = Clock::System(),
                    const RetryPolicy& retry = {}, const ReadSizes& read = {})
      : read_(read),
        retrier_(client, clock, retry),
        reader_(retrier_),
        threads_(read.threads_ahead) {}

  Result<std::string> ReadPrefix(const std::string& path,
                                 size_t limit) override;
  Result<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) override;
  Result<size_t> Size(const std::string& path) override;
  Result<std::string> Version(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> OpenAppend(
      const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status SyncDirectory(const std::string& path) override;
  Result<std::vector<std::string>> List(const std::string& path) override;
  Result<bool> Exists(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path,
                                         std::string_view holder,
                                         const OnWait& waits) override;
  using FileSystem::Lock;
  Status MakeDirectories(const std::string& path) override;

 private:
  const ReadSizes read_;
  Retrier retrier_;
  WebReader reader_;
  FetchThreads threads_;  // ends first: it uses the rest
};

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_WEB_FILES_H_
