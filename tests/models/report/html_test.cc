#include "models/report/html.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>

#include "io/images/png.h"
#include "tests/support/error_text.h"

namespace sluice::report {
namespace {

using testing::Contains;
using testing::ErrorOf;

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Another's reading of UTF-8 with errors, then each character on its own.
std::string ReferenceEscape(const std::string& text) {
  using Json = nlohmann::json;
  const std::string valid =
      Json::parse(
          Json(text).dump(-1, ' ', false, Json::error_handler_t::replace))
          .get<std::string>();
  std::string escaped;
  for (const char c : valid) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      case '\t':
      case '\n':
      case '\r':
        escaped += c;
        break;
      default:
        if ((c >= 0 && c < ' ') || c == 0x7F) {
          escaped += kReplacement;
        } else {
          escaped += c;
        }
    }
  }
  return escaped;
}

TEST_CASE("report: text is escaped for elements and quoted attributes") {
  CHECK(Escape("").empty());
  CHECK(Escape("a<b>&\"c'\n\t") == "a&lt;b&gt;&amp;&quot;c&#39;\n\t");
  CHECK(Escape("&amp;") == "&amp;amp;");
  CHECK(Escape("caf\xC3\xA9 \xF0\x9F\x90\xB1") ==
        "caf\xC3\xA9 \xF0\x9F\x90\xB1");
}

TEST_CASE("report: what is no UTF-8 and controls are replaced") {
  const std::string r(kReplacement);
  CHECK(Escape("\xFF") == r);
  CHECK(Escape("a\xC3") == "a" + r);            // ends early
  CHECK(Escape("\xC3<") == r + "&lt;");         // hides no markup
  CHECK(Escape("\xE2\x82\"") == r + "&quot;");  // one for the begin of one
  CHECK(Escape("\xC0\xBC") == r + r);           // overlong '<'
  CHECK(Escape("\xED\xA0\x80") == r + r + r);   // a surrogate
  CHECK(Escape("\xF4\x90\x80\x80") == r + r + r + r);  // above U+10FFFF
  CHECK(Escape(std::string_view("\0x", 2)) == r + "x");
  CHECK(Escape("\x1B\x7F") == r + r);
}

TEST_CASE("report: random bytes are escaped as by another reader") {
  std::mt19937 random(1);
  // Many leads and begins of ranges, so that valid and nearly valid characters
  // are frequent.
  constexpr std::string_view kLikely =
      "a<&\x7F\x80\x8F\x90\x9F\xA0\xBF\xC1\xC2\xDF\xE0\xE1\xEC\xED\xEE\xEF\xF0"
      "\xF1\xF3\xF4\xF5\xFF";
  for (int round = 0; round < 20000; ++round) {
    std::string text(random() % 12, ' ');
    for (char& c : text) {
      c = random() % 4 == 0 ? static_cast<char>(random() % 256)
                            : kLikely[random() % kLikely.size()];
    }
    REQUIRE(Escape(text) == ReferenceEscape(text));
  }
}

TEST_CASE("report: a page has its title, its body and nothing from elsewhere") {
  const std::string page = Page("<t> & \"q\"", "<h1>x</h1>");
  CHECK(page.starts_with("<!doctype html>\n"));
  CHECK(Contains(page, "<title>&lt;t&gt; &amp; &quot;q&quot;</title>"));
  CHECK(Contains(page, "<body>\n<h1>x</h1>\n</body>"));
  CHECK(Contains(page, "prefers-color-scheme: dark"));
  for (const char* outside :
       {"http:", "https:", "//", "@import", "url(", "<script", "<link"}) {
    CHECK_MESSAGE(page.find(outside) == std::string::npos, outside);
  }
}

// --- Pictures ----------------------------------------------------------------

std::string FromBase64(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const char* digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t digit = std::string_view(digits).find(c);
    REQUIRE(digit != std::string_view::npos);
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 255);
    }
  }
  return bytes;
}

// The bytes of an <img>; its text is a multiple of four digits.
std::string BytesOf(const std::string& img) {
  const std::string begin = "src=\"data:image/png;base64,";
  const size_t from = img.find(begin) + begin.size();
  const std::string text = img.substr(from, img.find('"', from) - from);
  CHECK(text.size() % 4 == 0);
  std::string bytes = FromBase64(text);
  CHECK(bytes.ends_with("IEND\xAE\x42\x60\x82"));  // and no byte of padding
  return bytes;
}

TEST_CASE("report: a picture's PNG has the tensor's pixels") {
  std::mt19937 random(2);
  for (int round = 0; round < 60; ++round) {
    const int64_t channels = round % 3 == 0 ? 1 : round % 3 == 1 ? 3 : 4;
    const auto height = static_cast<int64_t>(1 + random() % 9);
    const auto width = static_cast<int64_t>(1 + random() % 9);
    Tensor image(DType::kUInt8, {height, width, channels});
    for (uint8_t& byte : image.values<uint8_t>()) {
      byte = static_cast<uint8_t>(random());
    }
    const std::string img = Picture(image, "a \"b\" <c>");
    if (EncodePng(image).status().code() == Code::kUnimplemented) {
      CHECK(img.empty());
      continue;
    }
    CHECK(Contains(img, "alt=\"a &quot;b&quot; &lt;c&gt;\""));
    CHECK(Contains(img, " width=\"" + std::to_string(width) + "\""));
    CHECK(Contains(img, " height=\"" + std::to_string(height) + "\""));
    const Tensor decoded = DecodePng(BytesOf(img)).ValueOrThrow();
    REQUIRE(decoded.shape() == Shape{height, width, 3});
    for (int64_t i = 0; i < height * width; ++i) {
      for (int64_t c = 0; c < 3; ++c) {
        const int64_t from = channels == 1 ? i : i * channels + c;
        REQUIRE(decoded.IntAt(i * 3 + c) == image.IntAt(from));
      }
    }
  }
}

TEST_CASE("report: a picture of another tensor is an error") {
  for (const Shape& shape : {Shape{2, 2}, Shape{2, 2, 2}, Shape{0, 2, 3}}) {
    const Tensor image = Tensor::Zeros(DType::kUInt8, shape);
    CHECK(Contains(ErrorOf([&] { Picture(image, ""); }), shape.ToString()));
  }
  const Tensor floats = Tensor::Zeros(DType::kFloat32, {2, 2, 3});
  CHECK(Contains(ErrorOf([&] { Picture(floats, ""); }), "float32[2,2,3]"));
}

}  // namespace
}  // namespace sluice::report
