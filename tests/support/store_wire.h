// What requests to an ObjectStore say, and the forms of its answers.
#ifndef SLUICE_TESTS_SUPPORT_STORE_WIRE_H_
#define SLUICE_TESTS_SUPPORT_STORE_WIRE_H_

#include <fmt/format.h>

#include <ctime>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "io/remote/http/url.h"
#include "io/remote/s3/sigv4.h"
#include "tests/support/http_server.h"

namespace sluice::testing {

inline std::string Decoded(std::string_view text) {
  auto decoded = remote::DecodePercent(text);
  return decoded.ok() ? *decoded : "?";
}

// Whether the request makes an object of the parts that were sent.
inline bool CompletesUpload(const ServedRequest& request) {
  return request.method == "POST" &&
         request.target.find("uploads") == std::string::npos;
}

// The parameters of "/path?a=b&c", decoded.
inline std::map<std::string, std::string> QueryOf(const std::string& target) {
  std::map<std::string, std::string> query;
  const size_t mark = target.find('?');
  std::string rest = mark == std::string::npos ? "" : target.substr(mark + 1);
  while (!rest.empty()) {
    const size_t end = rest.find('&');
    const std::string pair = rest.substr(0, end);
    const size_t equals = pair.find('=');
    query[Decoded(pair.substr(0, equals))] =
        equals == std::string::npos ? "" : Decoded(pair.substr(equals + 1));
    rest = end == std::string::npos ? "" : rest.substr(end + 1);
  }
  return query;
}

// The key of the object that a request copies, of bucket "b".
inline std::string CopiedKey(const ServedRequest& request) {
  return Decoded(request.Header("x-amz-copy-source")).substr(3);
}

inline ServedAnswer StoreError(int status, const std::string& code) {
  return {.status = status,
          .body = fmt::format("<?xml version=\"1.0\"?>\n<Error><Code>{}"
                              "</Code><Message>of the store</Message>"
                              "</Error>",
                              code)};
}

inline std::string HttpDate(std::time_t time) {
  char text[64];
  std::tm gmt{};
  gmtime_r(&time, &gmt);
  strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &gmt);
  return text;
}

// The time that a request says it was signed at.
inline std::time_t TimeOf(const ServedRequest& request) {
  const std::string date = request.Header("x-amz-date");
  std::tm tm{};
  strptime(date.c_str(), "%Y%m%dT%H%M%SZ", &tm);
  return timegm(&tm);
}

// Whether the request, of this path and query, both decoded, was signed with
// the store's credentials (ObjectStore::environment): signs what arrived again.
inline bool SignatureFits(const ServedRequest& request, const std::string& path,
                          const std::map<std::string, std::string>& query) {
  remote::SigningRequest signing;
  signing.method = request.method;
  signing.host = request.Header("host");
  signing.path = path;
  for (const auto& [name, value] : query) {
    signing.query.emplace_back(name, value);
  }
  const std::string given = request.Header("authorization");
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
                   {"AKIDEXAMPLE", "hush-hush", "token/+="}, TimeOf(request))
          .ValueOrThrow();
  for (const auto& [name, value] : headers) {
    if (request.Header(name) != value) return false;
  }
  return true;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_STORE_WIRE_H_
