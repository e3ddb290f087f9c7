// Parts of objects by HTTP's range requests (RFC 9110, section 14).
#ifndef SLUICE_IO_REMOTE_OBJECTS_OBJECT_READER_H_
#define SLUICE_IO_REMOTE_OBJECTS_OBJECT_READER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "io/remote/http/http.h"

namespace sluice::remote {

// What tells an object's content from others that had or will have its name.
struct ObjectVersion {
  static constexpr uint64_t kUnknownSize = std::numeric_limits<uint64_t>::max();
  uint64_t size = kUnknownSize;  // bytes
  std::string etag;              // with its quotes; empty: none
  std::string last_modified;     // as the server wrote it; empty: none
};

struct ObjectPiece {
  std::string bytes;  // none where the caller said where they are to go
  uint64_t size = 0;  // how many they are
  ObjectVersion version;
  bool ranged =
      true;  // false: the server knows no ranges, and sent from byte 0
};

// Reads objects. Thread-safe. Errors name the path: kNotFound;
// kFailedPrecondition without the permission; kUnavailable for the network,
// tried often enough, and for an object that is no longer `version`: none of
// its bytes are given out.
class ObjectReader {
 public:
  virtual ~ObjectReader() = default;

  // n bytes from `offset` on, fewer only where the object ends. `version`: what
  // the bytes must be of; null: anything. `into`: where they go, n bytes that
  // may be written to also where there is an error; null: a text of their own.
  // kUnimplemented for an offset at a server that knows no ranges.
  virtual Result<ObjectPiece> Get(const std::string& path, uint64_t offset,
                                  uint64_t n, const ObjectVersion* version,
                                  char* into) = 0;
  virtual Result<ObjectVersion> Head(const std::string& path) = 0;
};

// The headers that ask for such a piece; n > 0.
NamedValues RangeHeaders(uint64_t offset, uint64_t n,
                         const ObjectVersion* version);

// The fault of an answer that makes it worth another try; nullopt: none.
std::optional<std::string> CheckPiece(const HttpResponse& response,
                                      uint64_t offset, uint64_t n);

// The piece that the answer is, whatever its status, or the error; `path` is
// for messages.
Result<ObjectPiece> TakePiece(HttpResponse response, uint64_t offset,
                              const ObjectVersion* version,
                              const std::string& path);

// The version of the whole object, from the headers of an answer with status
// 2xx.
ObjectVersion VersionOf(const HttpResponse& response);

// FileVersion of it (io/files/file_version.h): its size and strong ETag, since
// times are of whole seconds; kUnimplemented without one.
Result<std::string> TextOf(const ObjectVersion& version,
                           const std::string& path);

// "cannot <verb> '<path>': ..." for a status that is not 2xx. A refusal for
// want of permission is kFailedPrecondition, as FileSystem has it for reading;
// one of the credentials themselves is kUnavailable, since it says nothing of
// the object.
Status Refusal(std::string_view verb, const std::string& path,
               const HttpResponse& response);

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_OBJECTS_OBJECT_READER_H_
