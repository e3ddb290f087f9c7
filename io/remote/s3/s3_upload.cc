#include "io/remote/s3/s3_upload.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
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
  MutexLock lock(mutex_);
  if (etags_.size() <= part) etags_.resize(part + 1);
  etags_[part] = response.Header("etag");
  return {};
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
  std::atomic<bool> failed = false;
  SLUICE_RETURN_IF_ERROR(
      ForEachFile(parts, sizes.parallel_parts, [&](size_t i) -> Status {
        if (failed) return {};  // the error is another part's
        std::string copy;
        Status status = upload->Put(
            i, Part(pieces, i * part, std::min(part, size - i * part), &copy));
        if (!status.ok()) failed = true;
        return status;
      }));
  return upload->Complete();
}

}  // namespace sluice::remote
