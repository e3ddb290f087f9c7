// Objects that appear whole or not at all, however large (S3's multipart
// upload).
#ifndef SLUICE_IO_REMOTE_S3_S3_UPLOAD_H_
#define SLUICE_IO_REMOTE_S3_S3_UPLOAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "io/remote/objects/object_reader.h"
#include "io/remote/s3/s3_client.h"

namespace sluice::remote {

// S3's limits: parts have 5 GiB at most and, but for the last one, 5 MiB at
// least; an object has 10,000 of them, and 5 TiB.
struct UploadSizes {
  size_t part = size_t{16} << 20;  // smaller objects are put by one request
  size_t most_parts = 10'000;
  int parallel_parts = 4;
  // The most bytes that S3 copies by one request; larger objects are copied in
  // parts, as large as those that are put.
  uint64_t copied_at_once = uint64_t{5} << 30;

  // Bytes of each part but the last of an object of that size.
  size_t PartOf(size_t object) const;
  // Bytes of part `number`, from 0, of an object whose size is not known yet; 0
  // where there can be no such part. Parts grow, since they are held in memory
  // until they are full and there are but so many: a tenth of them has `part`
  // bytes, the next tenth 4 times as many, then 9, up to 100 times.
  size_t PartOfStream(size_t number) const;
};

// Parts may be put and copied by several threads. Errors name the path. A
// process that is killed leaves its parts on the server, invisible: a lifecycle
// rule of the bucket (AbortIncompleteMultipartUpload) removes them.
class S3Upload {
 public:
  // The client outlives it.
  static Result<std::unique_ptr<S3Upload>> Begin(S3Client& client,
                                                 const std::string& path);
  // Gives the upload up, unless it was completed.
  ~S3Upload();
  S3Upload(const S3Upload&) = delete;
  S3Upload& operator=(const S3Upload&) = delete;

  // Number `part`, from 0; once each.
  Status Put(size_t part, std::string_view bytes);
  // Likewise, made within the server of n > 0 bytes of the object `from`, from
  // `offset` on. kUnavailable where it is known not to be `version` any more.
  Status Copy(size_t part, const std::string& from,
              const ObjectVersion& version, uint64_t offset, uint64_t n);
  // Now the object is there, made of all parts, which are 0 to some number.
  Status Complete();

 private:
  S3Upload(S3Client& client, std::string path, ObjectPath object,
           std::string mark);
  Status Abort();
  void Keep(size_t part, std::string etag) EXCLUDES(mutex_);
  // Is what lies there now this upload's?
  Result<bool> IsThere();

  S3Client& client_;
  const std::string path_;
  const ObjectPath object_;
  const std::string mark_;  // that the object will carry
  std::string id_;
  bool open_ = false;
  Mutex mutex_;
  std::vector<std::string> etags_ GUARDED_BY(mutex_);
};

// The pieces one behind another as one object, by one request or by an upload.
Status PutPieces(S3Client& client, const std::string& path,
                 std::span<const std::string_view> pieces,
                 const UploadSizes& sizes);

// Within the server, by one request or in parts; `to` appears whole, as the
// object that `from` is at first. What others have written into its headers is
// not copied in parts. Errors as S3Client::Put's.
Status CopyObject(S3Client& client, const std::string& from,
                  const std::string& to, const UploadSizes& sizes);

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_S3_S3_UPLOAD_H_
