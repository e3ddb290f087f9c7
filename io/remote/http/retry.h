// Requests that are made again where that may help.
#ifndef SLUICE_IO_REMOTE_HTTP_RETRY_H_
#define SLUICE_IO_REMOTE_HTTP_RETRY_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "io/remote/http/clock.h"
#include "io/remote/http/http.h"
#include "io/remote/http/outage.h"

namespace sluice::remote {

struct RetryPolicy {
  // The wait before the second try; it doubles before each further one. Each
  // wait is a random time between the half and the whole of that.
  std::chrono::milliseconds first_wait{200};
  std::chrono::milliseconds longest_wait = std::chrono::seconds(20);
  std::chrono::milliseconds deadline = std::chrono::minutes(5);  // of all tries
  // Tries as long as there never was an answer: the address is then more likely
  // wrong than the network down.
  int unanswered_tries = 4;
  // How long a request may fail before a note says so (OutageNotes).
  std::chrono::milliseconds quiet = std::chrono::seconds(5);
  uint64_t seed = 0;  // of the waits
};

// Sends requests until there is an answer that another try would not change.
// Tried again: no answer or a part of one; 408, 429, 500, 502, 503, 504, after
// the time that a Retry-After asks for; the error codes by which S3 says the
// same with other statuses; what the caller's Check finds wrong. A server that
// fails for long is said (io/remote/http/outage.h). Thread-safe.
class Retrier {
 public:
  // `client` and `clock` must outlive this.
  Retrier(HttpClient& client, Clock& clock, const RetryPolicy& policy);

  // A request as it is to be sent at this time, seconds since 1970 by the
  // server's clock.
  using Make = std::function<Result<HttpRequest>(std::time_t now)>;
  // The fault of an answer with status 2xx that another try may not have;
  // nullopt: none.
  using Check = std::function<std::optional<std::string>(const HttpResponse&)>;

  // The last answer: a refusal too, unless it is among those above. `what` is
  // for messages: "cannot read 's3://bucket/key'". kUnavailable with the last
  // reason where the tries are used up, at once where the server's certificate
  // is not trusted. Where the server says that the clock here is wrong, its own
  // is used from then on (Date); kUnavailable where it says so again. Other
  // errors of HttpClient, and those of `make`.
  Result<HttpResponse> Send(std::string_view what, const Make& make,
                            const Check& check = nullptr);

 private:
  // The wait before try number `tries` + 1.
  std::chrono::milliseconds Wait(int tries);
  // Sets the clock's error by what a server answered that refuses the time of a
  // request, made with the error `used`; false where it does not. Another
  // request may have set it meanwhile.
  bool RefusesTime(const HttpResponse& response, int64_t used);

  HttpClient& client_;
  Clock& clock_;
  const RetryPolicy policy_;
  OutageNotes outage_;
  std::atomic<bool> answered_ = false;
  std::atomic<uint64_t> waits_ = 0;       // so far
  std::atomic<int64_t> clock_error_ = 0;  // seconds to add to Time()
};

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_HTTP_RETRY_H_
