// Addresses and percent-encoding: each rule by itself, and random bytes there
// and back.
#include "io/remote/http/url.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <random>
#include <string>
#include <string_view>

#include "tests/support/random_bytes.h"

namespace sluice::remote {
namespace {

using testing::Below;
using testing::RandomBytes;

TEST_CASE("an S3 path is a bucket and a key of any bytes") {
  const auto parsed = [](std::string_view path) {
    const ObjectPath object = ParseObjectPath(path).ValueOrThrow();
    return object.bucket + "|" + object.key;
  };
  CHECK(parsed("s3://b/k") == "b|k");
  CHECK(parsed("s3://my.bucket-1/a/b.txt") == "my.bucket-1|a/b.txt");
  CHECK(parsed("s3://b") == "b|");
  CHECK(parsed("s3://b/") == "b|");
  CHECK(parsed("s3://b//") == "b|/");
  CHECK(parsed("s3://b/a//../.") == "b|a//../.");
  CHECK(parsed("s3://b/100%25?x=y#z +") == "b|100%25?x=y#z +");
  CHECK(parsed("s3://b/\xc3\xa9\xff") == "b|\xc3\xa9\xff");
  CHECK(parsed("s3://b/" + std::string(1024, 'k')).size() == 1026);
}

TEST_CASE("what is no S3 path says so") {
  for (const char* path :
       {"", "b/k", "s3:/b/k", "S3://b/k", "s3://", "s3:///k", "s3://.b/k",
        "s3://../k", "s3://b:9000/k", "s3://user@b/k", "s3://b~/k",
        "s3://\xc3\xa9/k", "https://b/k"}) {
    CAPTURE(path);
    const Status status = ParseObjectPath(path).status();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message().find("wanted s3://bucket/key") != std::string::npos);
  }
  CHECK(!ParseObjectPath("s3://" + std::string(256, 'b') + "/k").ok());
  CHECK(!ParseObjectPath("s3://b/" + std::string(1025, 'k')).ok());
}

TEST_CASE("an address is taken apart") {
  const auto parsed = [](std::string_view text) {
    const Url url = ParseUrl(text).ValueOrThrow();
    return url.scheme + "|" + url.host + "|" + url.path + "|" + url.query;
  };
  CHECK(parsed("https://a.b/c/d?e=f&g") == "https|a.b|/c/d|e=f&g");
  CHECK(parsed("HTTP://A.B") == "http|a.b|/|");
  CHECK(parsed("http://a?q") == "http|a|/|q");
  CHECK(parsed("http://a/?") == "http|a|/|");
  CHECK(parsed("http://a:80/") == "http|a|/|");
  CHECK(parsed("https://a:443/") == "https|a|/|");
  CHECK(parsed("http://a:443/") == "http|a:443|/|");
  CHECK(parsed("http://a:09000/") == "http|a:9000|/|");
  CHECK(parsed("http://a:/") == "http|a|/|");
  CHECK(parsed("http://127.0.0.1:65535/x") == "http|127.0.0.1:65535|/x|");
  CHECK(parsed("http://[::1]:8080/x") == "http|[::1]:8080|/x|");
  CHECK(parsed("http://[FE80::1]") == "http|[fe80::1]|/|");
  CHECK(parsed("https://a/b#c?d") == "https|a|/b|");
  CHECK(parsed("https://a/b?c#d") == "https|a|/b|c");
  CHECK(parsed("https://a//b/../%2e?x%20y") == "https|a|//b/../%2e|x%20y");
  CHECK(parsed("https://a/gr\xc3\xb6\xc3\x9f") == "https|a|/gr%C3%B6%C3%9F|");
  CHECK(parsed("https://a/b@c:d") == "https|a|/b@c:d|");
}

TEST_CASE("an address comes back as it was, its query in no message") {
  const Url url = ParseUrl("https://A:8443/b?c=d").ValueOrThrow();
  CHECK(url.ToString() == "https://a:8443/b?c=d");
  CHECK(url.Shown() == "https://a:8443/b");
  CHECK(ParseUrl("http://a").ValueOrThrow().ToString() == "http://a/");
}

TEST_CASE("what is no address says why and shows no secret") {
  const auto message = [](std::string_view text) {
    const Status status = ParseUrl(text).status();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message().find("SECRET") == std::string::npos);
    return status.message();
  };
  CHECK(message("ftp://SECRET") ==
        "an address begins with https:// or http://, got ftp://");
  CHECK(message("SECRET") ==
        "an address begins with https:// or http://, got none of them");
  CHECK(message("https://user:SECRET@host/") ==
        "https://host: an address must hold no user name and no password");
  CHECK(message("https://SECRET@") ==
        "https://: an address must hold no user name and no password");
  CHECK(message("http:///SECRET") == "http://: this is no host's name");
  CHECK(message("http://:80/SECRET") == "http://:80: this is no host's name");
  CHECK(message("http://a b/SECRET") == "http://a b: this is no host's name");
  CHECK(message("http://a\r\nb/") ==
        "http://a\\x0d\\x0ab: this is no host's name");
  CHECK(message("http://[1::g]/") == "http://[1::g]: this is no host's name");
  CHECK(message("http://[::1/") == "http://[::1: this is no host's name");
  CHECK(message("http://a:b/SECRET") ==
        "http://a:b: a port is a number from 1 to 65535");
  for (const char* port : {"0", "65536", "-1", "+1", "1x", "99999999999"}) {
    CHECK(!ParseUrl("http://a:" + std::string(port)).ok());
  }
  for (const char* path : {"/a b?SECRET", "/a\n", "/a\x7f", "?a=SECRET\tb"}) {
    CHECK(message("http://a" + std::string(path)) ==
          "http://a: the address has a space or control character, which is "
          "written as %XX");
  }
}

TEST_CASE("the unreserved letters stay, the slash in paths alone") {
  const std::string kept =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  CHECK(EncodePath(kept) == kept);
  CHECK(EncodeQueryPart(kept) == kept);
  CHECK(EncodePath("/a b/+%!*'()&=\xc3\xa9") ==
        "/a%20b/%2B%25%21%2A%27%28%29%26%3D%C3%A9");
  CHECK(EncodeQueryPart("a/b") == "a%2Fb");
  CHECK(EncodePath(std::string_view("\0\n", 2)) == "%00%0A");
}

TEST_CASE("a query is sorted by encoded names, then values") {
  CHECK(EncodeQuery({}).empty());
  CHECK(EncodeQuery({{"b", "2"}, {"a", "1"}}) == "a=1&b=2");
  CHECK(EncodeQuery({{"uploads", ""}}) == "uploads=");
  CHECK(EncodeQuery({{"a", "2"}, {"a", "1"}, {"a", ""}}) == "a=&a=1&a=2");
  // As text "a-=" is before "a=", and "~" behind "%7C" whatever it encodes.
  CHECK(EncodeQuery({{"a-", ""}, {"a", ""}}) == "a=&a-=");
  CHECK(EncodeQuery({{"~", ""}, {"|", ""}, {"B", ""}}) == "%7C=&B=&~=");
  CHECK(EncodeQuery({{"prefix", "a/b c"}}) == "prefix=a%2Fb%20c");
}

TEST_CASE("decoding undoes encoding") {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const std::string raw = RandomBytes(random, Below(random, 20));
    CHECK(DecodePercent(EncodePath(raw)).ValueOrThrow() == raw);
    CHECK(DecodePercent(EncodeQueryPart(raw), true).ValueOrThrow() == raw);
  }
  CHECK(DecodePercent("a+b%2b").ValueOrThrow() == "a+b+");
  CHECK(DecodePercent("a+b%2B", true).ValueOrThrow() == "a b+");
  for (const char* text : {"%", "a%2", "%g0", "%0g", "%%41", "% 1"}) {
    CAPTURE(text);
    CHECK(DecodePercent(text).status().code() == Code::kInvalidArgument);
  }
}

TEST_CASE("any bytes make an address or an error") {
  std::mt19937 random(2);
  const std::string parts[] = {"http", "https://", "s3://", "://", "@",   ":",
                               "[",    "]",        "/",     "?",   "#",   "%4",
                               "a",    ".",        "9",     " ",   "\xc3"};
  for (int i = 0; i < 20000; ++i) {
    std::string text = Below(random, 2) == 0 ? "https://" : "";
    for (size_t n = Below(random, 8); n > 0; --n) {
      text += parts[Below(random, std::size(parts))];
    }
    const auto url = ParseUrl(text);
    (void)ParseObjectPath(text);
    (void)DecodePercent(text);
    if (!url.ok()) continue;
    // What was understood is understood again, and the same.
    const Url again = ParseUrl(url->ToString()).ValueOrThrow();
    CHECK(again.ToString() == url->ToString());
    CHECK(again.host == url->host);
  }
}

}  // namespace
}  // namespace sluice::remote
