// HTTP requests and their answers, as io/remote sends and reads them.
#ifndef SLUICE_IO_REMOTE_HTTP_HTTP_H_
#define SLUICE_IO_REMOTE_HTTP_HTTP_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "io/remote/http/url.h"

namespace sluice::remote {

// More of the body of a refusal (no status 2xx) is not read.
inline constexpr size_t kRefusalBytes = size_t{64} << 10;

struct HttpRequest {
  std::string method = "GET";  // GET, HEAD, PUT, POST or DELETE
  std::string url;             // percent-encoded; "http" or "https"
  NamedValues headers;         // beside Host and Content-Length
  // The body of a PUT or POST; the caller keeps it until Send returns.
  std::string_view body;
  // Bytes of the answer's body to take; where it has more, the rest is left.
  size_t body_limit = size_t{16} << 20;
  // Where the body of an answer with status 2xx goes: body_limit bytes of the
  // caller's, any of which may have been written where there is an error. Null:
  // it goes to HttpResponse::body.
  char* into = nullptr;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // in all
  // Whether to follow redirects, to the same scheme or from http to https. Only
  // for requests that name no secret: their headers go there too.
  bool follow_redirects = false;
};

struct HttpResponse {
  int status = 0;       // such as 200
  NamedValues headers;  // names in lower case
  std::string body;
  size_t placed = 0;  // bytes of the body that are at HttpRequest::into
  bool cut = false;   // the body went on behind body_limit

  // The value of the last header of this lower-case name; empty: none.
  std::string_view Header(std::string_view name) const;
  // Bytes of the body, wherever it is.
  size_t body_bytes() const { return body.size() + placed; }
  bool ok() const { return status >= 200 && status < 300; }
};

// Thread-safe.
class HttpClient {
 public:
  virtual ~HttpClient() = default;

  // Whatever the server answers, refusals too. kUnavailable where there was no
  // answer or only a part of one, so that asking again may help; no other error
  // is worth it: kFailedPrecondition where the server's certificate cannot be
  // trusted, kInvalidArgument for an address or a redirection that is not
  // followed. Messages name the host, not what follows it.
  virtual Result<HttpResponse> Send(const HttpRequest& request) = 0;
};

// Seconds since 1970 of "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, section
// 5.6.7); none for any other form.
std::optional<std::time_t> ParseHttpDate(std::string_view text);

// "https://host" of an address, which is what messages show: what follows it
// may be a signature, which is as good as a password.
std::string_view SchemeAndHost(std::string_view url);

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_HTTP_HTTP_H_
