// An object store that answers as S3 does, and fails on command.
#ifndef SLUICE_TESTS_SUPPORT_OBJECT_STORE_H_
#define SLUICE_TESTS_SUPPORT_OBJECT_STORE_H_

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
  // "PART", "COMPLETE", "ABORT", "COPY", ...
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
  struct Upload {
    std::string key;
    std::map<std::string, std::string> metadata;
    std::map<int, std::string> parts;
  };
  using Query = std::map<std::string, std::string>;

  template <typename Fn>
  void Locked(Fn fn) {
    const std::lock_guard lock(mutex_);
    fn();
  }

  static std::string Decoded(std::string_view text) {
    auto decoded = remote::DecodePercent(text);
    return decoded.ok() ? *decoded : "?";
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
    const size_t mark = request.target.find('?');
    const std::string path = Decoded(request.target.substr(0, mark));
    Query query;
    std::string rest =
        mark == std::string::npos ? "" : request.target.substr(mark + 1);
    while (!rest.empty()) {
      const size_t end = rest.find('&');
      const std::string pair = rest.substr(0, end);
      const size_t equals = pair.find('=');
      query[Decoded(pair.substr(0, equals))] =
          equals == std::string::npos ? "" : Decoded(pair.substr(equals + 1));
      rest = end == std::string::npos ? "" : rest.substr(end + 1);
    }
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
      return Error(error->second.first, error->second.second);
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

  static ServedAnswer Error(int status, const std::string& code) {
    return {.status = status,
            .body = fmt::format("<?xml version=\"1.0\"?>\n<Error><Code>{}"
                                "</Code><Message>of the store</Message>"
                                "</Error>",
                                code)};
  }

  static std::string HttpDate(std::time_t time) {
    char text[64];
    std::tm gmt{};
    gmtime_r(&time, &gmt);
    strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &gmt);
    return text;
  }
  std::time_t Now() const { return std::time(nullptr) + clock_; }

  // Signs what arrived again.
  ServedAnswer Check(const ServedRequest& request, const std::string& path,
                     const Query& query) {
    if (private_) return Error(403, "AccessDenied");
    const std::string given = request.Header("authorization");
    if (given.empty()) return Error(403, "AccessDenied");
    const std::string date = request.Header("x-amz-date");
    std::tm tm{};
    strptime(date.c_str(), "%Y%m%dT%H%M%SZ", &tm);
    const std::time_t time = timegm(&tm), now = Now();
    if (std::abs(time - now) > 15 * 60) {
      ServedAnswer answer = Error(403, "RequestTimeTooSkewed");
      answer.headers["Date"] = HttpDate(now);
      return answer;
    }
    remote::SigningRequest signing;
    signing.method = request.method;
    signing.host = request.Header("host");
    signing.path = path;
    for (const auto& [name, value] : query) {
      signing.query.emplace_back(name, value);
    }
    const size_t begin = given.find("SignedHeaders=") + 14;
    std::string names = given.substr(begin, given.find(',', begin) - begin);
    const std::set<std::string> added = {
        "host", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"};
    while (!names.empty()) {
      const size_t end = names.find(';');
      const std::string name = names.substr(0, end);
      if (!added.contains(name)) {
        signing.headers.emplace_back(name, request.Header(name));
      }
      names = end == std::string::npos ? "" : names.substr(end + 1);
    }
    signing.payload_hash = remote::Sha256Hex(request.body).ValueOrThrow();
    const auto headers =
        remote::Sign(signing, {.region = "eu-test-1"},
                     {"AKIDEXAMPLE", "hush-hush", "token/+="}, time)
            .ValueOrThrow();
    for (const auto& [name, value] : headers) {
      if (request.Header(name) != value) {
        return Error(403, "SignatureDoesNotMatch");
      }
    }
    return {};
  }

  ServedAnswer Do(const ServedRequest& request, const std::string& path,
                  const Query& query) {
    if (path != "/b" && !path.starts_with("/b/")) {
      return Error(404, "NoSuchBucket");
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
    if (found == objects_.end()) return Error(404, "NoSuchKey");
    const StoredObject& object = found->second;
    const std::string match = request.Header("if-match");
    if (!match.empty() && match != object.etag) {
      return Error(412, "PreconditionFailed");
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
      answer = Error(416, "InvalidRange");
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
      return Error(501, "NotImplemented");
    }
    const auto found = objects_.find(key);
    if (!none.empty()) {
      if (found == objects_.end()) return std::nullopt;
      return Error(412, "PreconditionFailed");
    }
    if (found == objects_.end()) return Error(404, "NoSuchKey");
    if (found->second.etag == match) return std::nullopt;
    return Error(412, "PreconditionFailed");
  }

  ServedAnswer Write(const ServedRequest& request, const std::string& key) {
    const std::string source = Decoded(request.Header("x-amz-copy-source"));
    if (source.empty()) {
      ++counts_["PUT"];
      if (auto refused = Unmet(request, key)) return *refused;
      Store(key, request.body, {});
      return {.headers = {{"ETag", objects_[key].etag}}};
    }
    ++counts_["COPY"];
    const auto found = objects_.find(source.substr(3));
    if (found == objects_.end()) return Error(404, "NoSuchKey");
    Store(key, found->second.bytes, {});
    return {.body = fmt::format("<CopyObjectResult><ETag>{}</ETag>"
                                "</CopyObjectResult>",
                                objects_[key].etag)};
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
      return Error(404, "NoSuchUpload");
    }
    Upload& upload = found->second;
    if (request.method == "PUT") {
      ++counts_["PART"];
      const int number = std::stoi(query.at("partNumber"));
      upload.parts[number] = request.body;
      return {.headers = {{"ETag", fmt::format("\"p{}\"", number)}}};
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
      if (part == upload.parts.end()) return Error(400, "InvalidPart");
      bytes += part->second;
      if (request.body.find(fmt::format("p{}", i)) == std::string::npos) {
        return Error(400, "InvalidPart");
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
  size_t page_ = 1000;
  std::time_t clock_ = 0;
  Conditions conditions_ = Conditions::kHonoured;
  bool private_ = false, timeless_ = false;
  int number_ = 0, version_ = 0;
  std::atomic<int> at_once_ = 0, most_ = 0;
  HttpServer server_;  // last: its threads use the rest
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_OBJECT_STORE_H_
