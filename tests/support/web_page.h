// A page of a web server, with what servers of files do and leave, as a file
// system of io/remote.
#ifndef SLUICE_TESTS_SUPPORT_WEB_PAGE_H_
#define SLUICE_TESTS_SUPPORT_WEB_PAGE_H_

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "io/remote/http/curl_client.h"
#include "io/remote/web_files.h"
#include "tests/support/http_server.h"
#include "tests/support/slept_clock.h"

namespace sluice::testing {

// At every path but "/missing...", "/forbidden..." and "/moved...".
struct ServedPage {
  bool ranges = true;
  bool length = true;  // says how long a whole body is
  std::string etag = "\"e\"";
  std::string modified = "Sun, 06 Nov 1994 08:49:37 GMT";
  std::string body;
  std::string claimed;  // to be the size, where it is not the body's
  ServedRequest last;   // what was asked

  ServedAnswer operator()(const ServedRequest& request) {
    last = request;
    if (request.target.starts_with("/missing")) return {.status = 404};
    if (request.target.starts_with("/forbidden")) return {.status = 403};
    if (request.target.starts_with("/moved")) {
      return {.status = 302, .headers = {{"Location", "/page?secret=1"}}};
    }
    if (request.method != "GET") return {.status = 403};
    ServedAnswer answer{.body = body, .no_length = !length};
    if (!etag.empty()) answer.headers["ETag"] = etag;
    if (!modified.empty()) answer.headers["Last-Modified"] = modified;
    const std::string range = request.Header("range");
    if (!ranges || range.empty()) return answer;
    const size_t dash = range.find('-');
    const size_t first = std::stoul(range.substr(6, dash - 6));
    if (first >= body.size()) {
      return {.status = 416,
              .headers = {
                  {"Content-Range", fmt::format("bytes */{}", body.size())}}};
    }
    const std::string end = range.substr(dash + 1);
    const size_t last_byte =
        std::min(end.empty() ? SIZE_MAX : std::stoul(end), body.size() - 1);
    answer.status = 206;
    answer.body = body.substr(first, last_byte - first + 1);
    answer.headers["Content-Range"] =
        fmt::format("bytes {}-{}/{}", first, last_byte,
                    claimed.empty() ? std::to_string(body.size()) : claimed);
    return answer;
  }
};

// The page is `size` bytes "0123..." at first.
struct WebFixture {
  explicit WebFixture(size_t size) {
    for (size_t i = 0; i < size; ++i) {
      body += static_cast<char>('0' + i % 10);
    }
    Change([&](ServedPage& fresh) { fresh.body = body; });
  }
  std::string Url(const std::string& rest = "/page?secret=hush") const {
    return server.url() + rest;
  }
  // With the page, which the server's threads use too.
  template <typename Fn>
  void Change(Fn fn) {
    const std::lock_guard lock(mutex);
    fn(page);
  }
  ServedRequest Last() {
    const std::lock_guard lock(mutex);
    return page.last;
  }
  std::mutex mutex;
  ServedPage page;
  std::string body;  // the page's at first
  HttpServer server{[this](const ServedRequest& r) {
    const std::lock_guard lock(mutex);
    return page(r);
  }};
  std::unique_ptr<remote::HttpClient> client =
      remote::MakeCurlClient().ValueOrThrow();
  SleptClock clock;
  remote::WebFiles files{
      *client,
      clock,
      {},
      {.head = 100, .block = 200, .blocks_ahead = 2, .part = 300}};
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_WEB_PAGE_H_
