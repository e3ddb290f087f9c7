// What a request is told by a refusal, though another was told it meanwhile.
#if defined(SLUICE_HAVE_CURL) && defined(SLUICE_HAVE_CRYPTO) && \
    defined(SLUICE_HAVE_EXPAT)
#include "io/remote/s3/s3_client.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tests/support/answering_client.h"
#include "tests/support/error_text.h"
#include "tests/support/remote_files.h"

namespace sluice::remote {
namespace {

using testing::AnsweringClient;
using testing::Contains;
using testing::RemoteFiles;

bool Names(const HttpRequest& request, std::string_view header,
           std::string_view value) {
  return std::any_of(request.headers.begin(), request.headers.end(),
                     [&](const auto& named) {
                       return named.first == header && named.second == value;
                     });
}

// The good one, but for the session token "old" until that is `renewed`.
Environment OldUntil(const bool& renewed, const Environment& good) {
  return [&renewed, good](const char* name) -> std::optional<std::string> {
    const bool old = name == std::string_view("AWS_SESSION_TOKEN") && !renewed;
    return old ? "old" : good(name);
  };
}

TEST_CASE("s3: credentials that another request has renewed serve all") {
  RemoteFiles remote;
  remote.store.Put("k", "bytes");
  bool renewed = false;
  AnsweringClient http;
  Retrier retrier(http, remote.clock, {});
  S3Client client(retrier, OldUntil(renewed, remote.store.environment()));
  const auto read = [&] {
    return client.Get("s3://b/k", 0, 5, nullptr, nullptr);
  };
  http.answer = [&](const HttpRequest& request) -> Result<HttpResponse> {
    if (!Names(request, "x-amz-security-token", "old")) {
      return remote.client->Send(request);
    }
    if (!std::exchange(renewed, true)) {  // another, from begin to end
      CHECK(read().ok());
    }
    return HttpResponse{
        .status = 400,
        .body = "<Error><Code>ExpiredToken</Code><Message>m</Message></Error>"};
  };
  const auto piece = read();
  CHECK(renewed);
  REQUIRE_MESSAGE(piece.ok(), piece.status().message());
  CHECK(piece->bytes == "bytes");
}

TEST_CASE("s3: that credentials have expired is noticed by a HEAD, too") {
  for (const int status : {400, 403}) {
    CAPTURE(status);
    RemoteFiles remote;
    remote.store.Put("k", "bytes");
    bool renewed = false;
    AnsweringClient http;
    Retrier retrier(http, remote.clock, {});
    S3Client client(retrier, OldUntil(renewed, remote.store.environment()));
    int refused = 0;
    http.answer = [&](const HttpRequest& request) -> Result<HttpResponse> {
      if (!Names(request, "x-amz-security-token", "old")) {
        return remote.client->Send(request);
      }
      ++refused;
      return HttpResponse{.status = status};  // without a body, as to each HEAD
    };
    // While there are no others another try would be for nothing.
    CHECK_FALSE(client.Head("s3://b/k").ok());
    CHECK(refused == 1);
    renewed = true;
    const auto version = client.Head("s3://b/k");
    CHECK(refused == 2);
    REQUIRE_MESSAGE(version.ok(), version.status().message());
    CHECK(version->size == 5);
  }
}

TEST_CASE("s3: a region that another request was told of serves all") {
  RemoteFiles remote;
  const Environment good = remote.store.environment();
  AnsweringClient http;
  Retrier retrier(http, remote.clock, {});
  S3Client client(retrier, [&](const char* name) -> std::optional<std::string> {
    const bool endpoint = name == std::string_view("AWS_ENDPOINT_URL_S3");
    return endpoint ? std::nullopt : good(name);
  });
  bool told = false;
  http.answer = [&](const HttpRequest& request) -> Result<HttpResponse> {
    if (Contains(request.url, ".eu-north-1.amazonaws.com")) {
      return HttpResponse{.status = 200, .headers = {{"content-length", "5"}}};
    }
    CHECK(Contains(request.url, ".eu-test-1.amazonaws.com"));
    if (!std::exchange(told, true)) {  // another, from begin to end
      CHECK(client.Head("s3://bucket/k").ok());
    }
    return HttpResponse{.status = 301,
                        .headers = {{"x-amz-bucket-region", "eu-north-1"}}};
  };
  const auto version = client.Head("s3://bucket/k");
  CHECK(told);
  REQUIRE_MESSAGE(version.ok(), version.status().message());
  CHECK(version->size == 5);
}

}  // namespace
}  // namespace sluice::remote
#endif
