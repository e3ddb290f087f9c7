#include "io/files/without_query.h"

#include <doctest/doctest.h>

#include <string>

namespace sluice {
namespace {

TEST_CASE("web addresses end before their query, other paths do not") {
  for (const char* scheme : {"https", "http", "HTTPS", "Http"}) {
    CAPTURE(scheme);
    const std::string address = std::string(scheme) + "://host:1/a/b.csv";
    for (const char* rest : {"", "?", "#", "?a=/b.tsv#c", "#a?b", "?a?b"}) {
      CHECK(WithoutQuery(address + rest) == address);
    }
    CHECK(WithoutQuery(std::string(scheme) + "://host?a") ==
          std::string(scheme) + "://host");
  }
  for (const char* path : {"", "a", "a?b#c", "/a/b?c", "./https://a?b",
                           "s3://bucket/a?b#c", "httpx://a?b", "https:/a?b"}) {
    CHECK(WithoutQuery(path) == path);
  }
}

TEST_CASE("the name of a file is what comes between folders and query") {
  CHECK(FileNameOf("https://h/a/b.csv?sign=x/y.csv#z") == "b.csv");
  CHECK(FileNameOf("/a/b?c") == "b?c");
  CHECK(FileNameOf("s3://bucket/a#b") == "a#b");
  CHECK(FileNameOf("b") == "b");
  CHECK(FileNameOf("a/").empty());
}

}  // namespace
}  // namespace sluice
