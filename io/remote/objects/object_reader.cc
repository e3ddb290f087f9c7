#include "io/remote/objects/object_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/parse_number.h"
#include "io/remote/http/s3_error.h"

namespace sluice::remote {
namespace {

// "bytes 0-499/1234", or "bytes */1234" where nothing lies in the range.
struct ContentRange {
  bool none = false;
  uint64_t first = 0, last = 0;
  uint64_t size = ObjectVersion::kUnknownSize;  // for "*" too
};

std::optional<ContentRange> ParseContentRange(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  const size_t slash = text.find('/');
  if (!text.starts_with(kUnit) || slash == std::string_view::npos) return {};
  ContentRange range;
  const std::string_view size = text.substr(slash + 1);
  if (size != "*") {
    const auto count = ParseWhole<uint64_t>(size);
    if (!count) return {};
    range.size = *count;
  }
  const std::string_view part = text.substr(0, slash).substr(kUnit.size());
  if (part == "*") {
    range.none = true;
    return range;
  }
  const size_t dash = part.find('-');
  if (dash == std::string_view::npos) return {};
  const auto first = ParseWhole<uint64_t>(part.substr(0, dash));
  const auto last = ParseWhole<uint64_t>(part.substr(dash + 1));
  if (!first || !last || *last < *first || *last >= range.size) return {};
  range.first = *first;
  range.last = *last;
  return range;
}

// The last byte of a range, without wrapping around.
uint64_t LastOf(uint64_t offset, uint64_t n) {
  return n - 1 > ObjectVersion::kUnknownSize - offset
             ? ObjectVersion::kUnknownSize
             : offset + (n - 1);
}

bool IsStrong(const std::string& etag) {
  return etag.starts_with('"');
}

bool Same(const ObjectVersion& a, const ObjectVersion& b) {
  if (a.size != b.size) return false;
  if (!a.etag.empty() || !b.etag.empty()) return a.etag == b.etag;
  return a.last_modified == b.last_modified;
}

Status Changed(const std::string& path) {
  // Not one bad record, which may be passed over.
  return Unavailable(fmt::format("'{}' was replaced while it was read", path));
}

}  // namespace

NamedValues RangeHeaders(uint64_t offset, uint64_t n,
                         const ObjectVersion* version) {
  const uint64_t last = LastOf(offset, n);
  NamedValues headers = {
      {"range", last == ObjectVersion::kUnknownSize
                    ? fmt::format("bytes={}-", offset)
                    : fmt::format("bytes={}-{}", offset, last)}};
  if (version == nullptr) return headers;
  if (IsStrong(version->etag)) {
    headers.emplace_back("if-match", version->etag);
  } else if (version->etag.empty() && !version->last_modified.empty()) {
    headers.emplace_back("if-unmodified-since", version->last_modified);
  }
  return headers;
}

std::optional<std::string> CheckPiece(const HttpResponse& response,
                                      uint64_t offset, uint64_t n) {
  if (response.status != 206) return {};
  const std::string_view text = response.Header("content-range");
  const auto range = ParseContentRange(text);
  if (!range || range->none) {
    return fmt::format("the server sent a part of it as '{}'", Shown(text));
  }
  const uint64_t last = std::min(LastOf(offset, n), range->size - 1);
  const uint64_t bytes = range->last - range->first + 1;
  if (range->first != offset || range->last != last ||
      response.body_bytes() != bytes) {
    return fmt::format(
        "asked for bytes {} to {}, the server sent {} bytes as '{}'", offset,
        last, response.body_bytes(), Shown(text));
  }
  return {};
}

ObjectVersion VersionOf(const HttpResponse& response) {
  ObjectVersion version;
  version.etag = response.Header("etag");
  version.last_modified = response.Header("last-modified");
  if (response.status == 206) {
    const auto range = ParseContentRange(response.Header("content-range"));
    if (range) version.size = range->size;
  } else if (const auto size =
                 ParseWhole<uint64_t>(response.Header("content-length"))) {
    version.size = *size;
  }
  return version;
}

Result<ObjectPiece> TakePiece(HttpResponse response, uint64_t offset,
                              const ObjectVersion* version,
                              const std::string& path) {
  ObjectPiece piece;
  if (response.status == 412) return Changed(path);
  if (response.status == 416) {
    const auto range = ParseContentRange(response.Header("content-range"));
    piece.version.size = range && range->none ? range->size : 0;
    if (version != nullptr && version->size > offset) return Changed(path);
    return piece;
  }
  if (!response.ok()) return Refusal("read", path, response);
  piece.version = VersionOf(response);
  piece.ranged = response.status == 206;
  if (!piece.ranged) {
    if (offset > 0) {
      return Unimplemented(
          fmt::format("cannot read '{}' from byte {} on: the server knows no "
                      "ranges, so it can be read only as a whole",
                      path, offset));
    }
    if (!response.cut) piece.version.size = response.body_bytes();
  }
  if (version != nullptr && !Same(*version, piece.version)) {
    return Changed(path);
  }
  piece.size = response.body_bytes();
  piece.bytes = std::move(response.body);
  return piece;
}

Result<std::string> TextOf(const ObjectVersion& version,
                           const std::string& path) {
  if (IsStrong(version.etag)) {
    return fmt::format("{} {}", version.size, version.etag);
  }
  return Unimplemented(fmt::format(
      "'{}': the server gives no ETag, so that nothing tells whether it has "
      "changed",
      path));
}

Status Refusal(std::string_view verb, const std::string& path,
               const HttpResponse& response) {
  constexpr std::array<std::string_view, 6> kWhoWeAre = {
      "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken",
      "InvalidToken",       "TokenRefreshRequired",  "RequestTimeTooSkewed"};
  const S3Error error = ParseS3Error(response.body);
  const std::string head = fmt::format("cannot {} '{}': ", verb, path);
  std::string reason = fmt::format("the server answers {}", response.status);
  if (!error.code.empty()) {
    reason = fmt::format("{} ({})", error.message, error.code);
  }
  switch (response.status) {
    case 401:
    case 403:
      if (std::count(kWhoWeAre.begin(), kWhoWeAre.end(), error.code) > 0) {
        // Signing by the server's clock, where it tells that, did not help.
        const bool clock = error.code == "RequestTimeTooSkewed";
        return Unavailable(fmt::format(
            "{}{}: {}", head,
            clock ? "the server's clock and the one here differ too much"
                  : "the credentials are refused",
            reason));
      }
      return FailedPrecondition(head + "permission denied: " + reason);
    case 404:
    case 410:
      if (error.code == "NoSuchBucket") {
        return NotFound(head + "no such bucket");
      }
      return NotFound(head + "no such object");
    case 507:
      return ResourceExhausted(head + reason);
    default:
      break;
  }
  const std::string_view region = response.Header("x-amz-bucket-region");
  if (!region.empty()) {
    reason += fmt::format("; its bucket is in region '{}'", Shown(region));
  }
  if (error.code == "QuotaExceeded") return ResourceExhausted(head + reason);
  return Unavailable(head + reason);
}

}  // namespace sluice::remote
