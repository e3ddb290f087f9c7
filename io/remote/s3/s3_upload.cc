#include "io/remote/s3/s3_upload.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <random>
#include <utility>

#include "engine/ceil_div.h"
#include "io/files/open_files.h"
#include "io/remote/s3/s3_xml.h"

namespace sluice::remote {
namespace {

constexpr const char* kMark = "x-amz-meta-sluice-upload";

std::string RandomMark() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(),
                     random());
}

// n bytes from `offset` on of the pieces put together; `copy` holds them where
// they lie in several.
std::string_view Part(std::span<const std::string_view> pieces, size_t offset,
                      size_t n, std::string* copy) {
  for (const std::string_view piece : pieces) {
    if (offset >= piece.size()) {
      offset -= piece.size();
      continue;
    }
    const std::string_view here = piece.substr(offset, n - copy->size());
    if (here.size() == n) return here;
    copy->append(here);
    if (copy->size() == n) break;
    offset = 0;
  }
  return *copy;
}

// Puts or copies parts 0 to `parts` - 1, several at a time; none is begun
// behind one that has failed.
Status ForEachPart(size_t parts, const UploadSizes& sizes,
                   const std::function<Status(size_t part)>& send) {
  std::atomic<bool> failed = false;
  return ForEachFile(parts, sizes.parallel_parts, [&](size_t part) -> Status {
    if (failed) return {};  // the error is another part's
    Status status = send(part);
    if (!status.ok()) failed = true;
    return status;
  });
}

// A copy's ETag is in the body of its answer, not among the headers.
std::optional<std::string> CheckCopiedPart(const HttpResponse& answer) {
  auto fault = CheckOutcome(answer);
  if (fault) return fault;
  const auto outcome = ParseS3Outcome(answer.body);
  if (outcome.ok() && !outcome->etag.empty()) return std::nullopt;
  return "the server gave no ETag";
}

}  // namespace

size_t UploadSizes::PartOf(size_t object) const {
  return std::max(part, CeilDiv(object, most_parts));
}

size_t UploadSizes::PartOfStream(size_t number) const {
  if (number >= most_parts) return 0;
  const size_t tenth = 1 + number * 10 / most_parts;
  return part * tenth * tenth;
}

S3Upload::S3Upload(S3Client& client, std::string path, ObjectPath object,
                   std::string mark)
    : client_(client),
      path_(std::move(path)),
      object_(std::move(object)),
      mark_(std::move(mark)) {}

Result<std::unique_ptr<S3Upload>> S3Upload::Begin(S3Client& client,
                                                  const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(ObjectPath object, ParseObject(path));
  std::unique_ptr<S3Upload> upload(
      new S3Upload(client, path, std::move(object), RandomMark()));
  SLUICE_ASSIGN_OR_RETURN(
      const HttpResponse response,
      client.Send(fmt::format("cannot write '{}'", path),
                  {.method = "POST",
                   .object = upload->object_,
                   .query = {{"uploads", ""}},
                   .headers = {{kMark, upload->mark_}}},
                  [](const HttpResponse& answer) -> std::optional<std::string> {
                    const Status status = ParseUploadId(answer.body).status();
                    if (status.ok()) return std::nullopt;
                    return status.message();
                  }));
  if (!response.ok()) return WriteRefusal("write", path, response);
  SLUICE_ASSIGN_OR_RETURN(upload->id_, ParseUploadId(response.body));
  upload->open_ = true;
  return upload;
}

S3Upload::~S3Upload() {
  // What it could not remove is invisible.
  if (open_) (void)Abort();
}

Status S3Upload::Abort() {
  open_ = false;
  return client_
      .Send(fmt::format("cannot give up writing '{}'", path_),
            {.method = "DELETE",
             .object = object_,
             .query = {{"uploadId", id_}},
             .changes_nothing = true})
      .status();
}

Status S3Upload::Put(size_t part, std::string_view bytes) {
  SLUICE_ASSIGN_OR_RETURN(
      const HttpResponse response,
      client_.Send(
          fmt::format("cannot write '{}'", path_),
          {.method = "PUT",
           .object = object_,
           .query = {{"partNumber", std::to_string(part + 1)},
                     {"uploadId", id_}},
           .body = bytes},
          [](const HttpResponse& answer) -> std::optional<std::string> {
            if (!answer.Header("etag").empty()) return std::nullopt;
            return "the server gave no ETag";
          }));
  if (!response.ok()) return WriteRefusal("write", path_, response);
  Keep(part, std::string(response.Header("etag")));
  return {};
}

Status S3Upload::Copy(size_t part, const std::string& from,
                      const ObjectVersion& version, uint64_t offset,
                      uint64_t n) {
  SLUICE_ASSIGN_OR_RETURN(const ObjectPath source, ParseObject(from));
  S3Request request{
      .method = "PUT",
      .object = object_,
      .query = {{"partNumber", std::to_string(part + 1)}, {"uploadId", id_}},
      .headers = {{"x-amz-copy-source", CopySource(source)},
                  {"x-amz-copy-source-range",
                   fmt::format("bytes={}-{}", offset, offset + n - 1)}}};
  // A weak one is not compared.
  if (version.etag.starts_with('"')) {
    request.headers.emplace_back("x-amz-copy-source-if-match", version.etag);
  }
  SLUICE_ASSIGN_OR_RETURN(
      const HttpResponse response,
      client_.Send(fmt::format("cannot copy '{}' to '{}'", from, path_),
                   request, CheckCopiedPart));
  if (!response.ok()) return WriteRefusal("copy", from, response);
  SLUICE_ASSIGN_OR_RETURN(S3Outcome outcome, ParseS3Outcome(response.body));
  Keep(part, std::move(outcome.etag));
  return {};
}

void S3Upload::Keep(size_t part, std::string etag) {
  MutexLock lock(mutex_);
  if (etags_.size() <= part) etags_.resize(part + 1);
  etags_[part] = std::move(etag);
}

Status S3Upload::Complete() {
  std::string body;
  {
    MutexLock lock(mutex_);
    body = CompleteUploadBody(etags_);
  }
  SLUICE_ASSIGN_OR_RETURN(
      const HttpResponse response,
      client_.Send(fmt::format("cannot write '{}'", path_),
                   {.method = "POST",
                    .object = object_,
                    .query = {{"uploadId", id_}},
                    .headers = {{"content-type", "application/xml"}},
                    .body = body},
                   CheckOutcome));
  if (!response.ok()) {
    // An earlier try may have done it, its answer having been lost.
    if (response.status != 404) {
      return WriteRefusal("write", path_, response);
    }
    SLUICE_ASSIGN_OR_RETURN(const bool there, IsThere());
    if (!there) return WriteRefusal("write", path_, response);
  }
  open_ = false;
  return {};
}

Result<bool> S3Upload::IsThere() {
  SLUICE_ASSIGN_OR_RETURN(const HttpResponse response,
                          client_.Send(fmt::format("cannot write '{}'", path_),
                                       {.method = "HEAD", .object = object_}));
  return response.ok() && response.Header(kMark) == mark_;
}

Status PutPieces(S3Client& client, const std::string& path,
                 std::span<const std::string_view> pieces,
                 const UploadSizes& sizes) {
  size_t size = 0;
  for (const std::string_view piece : pieces) size += piece.size();
  if (size <= sizes.part) {
    std::string copy;
    return client.Put(path, Part(pieces, 0, size, &copy));
  }
  const size_t part = sizes.PartOf(size);
  const size_t parts = CeilDiv(size, part);
  SLUICE_ASSIGN_OR_RETURN(const auto upload, S3Upload::Begin(client, path));
  SLUICE_RETURN_IF_ERROR(ForEachPart(parts, sizes, [&](size_t i) {
    std::string copy;
    return upload->Put(
        i, Part(pieces, i * part, std::min(part, size - i * part), &copy));
  }));
  return upload->Complete();
}

Status CopyObject(S3Client& client, const std::string& from,
                  const std::string& to, const UploadSizes& sizes) {
  const auto version = client.Head(from);
  if (version.status().code() == Code::kFailedPrecondition) {
    return Unavailable(version.status().message());  // as of any change
  }
  SLUICE_RETURN_IF_ERROR(version.status());
  const uint64_t size = version->size;
  if (size == ObjectVersion::kUnknownSize || size <= sizes.copied_at_once) {
    return client.Copy(from, to);
  }
  const uint64_t part = sizes.PartOf(size);
  SLUICE_ASSIGN_OR_RETURN(const auto upload, S3Upload::Begin(client, to));
  SLUICE_RETURN_IF_ERROR(ForEachPart(CeilDiv(size, part), sizes, [&](size_t i) {
    const uint64_t offset = i * part;
    return upload->Copy(i, from, *version, offset,
                        std::min(part, size - offset));
  }));
  return upload->Complete();
}

}  // namespace sluice::remote
