#include "io/remote/s3/s3_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "io/remote/s3/s3_address.h"
#include "io/remote/s3/sigv4.h"

namespace sluice::remote {
namespace {

std::string Cannot(std::string_view verb, const std::string& path) {
  return fmt::format("cannot {} '{}'", verb, path);
}

// A region becomes a part of a host's name.
bool IsRegion(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

// For credentials that have expired. The answer to a HEAD has no body, so no
// code.
bool MayHaveExpired(const HttpResponse& refusal) {
  const std::string code = ParseS3Error(refusal.body).code;
  if (code.empty()) return refusal.status == 400 || refusal.status == 403;
  return code == "ExpiredToken" || code == "TokenRefreshRequired" ||
         code == "InvalidToken";
}

// The key of a folder with its slash; empty for the bucket.
std::string Prefix(const ObjectPath& folder) {
  const bool slash = folder.key.empty() || folder.key.ends_with('/');
  return slash ? folder.key : folder.key + "/";
}

}  // namespace

Result<ObjectPath> ParseObject(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(ObjectPath object, ParseObjectPath(path));
  if (!object.key.empty()) return object;
  return InvalidArgument(
      fmt::format("'{}' is a bucket, wanted an object in it", path));
}

std::string CopySource(const ObjectPath& object) {
  return EncodePath("/" + object.bucket + "/" + object.key);
}

Status WriteRefusal(std::string_view verb, const std::string& path,
                    const HttpResponse& response) {
  Status error = Refusal(verb, path, response);
  if (error.code() != Code::kFailedPrecondition) return error;
  return Unavailable(error.message());
}

std::optional<std::string> CheckOutcome(const HttpResponse& response) {
  const auto outcome = ParseS3Outcome(response.body);
  if (!outcome.ok()) return outcome.status().message();
  if (outcome->ok()) return std::nullopt;
  return fmt::format("status {} with {}: {}", response.status,
                     outcome->error.code, outcome->error.message);
}

Result<S3Settings> S3Client::SettingsFor(const std::string& bucket) {
  MutexLock lock(mutex_);
  if (!settings_) {
    SLUICE_ASSIGN_OR_RETURN(settings_, LoadS3Settings(environment_));
  }
  S3Settings settings = *settings_;
  const auto region = regions_.find(bucket);
  if (region != regions_.end()) settings.region = region->second;
  return settings;
}

bool S3Client::LearnFrom(const HttpResponse& refusal, const std::string& bucket,
                         const S3Settings& used) {
  if (used.credentials && MayHaveExpired(refusal)) {
    MutexLock lock(mutex_);
    auto settings = LoadS3Settings(environment_);
    if (settings.ok() && settings->credentials &&
        settings->credentials->session_token !=
            used.credentials->session_token) {
      settings_ = *std::move(settings);
      return true;
    }
  }
  const std::string region(refusal.Header("x-amz-bucket-region"));
  if (!IsRegion(region) || !used.endpoint.empty() || region == used.region) {
    return false;
  }
  MutexLock lock(mutex_);
  regions_[bucket] = region;
  return true;
}

Result<HttpResponse> S3Client::Send(std::string_view what,
                                    const S3Request& request,
                                    const Retrier::Check& check) {
  SLUICE_ASSIGN_OR_RETURN(const std::string hash, Sha256Hex(request.body));
  const bool changes = request.method != "GET" && request.method != "HEAD" &&
                       !request.changes_nothing;
  S3Settings used;  // of the request that was sent last
  const auto make = [&](std::time_t now) -> Result<HttpRequest> {
    if (changes && may_change_ != nullptr) {
      const Status may = may_change_(request.object);
      if (!may.ok()) return may.WithContext(std::string(what));
    }
    auto settings = SettingsFor(request.object.bucket);
    if (!settings.ok()) {
      // No object's fault: it must not look as if that were missing.
      const Status why = settings.status();
      return Unavailable(fmt::format("{}: {}", what, why.message()));
    }
    used = *std::move(settings);
    SLUICE_ASSIGN_OR_RETURN(const S3Address address,
                            AddressOf(used, request.object));
    HttpRequest http;
    http.method = request.method;
    http.url = address.ToString();
    const std::string query = EncodeQuery(request.query);
    if (!query.empty()) http.url += "?" + query;
    http.headers = request.headers;
    http.body = request.body;
    http.body_limit = request.body_limit;
    http.into = request.into;
    if (used.credentials) {
      SLUICE_ASSIGN_OR_RETURN(
          NamedValues signing,
          Sign({request.method, address.host, address.path, request.query,
                request.headers, hash},
               {.region = used.region}, *used.credentials, now));
      std::move(signing.begin(), signing.end(),
                std::back_inserter(http.headers));
    }
    // Compressed on the way it would have another length.
    http.headers.emplace_back("accept-encoding", "identity");
    return http;
  };
  auto response = retrier_.Send(what, make, check);
  const bool again = response.ok() && !response->ok() &&
                     LearnFrom(*response, request.object.bucket, used);
  return again ? retrier_.Send(what, make, check) : std::move(response);
}

Result<ObjectPiece> S3Client::Get(const std::string& path, uint64_t offset,
                                  uint64_t n, const ObjectVersion* version,
                                  char* into) {
  SLUICE_ASSIGN_OR_RETURN(ObjectPath object, ParseObject(path));
  const S3Request request{.object = std::move(object),
                          .headers = RangeHeaders(offset, n, version),
                          .body_limit = n,
                          .into = into};
  SLUICE_ASSIGN_OR_RETURN(
      HttpResponse response,
      Send(Cannot("read", path), request, [&](const HttpResponse& answer) {
        return CheckPiece(answer, offset, n);
      }));
  return TakePiece(std::move(response), offset, version, path);
}

Result<ObjectVersion> S3Client::Head(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(ObjectPath object, ParseObject(path));
  SLUICE_ASSIGN_OR_RETURN(
      const HttpResponse response,
      Send(Cannot("read", path),
           {.method = "HEAD", .object = std::move(object)}));
  if (!response.ok()) return Refusal("read", path, response);
  return VersionOf(response);
}

Result<ObjectList> S3Client::List(const std::string& path,
                                  std::optional<int> most) {
  SLUICE_ASSIGN_OR_RETURN(const ObjectPath folder, ParseObjectPath(path));
  ObjectList all;
  std::string token;
  for (;;) {
    S3Request request{.object = {folder.bucket, ""},
                      .query = {{"list-type", "2"},
                                {"delimiter", "/"},
                                {"encoding-type", "url"},
                                {"prefix", Prefix(folder)}}};
    if (most) request.query.emplace_back("max-keys", std::to_string(*most));
    if (!token.empty()) {
      request.query.emplace_back("continuation-token", token);
    }
    const std::string what = Cannot("list", path);
    SLUICE_ASSIGN_OR_RETURN(
        const HttpResponse response,
        Send(what, request,
             [](const HttpResponse& answer) -> std::optional<std::string> {
               const Status status = ParseObjectList(answer.body).status();
               if (status.ok()) return std::nullopt;
               return status.message();
             }));
    if (!response.ok()) return Refusal("list", path, response);
    SLUICE_ASSIGN_OR_RETURN(ObjectList page, ParseObjectList(response.body));
    std::move(page.objects.begin(), page.objects.end(),
              std::back_inserter(all.objects));
    std::move(page.common_prefixes.begin(), page.common_prefixes.end(),
              std::back_inserter(all.common_prefixes));
    if (page.next_token.empty() || most) return all;
    if (page.next_token == token) {
      return Unavailable(what + ": the server sends the same page for ever");
    }
    token = std::move(page.next_token);
  }
}

Status S3Client::Put(const std::string& path, std::string_view bytes) {
  SLUICE_ASSIGN_OR_RETURN(ObjectPath object, ParseObject(path));
  SLUICE_ASSIGN_OR_RETURN(
      const HttpResponse response,
      Send(Cannot("write", path),
           {.method = "PUT", .object = std::move(object), .body = bytes}));
  return response.ok() ? Status() : WriteRefusal("write", path, response);
}

Status S3Client::Delete(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(ObjectPath object, ParseObject(path));
  SLUICE_ASSIGN_OR_RETURN(
      const HttpResponse response,
      Send(Cannot("remove", path),
           {.method = "DELETE", .object = std::move(object)}));
  return response.ok() ? Status() : WriteRefusal("remove", path, response);
}

Status S3Client::Copy(const std::string& from, const std::string& to) {
  SLUICE_ASSIGN_OR_RETURN(const ObjectPath source, ParseObject(from));
  SLUICE_ASSIGN_OR_RETURN(ObjectPath object, ParseObject(to));
  SLUICE_ASSIGN_OR_RETURN(
      const HttpResponse response,
      Send(fmt::format("cannot copy '{}' to '{}'", from, to),
           {.method = "PUT",
            .object = std::move(object),
            .headers = {{"x-amz-copy-source", CopySource(source)}}},
           CheckOutcome));
  return response.ok() ? Status() : WriteRefusal("copy", from, response);
}

}  // namespace sluice::remote
