// The requests of S3's interface (docs.aws.amazon.com, "Amazon S3 API
// Reference") that files need, to Amazon or to whoever else understands them.
#ifndef SLUICE_IO_REMOTE_S3_S3_CLIENT_H_
#define SLUICE_IO_REMOTE_S3_S3_CLIENT_H_

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "io/remote/http/http.h"
#include "io/remote/http/retry.h"
#include "io/remote/http/url.h"
#include "io/remote/objects/object_reader.h"
#include "io/remote/s3/credentials.h"
#include "io/remote/s3/s3_xml.h"

namespace sluice::remote {

struct S3Request {
  std::string method = "GET";
  ObjectPath object;  // without a key: the bucket
  NamedValues query;
  NamedValues headers;    // signed
  std::string_view body;  // the caller keeps it
  size_t body_limit = size_t{16} << 20;
  char* into = nullptr;          // as HttpRequest has it
  bool changes_nothing = false;  // that others see, though it is no GET or HEAD
};

// Thread-safe. Paths are "s3://bucket/key". The settings are read at the first
// request, and again where the server says that the credentials have expired,
// or refuses without saying why: their errors are those of each request, as
// kUnavailable, until they are mended. A bucket of Amazon's that is in another
// region than the settings say is asked there.
class S3Client : public ObjectReader {
 public:
  // Whether an object may be changed; asked before each try.
  using MayChange = std::function<Status(const ObjectPath&)>;

  // The retrier outlives it.
  S3Client(Retrier& retrier, Environment environment,
           MayChange may_change = nullptr)
      : retrier_(retrier),
        environment_(std::move(environment)),
        may_change_(std::move(may_change)) {}

  Result<ObjectPiece> Get(const std::string& path, uint64_t offset, uint64_t n,
                          const ObjectVersion* version, char* into) override;
  Result<ObjectVersion> Head(const std::string& path) override;

  // What is directly in the folder: names of objects and, as
  // common_prefixes, of folders, whole keys both. All pages of it, or one of
  // `most` at most.
  Result<ObjectList> List(const std::string& path,
                          std::optional<int> most = std::nullopt);

  // Errors of these: kNotFound, kUnavailable (no permission among others),
  // kResourceExhausted.
  Status Put(const std::string& path, std::string_view bytes);
  // Fine where there is none.
  Status Delete(const std::string& path);
  // Within the server, objects of 5 GiB at most: CopyObject (s3_upload.h) takes
  // all.
  Status Copy(const std::string& from, const std::string& to);

  // Signs and sends; the answer may be a refusal. Errors of Retrier::Send.
  Result<HttpResponse> Send(std::string_view what, const S3Request& request,
                            const Retrier::Check& check = nullptr);

 private:
  Result<S3Settings> SettingsFor(const std::string& bucket) EXCLUDES(mutex_);
  // Does the refusal of a request that was made with `used` say something that
  // makes another answer likely? Another request may have learnt it before.
  bool LearnFrom(const HttpResponse& refusal, const std::string& bucket,
                 const S3Settings& used) EXCLUDES(mutex_);

  Retrier& retrier_;
  const Environment environment_;
  const MayChange may_change_;
  Mutex mutex_;
  std::optional<S3Settings> settings_ GUARDED_BY(mutex_);
  std::map<std::string, std::string> regions_ GUARDED_BY(mutex_);  // learnt
};

// The path of an object; kInvalidArgument also where it names a bucket alone.
Result<ObjectPath> ParseObject(const std::string& path);

// What an x-amz-copy-source header names an object by.
std::string CopySource(const ObjectPath& object);

// Refusal of a change: no permission is kUnavailable there (FileSystem).
Status WriteRefusal(std::string_view verb, const std::string& path,
                    const HttpResponse& response);

// A Retrier::Check for answers of status 200 that may be an error all the same.
std::optional<std::string> CheckOutcome(const HttpResponse& response);

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_S3_S3_CLIENT_H_
