// Dates and addresses of HTTP.
#include "io/remote/http/http.h"

#include <doctest/doctest.h>

#include <random>

namespace sluice::remote {
namespace {

TEST_CASE("http: dates") {
  CHECK(ParseHttpDate("Sun, 06 Nov 1994 08:49:37 GMT") == 784111777);
  CHECK(ParseHttpDate("Thu, 01 Jan 1970 00:00:00 GMT") == 0);
  for (const char* text :
       {"", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
        "Sun, 06 Nov 1994 08:49:37 UTC", "Sun, 06 Xyz 1994 08:49:37 GMT",
        "Sun, 06 anF 1994 08:49:37 GMT", "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:49:37 GMT", "Sun, -6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1894 08:49:37 GMT"}) {
    CAPTURE(text);
    CHECK(!ParseHttpDate(text));
  }
  // As the C library writes them.
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto time = static_cast<std::time_t>(random() % 10'000'000'000);
    std::tm tm{};
    gmtime_r(&time, &tm);
    char text[64];
    strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm);
    CHECK(ParseHttpDate(text) == time);
  }
}

TEST_CASE("http: what of an address is shown") {
  CHECK(SchemeAndHost("https://a.b:1/c?d") == "https://a.b:1");
  CHECK(SchemeAndHost("https://a?d") == "https://a");
  CHECK(SchemeAndHost("https://a") == "https://a");
  CHECK(SchemeAndHost("a/b") == "a");
}

TEST_CASE("http: the last header of a name counts") {
  const HttpResponse response{.headers = {{"a", "1"}, {"b", ""}, {"a", "2"}}};
  CHECK(response.Header("a") == "2");
  CHECK(response.Header("b").empty());
  CHECK(response.Header("c").empty());
}

}  // namespace
}  // namespace sluice::remote
