// The bodies that S3 answers with, and the one that it is sent. Read with
// expat: bounded in size and depth, no entities, any bytes are an error at
// worst.
#ifndef SLUICE_IO_REMOTE_S3_S3_XML_H_
#define SLUICE_IO_REMOTE_S3_S3_XML_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "io/remote/http/s3_error.h"

namespace sluice::remote {

// Errors of every function that reads: kDataLoss for what is not the expected
// answer, kUnimplemented in a build without expat.

struct ListedObject {
  std::string key;
  uint64_t size = 0;  // bytes
  std::string etag;   // as the server writes it: with quotes, most of them

  friend bool operator==(const ListedObject&, const ListedObject&) = default;
};

// One page of ListObjectsV2. Keys are as they are named, decoded where the
// request had encoding-type=url and the answer says so.
struct ObjectList {
  std::vector<ListedObject> objects;
  std::vector<std::string> common_prefixes;  // each with its delimiter
  // The continuation-token for the next page's request; empty on the last page.
  std::string next_token;
};

Result<ObjectList> ParseObjectList(std::string_view body);

// The UploadId that CreateMultipartUpload answers with.
Result<std::string> ParseUploadId(std::string_view body);

// The answer to CompleteMultipartUpload, CopyObject and UploadPartCopy, which
// may be an error behind a status of 200.
struct S3Outcome {
  std::string etag;  // of the new object or part
  S3Error error;     // empty where all went well

  bool ok() const { return error.code.empty(); }
};

Result<S3Outcome> ParseS3Outcome(std::string_view body);

// The body of CompleteMultipartUpload: the parts 1, 2, ... by their ETags.
std::string CompleteUploadBody(const std::vector<std::string>& etags);

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_S3_S3_XML_H_
