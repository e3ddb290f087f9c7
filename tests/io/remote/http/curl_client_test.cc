// HTTP by libcurl, against a server that fails on command.
#ifdef SLUICE_HAVE_CURL
#include "io/remote/http/curl_client.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>
#include <random>
#include <thread>

#include "tests/support/error_text.h"
#include "tests/support/free_ports.h"
#include "tests/support/http_server.h"
#include "tests/support/random_bytes.h"

namespace sluice::remote {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::HttpServer;
using testing::ServedAnswer;
using testing::ServedRequest;

std::unique_ptr<HttpClient> Client() {
  return MakeCurlClient({.stall = seconds(1)}).ValueOrThrow();
}

// What arrived, as a text.
ServedAnswer Echo(const ServedRequest& request) {
  std::string text = fmt::format("{} {}\n", request.method, request.target);
  for (const auto& [name, value] : request.headers) {
    if (name != "host") text += fmt::format("{}={}\n", name, value);
  }
  return {.headers = {{"X-Some", "  a b "}}, .body = text + request.body};
}

TEST_CASE("curl: requests arrive as they were made") {
  HttpServer server(Echo);
  const auto client = Client();
  const auto text = [&](const HttpRequest& request) {
    const auto response = client->Send(request);
    REQUIRE(response.ok());
    CHECK(response->status == 200);
    CHECK(response->Header("x-some") == "a b");
    return response->body;
  };
  CHECK(text({.url = server.url() + "/a//b/../%2e/c%20d?q=1&r=%2F"}) ==
        "GET /a//b/../%2e/c%20d?q=1&r=%2F\nuser-agent=sluice\n");
  CHECK(text({.url = server.url(),
              .headers = {{"range", "bytes=1-2"}, {"empty", ""}}}) ==
        "GET /\nempty=\nrange=bytes=1-2\nuser-agent=sluice\n");
  const std::string body("a\0b", 3);
  CHECK(text({.method = "PUT", .url = server.url() + "/k", .body = body}) ==
        "PUT /k\ncontent-length=3\nuser-agent=sluice\n" + body);
  CHECK(text({.method = "PUT", .url = server.url() + "/k"}) ==
        "PUT /k\ncontent-length=0\nuser-agent=sluice\n");
  CHECK(text({.method = "POST",
              .url = server.url() + "/k",
              .headers = {{"content-type", "application/xml"}},
              .body = "x"}) ==
        "POST /k\ncontent-length=1\ncontent-type=application/xml\n"
        "user-agent=sluice\nx");
  CHECK(text({.method = "DELETE", .url = server.url() + "/k"}) ==
        "DELETE /k\nuser-agent=sluice\n");
  CHECK(text({.method = "HEAD", .url = server.url() + "/k"}) == "");
  // What was set for one request is gone in the next.
  CHECK(text({.url = server.url()}) == "GET /\nuser-agent=sluice\n");
  CHECK(server.connections() == 1);
}

TEST_CASE("curl: bodies of every size, there and back, by many threads") {
  HttpServer server([](const ServedRequest& request) -> ServedAnswer {
    return {.body = request.body};
  });
  const auto client = Client();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (const size_t size : {0, 1, 1000, 70'000, 3'000'000}) {
        const std::string body(size, static_cast<char>('a' + t));
        const auto response = client->Send(
            {.method = "PUT", .url = server.url() + "/", .body = body});
        wrong += !response.ok() || response->body != body;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(server.connections() <= 8);
}

TEST_CASE("curl: no more of a body is taken than was asked for") {
  std::atomic<int> status = 200;
  HttpServer server([&](const ServedRequest&) -> ServedAnswer {
    return {.status = status, .body = std::string(200'000, 'x')};
  });
  const auto client = Client();
  for (const size_t limit : {0, 1, 199'999}) {
    const auto cut = client->Send({.url = server.url(), .body_limit = limit});
    REQUIRE(cut.ok());
    CHECK(cut->status == 200);
    CHECK(cut->body.size() == limit);
    CHECK(cut->cut);
  }
  const auto whole = client->Send({.url = server.url(), .body_limit = 200'000});
  REQUIRE(whole.ok());
  CHECK(whole->body.size() == 200'000);
  CHECK(!whole->cut);
  status = 404;  // what it says of itself is worth reading
  const auto refusal = client->Send({.url = server.url(), .body_limit = 1});
  REQUIRE(refusal.ok());
  CHECK(refusal->status == 404);
  CHECK(refusal->body.size() == kRefusalBytes);
}

TEST_CASE("curl: a body goes where the caller says, a refusal's does not") {
  std::atomic<int> status = 206;
  std::mt19937 random(1);
  const std::string body = testing::RandomBytes(random, 1'000'000);
  HttpServer server([&](const ServedRequest&) -> ServedAnswer {
    return {.status = status, .body = body};
  });
  const auto client = Client();
  for (const size_t limit : {0, 1, 300'000, 999'999, 1'000'000, 1'000'001}) {
    CAPTURE(limit);
    const size_t wanted = std::min(limit, body.size());
    std::string into(limit + 1, '?');
    const auto response = client->Send(
        {.url = server.url(), .body_limit = limit, .into = into.data()});
    REQUIRE(response.ok());
    CHECK(response->body.empty());
    CHECK(response->placed == wanted);
    CHECK(response->body_bytes() == wanted);
    CHECK(response->cut == (limit < body.size()));
    const bool same = into.substr(0, wanted) == body.substr(0, wanted);
    CHECK(same);
    CHECK(into.substr(wanted) == std::string(limit + 1 - wanted, '?'));
  }
  status = 503;
  std::string into(10, '?');
  const auto refusal = client->Send(
      {.url = server.url(), .body_limit = 10, .into = into.data()});
  REQUIRE(refusal.ok());
  CHECK(refusal->placed == 0);
  CHECK(refusal->body.size() == kRefusalBytes);
  CHECK(into == std::string(10, '?'));
}

TEST_CASE("curl: a body without a length ends with the connection") {
  HttpServer server([](const ServedRequest&) -> ServedAnswer {
    return {.body = "abc", .no_length = true};
  });
  const auto response = Client()->Send({.url = server.url()});
  REQUIRE(response.ok());
  CHECK(response->body == "abc");
}

TEST_CASE("curl: answers that do not come whole are kUnavailable") {
  const auto client = Client();
  const auto check = [&](const ServedAnswer& answer,
                         milliseconds timeout = seconds(60)) {
    HttpServer server([&](const ServedRequest&) { return answer; });
    const Status status = client
                              ->Send({.url = server.url() + "/key?sig=secret",
                                      .timeout = timeout})
                              .status();
    CHECK(status.code() == Code::kUnavailable);
    CHECK(status.message().find("secret") == std::string::npos);
    CHECK(Contains(status.message(), "127.0.0.1"));
  };
  check({.no_answer = true});
  check({.body = "0123456789", .cut_after = 5});
  check({.body = "0123456789", .cut_after = 0});
  check({.body = "0123456789", .length_said = 20});
  check({.body = "0123456789", .cut_after = 5, .stall = true});
  check({.body = "0123456789", .cut_after = 5, .stall = true},
        milliseconds(50));
  HttpServer server(Echo);
  CHECK(client->Send({.url = server.url()}).ok());
}

TEST_CASE("curl: addresses without a server") {
  const auto client = Client();
  const std::string url =
      fmt::format("http://127.0.0.1:{}", testing::FreePorts(1)[0]);
  const Status refused = client->Send({.url = url}).status();
  CHECK(refused.code() == Code::kUnavailable);
  CHECK(Contains(refused.message(), "127.0.0.1"));
  const auto code = [&](const std::string& address) {
    return client->Send({.url = address}).status().code();
  };
  CHECK(code("http://nothing.invalid/") == Code::kUnavailable);
  CHECK(code("file:///etc/passwd") == Code::kInvalidArgument);
  CHECK(code("ftp://127.0.0.1/x") == Code::kInvalidArgument);
  CHECK(code("http://[::1/x") == Code::kInvalidArgument);
}

TEST_CASE("curl: redirections are followed where that was asked for") {
  std::string to;
  HttpServer server([&](const ServedRequest& request) -> ServedAnswer {
    if (request.target == "/end") {
      return {.headers = {{"Etag", "end"}}, .body = "here"};
    }
    return {.status = 302,
            .headers = {{"Location", to}, {"Etag", "begin"}},
            .body = "elsewhere"};
  });
  const auto client = Client();
  to = "/end";
  const auto stays = client->Send({.url = server.url() + "/begin"});
  REQUIRE(stays.ok());
  CHECK(stays->status == 302);
  const HttpRequest follows{.url = server.url() + "/begin",
                            .follow_redirects = true};
  const auto followed = client->Send(follows);
  REQUIRE(followed.ok());
  CHECK(followed->status == 200);
  CHECK(followed->body == "here");
  CHECK(followed->Header("etag") == "end");
  to = "file:///etc/passwd";
  CHECK(client->Send(follows).status().code() == Code::kInvalidArgument);
  to = "/begin";
  CHECK(client->Send(follows).status().code() == Code::kInvalidArgument);
}

TEST_CASE("curl: SIGPIPE is neither raised nor left blocked") {
  HttpServer server(
      [](const ServedRequest&) -> ServedAnswer { return {.no_answer = true}; });
  const auto client = Client();
  const std::string body(8'000'000, 'x');
  for (int i = 0; i < 3; ++i) {
    CHECK(!client->Send({.method = "PUT", .url = server.url(), .body = body})
               .ok());
  }
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  CHECK(sigismember(&blocked, SIGPIPE) == 0);
  sigpending(&blocked);
  CHECK(sigismember(&blocked, SIGPIPE) == 0);
}

}  // namespace
}  // namespace sluice::remote
#endif
