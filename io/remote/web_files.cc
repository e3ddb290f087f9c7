#include "io/remote/web_files.h"

#include <fmt/format.h>

#include <utility>

#include "io/files/without_query.h"
#include "io/remote/http/url.h"
#include "io/remote/objects/object_file.h"

namespace sluice::remote {
namespace {

Status ReadOnly(std::string_view verb, const std::string& path) {
  return Unavailable(
      fmt::format("cannot {} '{}': web servers are only read here; s3:// can "
                  "be written",
                  verb, WithoutQuery(path)));
}

}  // namespace

Result<ObjectPiece> WebReader::Get(const std::string& path, uint64_t offset,
                                   uint64_t n, const ObjectVersion* version,
                                   char* into) {
  SLUICE_ASSIGN_OR_RETURN(const Url url, ParseUrl(path));
  const std::string shown = WithoutQuery(path);
  HttpRequest request{.url = url.ToString(),
                      .headers = RangeHeaders(offset, n, version),
                      .body_limit = n,
                      .into = into,
                      .follow_redirects = true};
  // Compressed on the way it would have another length.
  request.headers.emplace_back("accept-encoding", "identity");
  SLUICE_ASSIGN_OR_RETURN(
      HttpResponse response,
      retrier_.Send(
          fmt::format("cannot read '{}'", shown),
          [&](std::time_t) -> Result<HttpRequest> { return request; },
          [&](const HttpResponse& answer) {
            return CheckPiece(answer, offset, n);
          }));
  return TakePiece(std::move(response), offset, version, shown);
}

Result<ObjectVersion> WebReader::Head(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const ObjectPiece piece,
                          Get(path, 0, 1, nullptr, nullptr));
  return piece.version;
}

Result<std::string> WebFiles::ReadPrefix(const std::string& path,
                                         size_t limit) {
  return ReadObject(reader_, path, limit, read_);
}

Result<std::unique_ptr<ReadableFile>> WebFiles::OpenRead(
    const std::string& path) {
  return OpenObject(reader_, path, threads_, read_);
}

Result<size_t> WebFiles::Size(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const ObjectVersion version, reader_.Head(path));
  if (version.size != ObjectVersion::kUnknownSize) return version.size;
  return Unimplemented(
      fmt::format("cannot tell the size of '{}': the server does not say it",
                  WithoutQuery(path)));
}

Result<std::string> WebFiles::Version(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const ObjectVersion version, reader_.Head(path));
  return TextOf(version, WithoutQuery(path));
}

Result<std::unique_ptr<WritableFile>> WebFiles::Create(
    const std::string& path) {
  return ReadOnly("write", path);
}
Result<std::unique_ptr<WritableFile>> WebFiles::OpenAppend(
    const std::string& path) {
  return ReadOnly("write", path);
}
Status WebFiles::Rename(const std::string& from, const std::string&) {
  return ReadOnly("rename", from);
}
Status WebFiles::Remove(const std::string& path) {
  return ReadOnly("remove", path);
}
Status WebFiles::SyncDirectory(const std::string&) {
  return {};  // there is nothing that could be lost
}

Result<std::vector<std::string>> WebFiles::List(const std::string& path) {
  return Unimplemented(
      fmt::format("cannot list '{}': web servers list no folders; s3:// can be "
                  "listed",
                  WithoutQuery(path)));
}

Result<bool> WebFiles::Exists(const std::string& path) {
  const Status found = reader_.Head(path).status();
  if (found.code() == Code::kNotFound) return false;
  SLUICE_RETURN_IF_ERROR(found);
  return true;
}

Result<std::unique_ptr<FileLock>> WebFiles::Lock(const std::string& path,
                                                 std::string_view,
                                                 const OnWait&) {
  return ReadOnly("lock", path);
}
Status WebFiles::MakeDirectories(const std::string& path) {
  return ReadOnly("create", path);
}

}  // namespace sluice::remote
