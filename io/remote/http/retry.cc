#include "io/remote/http/retry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "engine/parse_number.h"
#include "io/counter_random.h"
#include "io/remote/http/s3_error.h"
#include "io/remote/http/url.h"

namespace sluice::remote {
namespace {

using std::chrono::milliseconds;

// "503 Slow Down (SlowDown: Please reduce your request rate.)"
std::string Named(const HttpResponse& response, const S3Error& error) {
  std::string text = fmt::format("status {}", response.status);
  if (!error.code.empty()) {
    text += fmt::format(" ({}: {})", error.code, error.message);
  }
  return text;
}

// Why this answer may be another one next time; none where it will not be.
std::optional<std::string> Passing(const HttpResponse& response,
                                   const Retrier::Check& check) {
  constexpr std::array kStatuses = {408, 429, 500, 502, 503, 504};
  constexpr std::array<std::string_view, 6> kCodes = {
      "RequestTimeout",   "SlowDown",           "InternalError",
      "OperationAborted", "ServiceUnavailable", "ThrottlingException"};
  if (response.ok()) {
    return check != nullptr ? check(response) : std::nullopt;
  }
  const S3Error error = ParseS3Error(response.body);
  const bool again =
      std::count(kStatuses.begin(), kStatuses.end(), response.status) > 0 ||
      std::count(kCodes.begin(), kCodes.end(), error.code) > 0;
  if (!again) return std::nullopt;
  return Named(response, error);
}

// What the server asks to wait for; none at most.
milliseconds RetryAfter(const HttpResponse& response, std::time_t now) {
  constexpr int64_t kMost = 24 * 3600;
  const std::string_view text = response.Header("retry-after");
  int64_t seconds = 0;
  if (const auto count = ParseWhole<uint64_t>(text)) {
    seconds = static_cast<int64_t>(std::min<uint64_t>(*count, kMost));
  } else if (const auto date = ParseHttpDate(text)) {
    seconds = std::clamp<int64_t>(*date - now, 0, kMost);
  }
  return std::chrono::seconds(seconds);
}

// "https://host:port"
std::string ServerOf(const HttpRequest& request) {
  const Result<Url> url = ParseUrl(request.url);
  return url.ok() ? url->scheme + "://" + url->host : "a server";
}

}  // namespace

Retrier::Retrier(HttpClient& client, Clock& clock, const RetryPolicy& policy)
    : client_(client), clock_(clock), policy_(policy), outage_(clock) {}

milliseconds Retrier::Wait(int tries) {
  milliseconds wait = policy_.first_wait;
  for (int i = 1; i < tries && wait < policy_.longest_wait; ++i) wait *= 2;
  wait = std::min(wait, policy_.longest_wait);
  const double part = CounterRandom(HashKey(policy_.seed, waits_++)).Fraction();
  return milliseconds(static_cast<int64_t>((0.5 + 0.5 * part) *
                                           static_cast<double>(wait.count())));
}

bool Retrier::RefusesTime(const HttpResponse& response, int64_t used) {
  // Five minutes fewer than what S3 allows. The answer to a HEAD has no body,
  // so no code.
  constexpr int64_t kAllowed = 10 * 60;
  if (response.status != 403 && response.status != 400) return false;
  const S3Error error = ParseS3Error(response.body);
  const auto date = ParseHttpDate(response.Header("date"));
  if (!date) return false;
  const int64_t off = *date - clock_.Time();
  const bool refused = error.code == "RequestTimeTooSkewed" ||
                       (error.code.empty() && std::abs(off - used) > kAllowed);
  if (refused) clock_error_ = off;
  return refused;
}

Result<HttpResponse> Retrier::Send(std::string_view what, const Make& make,
                                   const Check& check) {
  const auto begin = clock_.Now();
  const auto left = [&] {
    return std::chrono::duration_cast<milliseconds>(begin + policy_.deadline -
                                                    clock_.Now());
  };
  bool set_clock = false;
  for (int tries = 1;; ++tries) {
    const int64_t clock_error = clock_error_;
    SLUICE_ASSIGN_OR_RETURN(HttpRequest request,
                            make(clock_.Time() + clock_error));
    request.timeout = std::max(left(), milliseconds(1));
    Result<HttpResponse> response = client_.Send(request);
    std::string reason;
    milliseconds wait = Wait(tries);
    if (response.ok()) {
      answered_ = true;
      if (RefusesTime(*response, clock_error)) {
        if (!set_clock) {
          set_clock = true;
          continue;
        }
        return Unavailable(fmt::format(
            "{}: the server refuses the time of the request; the clock here "
            "is {} seconds from its own",
            what, std::abs(clock_error_)));
      }
      const auto passing = Passing(*response, check);
      if (!passing) {
        if (tries > 1) outage_.Answers(ServerOf(request));
        return response;
      }
      reason = *passing;
      wait = std::max(wait, RetryAfter(*response, clock_.Time()));
    } else {
      const Status& error = response.status();
      if (error.code() != Code::kUnavailable) {
        // No object's fault, so not what FileSystem means by it.
        const bool trust = error.code() == Code::kFailedPrecondition;
        return Status(trust ? Code::kUnavailable : error.code(),
                      fmt::format("{}: {}", what, error.message()));
      }
      reason = error.message();
    }
    const bool unanswered = !answered_ && tries >= policy_.unanswered_tries;
    if (unanswered || wait >= left()) {
      outage_.Ends(ServerOf(request));
      return Unavailable(fmt::format(
          "{}: {}, after {} tries in {:.0f} s", what, reason, tries,
          std::chrono::duration<double>(clock_.Now() - begin).count()));
    }
    const milliseconds since = policy_.deadline - left();
    if (since + wait >= policy_.quiet) {
      outage_.Waits(
          ServerOf(request),
          {.what = what, .reason = reason, .since = since, .left = left()});
    }
    clock_.Sleep(wait);
  }
}

}  // namespace sluice::remote
