// An object store that answers as S3 does, and fails on command.
#ifndef SLUICE_TESTS_SUPPORT_OBJECT_STORE_H_
#define SLUICE_TESTS_SUPPORT_OBJECT_STORE_H_

#include <cstdio>
#include <ctime>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/remote/http/url.h"
#include "io/remote/s3/credentials.h"
#include "io/remote/s3/sigv4.h"
#include "tests/support/http_server.h"
#include "tests/support/store_wire.h"

namespace sluice::testing {

enum class StoreFault {
  kNone,
  kError500,
  kSlowDown,
  kTimeout400,  // RequestTimeout
  kNoAnswer,    // and nothing done
  kLostAnswer,  // what was asked for is done
  kCut,         // in the middle of the body
  kShort,       // a part of what was asked for, rightly named
  kWrongPlace,  // as many bytes, from elsewhere, so named
  kErrorIn200,  // and nothing done
  kForbidden,   // 403
  kExpired,     // 400, of the session token
  kReplace,     // the object by as many "!", before
};

// What it makes of If-None-Match and If-Match where objects are changed.
enum class Conditions {
  kHonoured,
  kRefused,  // NotImplemented
  kIgnored,
  kRefusedToDelete,  // as Amazon did first
};

struct StoredObject {
  std::string bytes, etag;
  std::map<std::string, std::string> metadata;  // x-amz-meta-...
  std::time_t put = 0;
};

// One bucket, "b", at the endpoint of `server()`, by paths. Refuses requests
// whose signature does not fit what arrived. Thread-safe.
class ObjectStore {
 public:
  // Of a request, counted from 0 over all.
  using Faults = std::function<StoreFault(const ServedRequest&, int number)>;

  ObjectStore() : server_([this](const auto& r) { return Serve(r); }) {}

  // What a client's settings are made of.
  remote::Environment environment() const {
    const std::string url = server_.url();
    return [url](std::string_view name) -> std::optional<std::string> {
      if (name == "AWS_ACCESS_KEY_ID") return "AKIDEXAMPLE";
      if (name == "AWS_SECRET_ACCESS_KEY") return "hush-hush";
      if (name == "AWS_SESSION_TOKEN") return "token/+=";
      if (name == "AWS_REGION") return "eu-test-1";
      if (name == "AWS_ENDPOINT_URL_S3") return url;
      return std::nullopt;
    };
  }
  HttpServer& server() { return server_; }

  void Fail(Faults faults) {
    Locked([&] { faults_ = std::move(faults); });
  }
  void SetPage(size_t keys) {
    Locked([&] { page_ = keys; });
  }
  void SetClock(std::time_t ahead) {
    Locked([&] { clock_ = ahead; });
  }
  void SetConditions(Conditions conditions) {
    Locked([&] { conditions_ = conditions; });
  }
  // Answers name no times.
  void SetTimeless(bool is) {
    Locked([&] { timeless_ = is; });
  }
  void SetPrivate(bool is) {
    Locked([&] { private_ = is; });
  }
  // The most bytes that are copied by one request: Amazon's 5 GiB at first.
  void SetCopyLimit(size_t bytes) {
    Locked([&] { copy_limit_ = bytes; });
  }

  void Put(const std::string& key, std::string bytes) {
    Locked([&] { Store(key, std::move(bytes), {}); });
  }
  bool Has(const std::string& key) {
    bool has = false;
    Locked([&] { has = objects_.contains(key); });
    return has;
  }
  StoredObject Get(const std::string& key) {
    StoredObject object;
    Locked([&] { object = objects_.at(key); });
    return object;
  }
  size_t OpenUploads() {
    size_t n = 0;
    Locked([&] { n = uploads_.size(); });
    return n;
  }
  // How many requests of this kind there were: "GET", "PUT", "LIST", "BEGIN",
  // "PART", "PARTCOPY", "COMPLETE", "ABORT", "COPY", ...
  int Count(const std::string& kind) {
    int n = 0;
    Locked([&] { n = counts_[kind]; });
    return n;
  }
  void ResetCounts() {
    Locked([&] { counts_.clear(); });
  }
  // The largest number of requests that were being answered at a time.
  int MostAtOnce() { return most_; }

 private:
  struct Part {
    std::string bytes, etag;
  };
  struct Upload {
    std::string key;
    std::map<std::string, std::string> metadata;
    std::map<int, Part> parts;
  };
  using Query = std::map<std::string, std::string>;

  template <typename Fn>
  void Locked(Fn fn) {
    const std::lock_guard lock(mutex_);
    fn();
  }

  ServedAnswer Serve(const ServedRequest& request) {
    const int now = ++at_once_;
    int most = most_;
    while (now > most && !most_.compare_exchange_weak(most, now)) {
    }
    ServedAnswer answer = AnswerTo(request);
    --at_once_;
    return answer;
  }

  ServedAnswer AnswerTo(const ServedRequest& request) {
    const std::lock_guard lock(mutex_);
    const std::string path =
        Decoded(request.target.substr(0, request.target.find('?')));
    const Query query = QueryOf(request.target);
    const StoreFault fault =
        faults_ ? faults_(request, number_++) : StoreFault::kNone;
    static const std::map<StoreFault, std::pair<int, const char*>> errors = {
        {StoreFault::kError500, {500, "InternalError"}},
        {StoreFault::kSlowDown, {503, "SlowDown"}},
        {StoreFault::kTimeout400, {400, "RequestTimeout"}},
        {StoreFault::kErrorIn200, {200, "InternalError"}},
        {StoreFault::kForbidden, {403, "AccessDenied"}},
        {StoreFault::kExpired, {400, "ExpiredToken"}}};
    if (const auto error = errors.find(fault); error != errors.end()) {
      return StoreError(error->second.first, error->second.second);
    }
    if (fault == StoreFault::kNoAnswer) return {.no_answer = true};
    if (ServedAnswer refused = Check(request, path, query);
        refused.status != 200) {
      return refused;
    }
    if (fault == StoreFault::kReplace) {
      Store(path.substr(3),
            std::string(objects_.at(path.substr(3)).bytes.size(), '!'), {});
    }
    ServedAnswer answer = Do(request, path, query);
    if (fault == StoreFault::kLostAnswer) answer.no_answer = true;
    if (fault == StoreFault::kCut) answer.cut_after = answer.body.size() / 2;
    if (fault == StoreFault::kShort && answer.status == 206) Shorten(&answer);
    if (fault == StoreFault::kWrongPlace && answer.status == 206) {
      answer.headers["Content-Range"].replace(0, 6, "bytes 1");
    }
    return answer;
  }

  // By a byte; where there is but one, nothing.
  static void Shorten(ServedAnswer* answer) {
    std::string& range = answer->headers["Content-Range"];
    const size_t dash = range.find('-'), slash = range.find('/');
    const size_t last = std::stoul(range.substr(dash + 1, slash - dash - 1));
    if (answer->body.size() < 2) return;
    answer->body.pop_back();
    range = fmt::format("{}{}{}", range.substr(0, dash + 1), last - 1,
                        range.substr(slash));
  }

  std::time_t Now() const { return std::time(nullptr) + clock_; }

  ServedAnswer Check(const ServedRequest& request, const std::string& path,
                     const Query& query) {
    if (private_) return StoreError(403, "AccessDenied");
    if (request.Header("authorization").empty()) {
      return StoreError(403, "AccessDenied");
    }
    const std::time_t now = Now();
    if (std::abs(TimeOf(request) - now) > 15 * 60) {
      ServedAnswer answer = StoreError(403, "RequestTimeTooSkewed");
      answer.headers["Date"] = HttpDate(now);
      return answer;
    }
    if (SignatureFits(request, path, query)) return {};
    return StoreError(403, "SignatureDoesNotMatch");
  }

  ServedAnswer Do(const ServedRequest& request, const std::string& path,
                  const Query& query) {
    if (path != "/b" && !path.starts_with("/b/")) {
      return StoreError(404, "NoSuchBucket");
    }
    const std::string key = path.size() > 3 ? path.substr(3) : "";
    const bool get = request.method == "GET";
    if (get && query.contains("list-type")) return List(query);
    if (get || request.method == "HEAD") return Read(request, key);
    if (request.method == "DELETE" && !query.contains("uploadId")) {
      ++counts_["DELETE"];
      if (auto refused = Unmet(request, key)) return *refused;
      objects_.erase(key);
      return {.status = 204};
    }
    if (request.method == "PUT" && query.empty()) return Write(request, key);
    return Multipart(request, key, query);
  }

  ServedAnswer Read(const ServedRequest& request, const std::string& key) {
    ++counts_[request.method];
    const auto found = objects_.find(key);
    if (found == objects_.end()) return StoreError(404, "NoSuchKey");
    const StoredObject& object = found->second;
    const std::string match = request.Header("if-match");
    if (!match.empty() && match != object.etag) {
      return StoreError(412, "PreconditionFailed");
    }
    ServedAnswer answer;
    answer.headers = object.metadata;
    answer.headers["ETag"] = object.etag;
    if (!timeless_) {
      answer.headers["Last-Modified"] = HttpDate(object.put);
      answer.headers["Date"] = HttpDate(Now());
    }
    answer.body = object.bytes;
    const std::string range = request.Header("range");
    if (range.empty()) return answer;
    const size_t dash = range.find('-');
    const size_t first = std::stoul(range.substr(6, dash - 6));
    if (first >= object.bytes.size()) {
      answer = StoreError(416, "InvalidRange");
      answer.headers["Content-Range"] =
          fmt::format("bytes */{}", object.bytes.size());
      return answer;
    }
    const std::string end = range.substr(dash + 1);
    const size_t last = std::min(end.empty() ? SIZE_MAX : std::stoul(end),
                                 object.bytes.size() - 1);
    answer.status = 206;
    answer.body = object.bytes.substr(first, last - first + 1);
    answer.headers["Content-Range"] =
        fmt::format("bytes {}-{}/{}", first, last, object.bytes.size());
    return answer;
  }

  void Store(const std::string& key, std::string bytes,
             std::map<std::string, std::string> metadata) {
    // Of the content, as S3 has it: the same bytes have the same one.
    const std::string etag =
        "\"" + remote::Sha256Hex(bytes).ValueOrThrow().substr(0, 32) + "\"";
    objects_[key] = {std::move(bytes), etag, std::move(metadata), Now()};
  }

  // The answer where a condition does not hold.
  std::optional<ServedAnswer> Unmet(const ServedRequest& request,
                                    const std::string& key) {
    const std::string match = request.Header("if-match");
    const std::string none = request.Header("if-none-match");
    if (match.empty() && none.empty()) return std::nullopt;
    if (conditions_ == Conditions::kIgnored) return std::nullopt;
    if (conditions_ == Conditions::kRefused ||
        (conditions_ == Conditions::kRefusedToDelete &&
         request.method == "DELETE") ||
        (!none.empty() && none != "*")) {
      return StoreError(501, "NotImplemented");
    }
    const auto found = objects_.find(key);
    if (!none.empty()) {
      if (found == objects_.end()) return std::nullopt;
      return StoreError(412, "PreconditionFailed");
    }
    if (found == objects_.end()) return StoreError(404, "NoSuchKey");
    if (found->second.etag == match) return std::nullopt;
    return StoreError(412, "PreconditionFailed");
  }

  ServedAnswer Write(const ServedRequest& request, const std::string& key) {
    if (request.Header("x-amz-copy-source").empty()) {
      ++counts_["PUT"];
      if (auto refused = Unmet(request, key)) return *refused;
      Store(key, request.body, {});
      return {.headers = {{"ETag", objects_[key].etag}}};
    }
    ++counts_["COPY"];
    const auto found = objects_.find(CopiedKey(request));
    if (found == objects_.end()) return StoreError(404, "NoSuchKey");
    if (found->second.bytes.size() > copy_limit_) {
      return StoreError(400, "InvalidRequest");
    }
    Store(key, found->second.bytes, {});
    return {.body = fmt::format("<CopyObjectResult><ETag>{}</ETag>"
                                "</CopyObjectResult>",
                                objects_[key].etag)};
  }

  // UploadPartCopy: the ETag is in the body alone.
  ServedAnswer CopyPart(const ServedRequest& request, Part* part) {
    ++counts_["PARTCOPY"];
    const auto found = objects_.find(CopiedKey(request));
    if (found == objects_.end()) return StoreError(404, "NoSuchKey");
    const StoredObject& object = found->second;
    const std::string match = request.Header("x-amz-copy-source-if-match");
    if (!match.empty() && match != object.etag) {
      return StoreError(412, "PreconditionFailed");
    }
    const std::string range = request.Header("x-amz-copy-source-range");
    size_t first = 0, last = 0;
    if (std::sscanf(range.c_str(), "bytes=%zu-%zu", &first, &last) != 2 ||
        last < first || last >= object.bytes.size() ||
        last - first >= copy_limit_) {
      return StoreError(400, "InvalidArgument");
    }
    part->bytes = object.bytes.substr(first, last - first + 1);
    return {.body = fmt::format("<CopyPartResult><ETag>&quot;{}&quot;</ETag>"
                                "</CopyPartResult>",
                                part->etag)};
  }

  static std::map<std::string, std::string> Metadata(
      const ServedRequest& request) {
    std::map<std::string, std::string> metadata;
    for (const auto& [name, value] : request.headers) {
      if (name.starts_with("x-amz-meta-")) metadata[name] = value;
    }
    return metadata;
  }

  ServedAnswer Multipart(const ServedRequest& request, const std::string& key,
                         const Query& query) {
    if (query.contains("uploads")) {
      ++counts_["BEGIN"];
      const std::string id = fmt::format("id/{}+", ++version_);
      uploads_[id] = {key, Metadata(request), {}};
      return {.body = fmt::format("<InitiateMultipartUploadResult><UploadId>{}"
                                  "</UploadId></InitiateMultipartUploadResult>",
                                  id)};
    }
    const std::string id = query.at("uploadId");
    const auto found = uploads_.find(id);
    if (found == uploads_.end() || found->second.key != key) {
      return StoreError(404, "NoSuchUpload");
    }
    Upload& upload = found->second;
    if (request.method == "PUT") {
      const int number = std::stoi(query.at("partNumber"));
      Part part{request.body, fmt::format("p{}", number)};
      ServedAnswer answer{.headers = {{"ETag", '"' + part.etag + '"'}}};
      if (request.Header("x-amz-copy-source").empty()) {
        ++counts_["PART"];
      } else {
        part.etag = fmt::format("copied{}", number);
        answer = CopyPart(request, &part);
      }
      if (answer.status == 200) upload.parts[number] = std::move(part);
      return answer;
    }
    if (request.method == "DELETE") {
      ++counts_["ABORT"];
      uploads_.erase(found);
      return {.status = 204};
    }
    ++counts_["COMPLETE"];
    std::string bytes, wanted;
    for (size_t i = 1; i <= upload.parts.size(); ++i) {
      const auto part = upload.parts.find(static_cast<int>(i));
      if (part == upload.parts.end()) return StoreError(400, "InvalidPart");
      bytes += part->second.bytes;
      if (request.body.find(part->second.etag) == std::string::npos) {
        return StoreError(400, "InvalidPart");
      }
    }
    Store(key, std::move(bytes), upload.metadata);
    uploads_.erase(found);
    return {.body = fmt::format("<CompleteMultipartUploadResult><ETag>{}</ETag>"
                                "</CompleteMultipartUploadResult>",
                                objects_[key].etag)};
  }

  ServedAnswer List(const Query& query) {
    ++counts_["LIST"];
    const std::string prefix = query.at("prefix");
    std::set<std::pair<std::string, bool>> found;  // key, is it a folder
    for (const auto& [key, object] : objects_) {
      if (!key.starts_with(prefix)) continue;
      const size_t slash = key.find('/', prefix.size());
      found.emplace(
          key.substr(0, slash == std::string::npos ? slash : slash + 1),
          slash != std::string::npos);
    }
    size_t most = page_;
    if (query.contains("max-keys")) {
      most = std::min<size_t>(most, std::stoul(query.at("max-keys")));
    }
    const std::string after = query.contains("continuation-token")
                                  ? query.at("continuation-token").substr(1)
                                  : "";
    std::string body =
        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
        "<EncodingType>url</EncodingType>";
    std::string last, rest = "<IsTruncated>false</IsTruncated>";
    for (const auto& [key, folder] : found) {
      if (!after.empty() && key <= after) continue;
      if (most-- == 0) {
        rest = fmt::format(
            "<IsTruncated>true</IsTruncated><NextContinuationToken>+{}"
            "</NextContinuationToken>",
            last);
        break;
      }
      last = key;
      const std::string encoded = remote::EncodeQueryPart(key);
      body +=
          folder ? fmt::format(
                       "<CommonPrefixes><Prefix>{}</Prefix>"
                       "</CommonPrefixes>",
                       encoded)
                 : fmt::format(
                       "<Contents><Key>{}</Key><Size>{}</Size>"
                       "<ETag>{}</ETag></Contents>",
                       encoded, objects_[key].bytes.size(), objects_[key].etag);
    }
    return {.body = body + rest + "</ListBucketResult>"};
  }

  std::mutex mutex_;
  std::map<std::string, StoredObject> objects_;
  std::map<std::string, Upload> uploads_;
  std::map<std::string, int> counts_;
  Faults faults_;
  size_t page_ = 1000, copy_limit_ = size_t{5} << 30;
  std::time_t clock_ = 0;
  Conditions conditions_ = Conditions::kHonoured;
  bool private_ = false, timeless_ = false;
  int number_ = 0, version_ = 0;
  std::atomic<int> at_once_ = 0, most_ = 0;
  HttpServer server_;  // last: its threads use the rest
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_OBJECT_STORE_H_
