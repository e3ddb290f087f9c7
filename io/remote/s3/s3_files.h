// s3:// as a file system.
#ifndef SLUICE_IO_REMOTE_S3_S3_FILES_H_
#define SLUICE_IO_REMOTE_S3_S3_FILES_H_

#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "io/files/file.h"
#include "io/remote/http/http.h"
#include "io/remote/http/retry.h"
#include "io/remote/objects/fetch_threads.h"
#include "io/remote/objects/readahead.h"
#include "io/remote/s3/credentials.h"
#include "io/remote/s3/held_lease.h"
#include "io/remote/s3/s3_client.h"
#include "io/remote/s3/s3_upload.h"

namespace sluice::remote {

struct S3Options {
  RetryPolicy retry;
  ReadSizes read;
  UploadSizes upload;
  // The time between puts of a file that is appended to.
  std::chrono::milliseconds append_interval = std::chrono::seconds(30);
  // How long a lock holds; it is renewed four times in that. The lock of a
  // program that was killed keeps others out for so long.
  std::chrono::seconds lease{60};
};

// Objects as files, "a/b" being the file b in the folder a. What an object
// store has otherwise than a disk:
//  - A file that is written appears at its Close, whole (Create), or is put
//    again whole now and then (OpenAppend): see s3_writers.h.
//  - Folders are what names have in common: one exists while something is in
//    it, one that does not exist is empty, and none need be made.
//  - Rename copies within the store, then removes: each is atomic, both are
//    not. No folders.
//  - A lock is a lease (lease.h), renewed by a thread. Once it is lost every
//    change in the folder that it lies in is kUnavailable. Lock waits for the
//    end of a lease that nobody renews.
// The client and the clock outlive it, and it outlives its files.
class S3Files : public FileSystem {
 public:
  S3Files(HttpClient& client, Environment environment,
          Clock& clock = Clock::System(), const S3Options& options = {})
      : options_(options),
        clock_(clock),
        retrier_(client, clock, options.retry),
        lease_retrier_(client, clock, LeaseRetries(options)),
        patient_lease_client_(retrier_, environment),
        lease_client_(lease_retrier_, environment),
        client_(retrier_, std::move(environment),
                [this](const ObjectPath& object) {
                  return leases_.Check(object, options_.retry.deadline);
                }),
        threads_(options.read.threads_ahead) {}

  Result<std::string> ReadPrefix(const std::string& path,
                                 size_t limit) override;
  Result<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) override;
  Result<size_t> Size(const std::string& path) override;
  Result<std::string> Version(const std::string& path) override;
  Result<std::map<std::string, std::string>> Versions(
      const std::string& folder) override;
  Result<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> OpenAppend(
      const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status SyncDirectory(const std::string& path) override;
  Result<std::vector<std::string>> List(const std::string& path) override;
  Result<Listing> ListAll(const std::string& folder) override;
  // False also where that cannot be found out: ask Size for the reason.
  Result<bool> Exists(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path,
                                         std::string_view holder,
                                         const OnWait& waits) override;
  using FileSystem::Lock;
  Status MakeDirectories(const std::string& path) override;
  Status WriteAtomically(const std::string& path,
                         std::span<const std::string_view> pieces) override;
  Status StreamAtomically(
      const std::string& path,
      const std::function<Status(const Append& append)>& write) override;
  using FileSystem::WriteAtomically;

 private:
  // Renewing must not take long: the next try finds the server as well.
  static RetryPolicy LeaseRetries(const S3Options& options);

  const S3Options options_;
  Clock& clock_;
  Retrier retrier_, lease_retrier_;
  S3Client patient_lease_client_, lease_client_;  // they need no lock
  HeldLeases leases_;
  S3Client client_;
  FetchThreads threads_;  // ends first: it uses the rest
};

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_S3_S3_FILES_H_
