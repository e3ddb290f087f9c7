// Which answers are asked for again, when, and how long.
#include "io/remote/http/retry.h"

#include <doctest/doctest.h>

#include <deque>

#include "tests/support/answering_client.h"
#include "tests/support/error_text.h"
#include "tests/support/slept_clock.h"

namespace sluice::remote {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::SleptClock;

// Answers from a list, the last one for ever.
class ScriptedClient : public HttpClient {
 public:
  Result<HttpResponse> Send(const HttpRequest& request) override {
    ++sent;
    timeouts.push_back(request.timeout);
    Result<HttpResponse> answer = answers.front();
    if (answers.size() > 1) answers.pop_front();
    return answer;
  }
  std::deque<Result<HttpResponse>> answers;
  std::vector<milliseconds> timeouts;
  int sent = 0;
};

HttpResponse Answer(int status, std::string body = "",
                    NamedValues headers = {}) {
  return {
      .status = status, .headers = std::move(headers), .body = std::move(body)};
}

std::string Xml(const std::string& code) {
  return "<Error><Code>" + code + "</Code><Message>m</Message></Error>";
}

struct Fixture {
  Result<HttpResponse> Send(const Retrier::Check& check = nullptr) {
    return retrier.Send(
        "cannot try",
        [&](std::time_t now) -> Result<HttpRequest> {
          times.push_back(now);
          return HttpRequest{.url = "http://host/"};
        },
        check);
  }
  ScriptedClient client;
  SleptClock clock;
  RetryPolicy policy{.deadline = seconds(100)};
  Retrier retrier{client, clock, policy};
  std::vector<std::time_t> times;
};

TEST_CASE("retry: what passes is asked for again") {
  const std::vector<Result<HttpResponse>> passing = {
      Unavailable("connection reset"),
      Answer(408),
      Answer(429),
      Answer(500, "<html>"),
      Answer(502),
      Answer(503, "not xml"),
      Answer(504),
  };
  for (const auto& first : passing) {
    Fixture f;
    f.client.answers = {first, first, Answer(200, "x")};
    const auto response = f.Send();
    REQUIRE(response.ok());
    CHECK(response->body == "x");
    CHECK(f.client.sent == 3);
    CHECK(f.clock.sleeps() == 2);
  }
}

#ifdef SLUICE_HAVE_EXPAT
TEST_CASE("retry: S3's codes for the same with other statuses") {
  for (const char* code : {"RequestTimeout", "SlowDown", "OperationAborted"}) {
    Fixture f;
    f.client.answers = {Answer(400, Xml(code)), Answer(200)};
    CHECK(f.Send().ok());
    CHECK(f.client.sent == 2);
  }
}
#endif

TEST_CASE("retry: what stays is an answer at once") {
  for (const int status : {200, 206, 301, 400, 401, 403, 404, 412, 416, 501}) {
    Fixture f;
    f.client.answers = {Answer(status)};
    const auto response = f.Send();
    REQUIRE(response.ok());
    CHECK(response->status == status);
    CHECK(f.client.sent == 1);
  }
  Fixture f;
  f.client.answers = {FailedPrecondition("no trust")};
  const Status error = f.Send().status();
  CHECK(error.code() == Code::kUnavailable);
  CHECK(error.message() == "cannot try: no trust");
  CHECK(f.client.sent == 1);
}

TEST_CASE("retry: what a check finds wrong is asked for again") {
  Fixture f;
  f.client.answers = {Answer(200, "bad"), Answer(200, "good")};
  const auto response =
      f.Send([](const HttpResponse& answer) -> std::optional<std::string> {
        if (answer.body == "good") return std::nullopt;
        return "it is bad";
      });
  REQUIRE(response.ok());
  CHECK(response->body == "good");
  // Refusals are not for it to judge.
  f.client.answers = {Answer(404)};
  CHECK(f.Send([](const HttpResponse&) { return std::optional("no"); }).ok());
}

TEST_CASE("retry: waits grow to the longest, until the deadline") {
  Fixture f;
  f.client.answers = {Answer(404), Answer(503, "")};
  REQUIRE(f.Send().ok());  // the server is there
  const auto begin = f.clock.Slept();
  const Status error = f.Send().status();
  CHECK(error.code() == Code::kUnavailable);
  CHECK(Contains(error.message(), "cannot try: status 503"));
  const auto slept = f.clock.Slept() - begin;
  CHECK(slept <= seconds(100));
  CHECK(slept > seconds(60));  // another wait would have been too long
  // 0.2, 0.4, ... 12.8 s are 25.4 s at most, then 20 s each.
  CHECK(f.client.sent >= 1 + 8 + 2);
  CHECK(f.client.sent <= 1 + 8 + 12);
  // The time for a request is what is left.
  CHECK(f.client.timeouts[1] == seconds(100));
  CHECK(f.client.timeouts.back() == seconds(100) - slept);
}

TEST_CASE("retry: a server that never answered is given up soon") {
  Fixture f;
  f.client.answers = {Unavailable("no such host")};
  const Status error = f.Send().status();
  CHECK(error.code() == Code::kUnavailable);
  CHECK(Contains(error.message(), "no such host, after 4 tries"));
  CHECK(f.clock.Slept() < seconds(2));
  // One that has is waited for.
  f.client.answers = {Answer(200)};
  CHECK(f.Send().ok());
  f.client.answers = {Unavailable("gone")};
  f.client.sent = 0;
  CHECK(!f.Send().ok());
  CHECK(f.client.sent > 8);
}

TEST_CASE("retry: Retry-After is heeded, in seconds or as a date") {
  Fixture f;
  f.client.answers = {Answer(503, "", {{"retry-after", "30"}}), Answer(200)};
  CHECK(f.Send().ok());
  CHECK(f.clock.Slept() == seconds(30));
  // Longer than there is time: given up at once.
  f.client.answers = {Answer(503, "", {{"retry-after", "1000"}}), Answer(200)};
  CHECK(f.Send().status().code() == Code::kUnavailable);
  CHECK(f.clock.Slept() == seconds(30));
  // Nonsense: the usual wait.
  for (const char* text : {"-5", "soon", "99999999999999999999999", "",
                           "Sun, 06 Nov 1994 08:49:37 GMT"}) {
    Fixture g;
    g.client.answers = {Answer(503, "", {{"retry-after", text}}), Answer(200)};
    CHECK(g.Send().ok());
    CHECK(g.clock.Slept() <= seconds(1));
  }
}

TEST_CASE("retry: waits are between the half and the whole, by the seed") {
  std::vector<milliseconds> all;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    ScriptedClient client;
    SleptClock clock;
    Retrier retrier(client, clock,
                    {.first_wait = milliseconds(1000), .seed = seed});
    client.answers = {Answer(503), Answer(200)};
    CHECK(retrier
              .Send("",
                    [](std::time_t) -> Result<HttpRequest> {
                      return HttpRequest();
                    })
              .ok());
    all.push_back(clock.Slept());
  }
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  CHECK(*least >= milliseconds(500));
  CHECK(*least < milliseconds(600));
  CHECK(*most <= milliseconds(1000));
  CHECK(*most > milliseconds(900));
}

#ifdef SLUICE_HAVE_EXPAT
TEST_CASE("retry: the server's clock is used where it refuses this one") {
  const NamedValues date = {{"date", "Sun, 06 Nov 1994 08:49:37 GMT"}};
  constexpr std::time_t kServer = 784111777;
  for (const std::string& body : {Xml("RequestTimeTooSkewed"), std::string()}) {
    CAPTURE(body);
    Fixture f;
    f.client.answers = {Answer(403, body, date), Answer(200)};
    REQUIRE(f.Send().ok());
    REQUIRE(f.times.size() == 2);
    CHECK(f.times[1] == kServer);
    CHECK(f.clock.sleeps() == 0);
    // Later requests begin with it.
    REQUIRE(f.Send().ok());
    CHECK(f.times[2] == kServer);
  }
  Fixture f;
  f.client.answers = {Answer(403, Xml("RequestTimeTooSkewed"), date)};
  const Status error = f.Send().status();
  CHECK(error.code() == Code::kUnavailable);
  CHECK(Contains(error.message(), "clock"));
  CHECK(f.client.sent == 2);
  // Another refusal with a date is a refusal.
  Fixture g;
  g.client.answers = {Answer(403, Xml("AccessDenied"), date)};
  CHECK(g.Send()->status == 403);
  CHECK(g.client.sent == 1);
}

// Of a HEAD, whose answers name no code.
TEST_CASE("retry: the clock may have been set since a request was made") {
  constexpr std::time_t kServer = 784111777;
  testing::AnsweringClient client;
  SleptClock clock;
  Retrier retrier(client, clock, {});
  std::vector<std::time_t> times;
  const auto send = [&] {
    return retrier.Send("cannot try",
                        [&](std::time_t now) -> Result<HttpRequest> {
                          times.push_back(now);
                          return HttpRequest{.url = "http://host/"};
                        });
  };
  client.answer = [&](const HttpRequest&) -> Result<HttpResponse> {
    if (times.back() == kServer) return Answer(200);
    if (times.size() == 1) {  // another, from begin to end
      CHECK(send()->status == 200);
    }
    return Answer(403, "", {{"date", "Sun, 06 Nov 1994 08:49:37 GMT"}});
  };
  CHECK(send()->status == 200);
  CHECK(times.size() == 4);
}
#endif

}  // namespace
}  // namespace sluice::remote
