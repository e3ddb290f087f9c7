// What answers to range requests are worth.
#include "io/remote/objects/object_reader.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <utility>

#include "tests/support/error_text.h"

namespace sluice::remote {
namespace {

using testing::Contains;

HttpResponse Partial(const std::string& range, const std::string& body) {
  return {.status = 206,
          .headers = {{"content-range", range}, {"etag", "\"e\""}},
          .body = body};
}

TEST_CASE("ranges: the headers that ask for them") {
  using Headers = NamedValues;
  CHECK(RangeHeaders(0, 1, nullptr) == Headers{{"range", "bytes=0-0"}});
  CHECK(RangeHeaders(5, 10, nullptr) == Headers{{"range", "bytes=5-14"}});
  CHECK(RangeHeaders(0, UINT64_MAX, nullptr) ==
        Headers{{"range", "bytes=0-18446744073709551614"}});
  CHECK(RangeHeaders(5, UINT64_MAX, nullptr) == Headers{{"range", "bytes=5-"}});
  const ObjectVersion strong{9, "\"e\"", "m"}, weak{9, "W/\"e\"", "m"},
      none{9, "", "m"};
  CHECK(RangeHeaders(0, 1, &strong) ==
        Headers{{"range", "bytes=0-0"}, {"if-match", "\"e\""}});
  CHECK(RangeHeaders(0, 1, &weak) == Headers{{"range", "bytes=0-0"}});
  CHECK(RangeHeaders(0, 1, &none) ==
        Headers{{"range", "bytes=0-0"}, {"if-unmodified-since", "m"}});
}

TEST_CASE("ranges: an answer that is not what was asked for") {
  CHECK(!CheckPiece(Partial("bytes 5-7/100", "abc"), 5, 3));
  CHECK(!CheckPiece(Partial("bytes 5-7/8", "abc"), 5, 10));  // it ends there
  CHECK(!CheckPiece(Partial("bytes 5-7/8", "abc"), 5, UINT64_MAX));
  CHECK(!CheckPiece(Partial("bytes 5-7/*", "abc"), 5, 3));
  for (const char* range :
       {"", "bytes", "bytes 5-7", "bytes 5/100", "bytes -7/100", "bytes 5-/100",
        "bytes 7-5/100", "bytes 5-7/7", "bytes 5-7/-1", "bytes 5-7/x",
        "bytes */100", "items 5-7/100", "bytes 4-6/100", "bytes 5-6/100",
        "bytes 5-8/100", "bytes 6-8/100", "bytes 5-18446744073709551616/*",
        "bytes=5-7/100"}) {
    CAPTURE(range);
    CHECK(CheckPiece(Partial(range, "abc"), 5, 3));
  }
  CHECK(CheckPiece(Partial("bytes 5-7/100", "ab"), 5, 3));
  CHECK(CheckPiece(Partial("bytes 5-7/100", "abc"), 5, 4));
  // Other statuses are for TakePiece.
  CHECK(!CheckPiece({.status = 200}, 5, 3));
  CHECK(!CheckPiece({.status = 404}, 5, 3));
}

TEST_CASE("ranges: what answers mean") {
  const auto take = [](HttpResponse response, uint64_t offset,
                       const ObjectVersion* version = nullptr) {
    return TakePiece(std::move(response), offset, version, "p");
  };
  const auto part = take(Partial("bytes 5-7/100", "abc"), 5);
  REQUIRE(part.ok());
  CHECK(part->bytes == "abc");
  CHECK(part->version.size == 100);
  CHECK(part->ranged);
  const ObjectVersion same{100, "\"e\"", ""}, longer{101, "\"e\"", ""},
      other{100, "\"f\"", ""}, none{100, "", ""};
  const HttpResponse piece = Partial("bytes 5-7/100", "abc");
  CHECK(take(piece, 5, &same).ok());
  CHECK(take(piece, 5, &longer).status().code() == Code::kUnavailable);
  CHECK(take(piece, 5, &other).status().code() == Code::kUnavailable);
  CHECK(take(piece, 5, &none).status().code() == Code::kUnavailable);
  CHECK(take({.status = 412}, 5, &same).status().code() == Code::kUnavailable);

  const auto whole = take({.status = 200, .body = "abc"}, 0);
  REQUIRE(whole.ok());
  CHECK(!whole->ranged);
  CHECK(whole->version.size == 3);
  CHECK(take({.status = 200, .body = "abc"}, 1).status().code() ==
        Code::kUnimplemented);
  // Empty objects have no ranges.
  const auto empty =
      take({.status = 416, .headers = {{"content-range", "bytes */0"}}}, 0);
  REQUIRE(empty.ok());
  CHECK(empty->bytes.empty());
  CHECK(empty->version.size == 0);
  CHECK(take({.status = 416}, 5, &same).status().code() == Code::kUnavailable);
}

TEST_CASE("refusals say what a server said, in one short line") {
  const auto refusal = [](int status, std::string body = "") {
    return Refusal("read", "p", {.status = status, .body = std::move(body)});
  };
  CHECK(refusal(404).code() == Code::kNotFound);
  CHECK(refusal(404).message() == "cannot read 'p': no such object");
  CHECK(refusal(403).code() == Code::kFailedPrecondition);
  CHECK(refusal(401).code() == Code::kFailedPrecondition);
  CHECK(refusal(507).code() == Code::kResourceExhausted);
  CHECK(refusal(418).code() == Code::kUnavailable);
  CHECK(refusal(418).message() == "cannot read 'p': the server answers 418");
  CHECK(refusal(418, "<html>\x1b[2J</html>").message() ==
        "cannot read 'p': the server answers 418");
#ifdef SLUICE_HAVE_EXPAT
  const std::string xml = "<Error><Code>Odd\n</Code><Message>" +
                          std::string(1000, 'x') + "</Message></Error>";
  const std::string message = refusal(400, xml).message();
  CHECK(Contains(message, "Odd"));
  CHECK(message.find('\n') == std::string::npos);
  CHECK(message.size() < 300);
  for (const auto& [code, why] :
       {std::pair("RequestTimeTooSkewed", "the one here differ too much: M"),
        {"SignatureDoesNotMatch", "the credentials are refused: M"}}) {
    const Status refused = refusal(
        403, fmt::format("<Error><Code>{}</Code><Message>M</Message></Error>",
                         code));
    CHECK(refused.code() == Code::kUnavailable);
    CHECK(Contains(refused.message(), why));
  }
#endif
  Status region = Refusal(
      "read", "p",
      {.status = 301, .headers = {{"x-amz-bucket-region", "eu-west-1"}}});
  CHECK(Contains(region.message(), "its bucket is in region 'eu-west-1'"));
}

}  // namespace
}  // namespace sluice::remote
