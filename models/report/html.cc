#include "models/report/html.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "engine/text/markup.h"
#include "engine/text/utf8.h"
#include "io/images/png.h"

namespace sluice::report {
namespace {

// Charts colour their lines by the classes c0 to c7 (line_chart.cc), the
// confusion matrix its cells by --right and --wrong (evaluation_page.cc).
constexpr std::string_view kStyle = R"css(
:root {
  color-scheme: light dark;
  --paper: #fff; --ink: #1c2128; --dim: #667080; --line: #dfe3e8;
  --stripe: #f5f7f9; --right: 33 102 196; --wrong: 214 85 0;
  --c0: #2166c4; --c1: #c45500; --c2: #1b7f3b; --c3: #8a3fc4;
  --c4: #c4223a; --c5: #0b7f8a; --c6: #8a5a2b; --c7: #c2388f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181d; --ink: #e3e7ec; --dim: #98a2b0; --line: #323943;
    --stripe: #1c2229; --right: 90 155 255; --wrong: 255 140 60;
    --c0: #6aa9ff; --c1: #ff9d4d; --c2: #5fd083; --c3: #c792ff;
    --c4: #ff7b8a; --c5: #4fd3de; --c6: #d3a673; --c7: #ff86c8;
  }
}
* { box-sizing: border-box; }
body {
  max-width: 72rem; margin: 0 auto; padding: 1.5rem 1rem 4rem;
  background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}
h1 { margin: 0 0 1rem; font-size: 1.7rem; line-height: 1.2; }
h2 { margin: 2.5rem 0 .75rem; font-size: 1.2rem; }
p { margin: .5rem 0; }
.dim, figcaption span { color: var(--dim); }
.headline { display: flex; flex-wrap: wrap; gap: .5rem 2.5rem; margin: 0; }
.headline dt { color: var(--dim); font-size: .85rem; }
.headline dd { margin: 0; font-size: 1.6rem; line-height: 1.2; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td {
  padding: .25rem .75rem; border-bottom: 1px solid var(--line);
  text-align: right; font-weight: normal; vertical-align: bottom;
}
th { color: var(--dim); font-size: .85rem; }
tbody tr:nth-child(even) { background: var(--stripe); }
th[scope=row] { color: var(--ink); font-size: 1em; }
th:first-child, td:first-child, .text { text-align: left; }
th span, td span { color: var(--dim); font-size: .8rem; }
.facts { margin-top: 1.5rem; }
.facts td { text-align: left; }
.matrix th, .matrix td { padding: .2rem .45rem; white-space: nowrap; }
.upright thead th[scope=col] { writing-mode: vertical-rl; text-align: left; }
.grid { display: grid; gap: 1rem; }
.charts {
  grid-template-columns: repeat(auto-fill, minmax(min(26rem, 100%), 1fr));
}
.pictures { grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); }
figure { margin: 0; }
figcaption { font-size: .85rem; line-height: 1.35; }
figcaption span { display: block; }
img {
  width: 100%; height: auto; margin-bottom: .25rem; border-radius: 3px;
  background: var(--stripe); image-rendering: pixelated;
}
.chart { display: block; width: 100%; max-width: 46rem; height: auto;
  font-size: 12px; }
.chart text { fill: var(--ink); }
.chart text.tick, .chart text.label { fill: var(--dim); }
.chart text.title { font-size: 14px; font-weight: 600; }
.chart .rule { stroke: var(--line); }
.chart .mark { stroke: var(--dim); stroke-dasharray: 4 3; }
.chart path { fill: none; stroke: currentColor; stroke-width: 1.8;
  stroke-linejoin: round; stroke-linecap: round; }
.chart .key { stroke: currentColor; stroke-width: 3; }
.chart circle { fill: currentColor; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); }
.c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); }
.c6 { color: var(--c6); } .c7 { color: var(--c7); }
)css";

bool IsControl(char c) {
  const auto byte = static_cast<uint8_t>(c);
  return (byte < 0x20 && c != '\t' && c != '\n' && c != '\r') || byte == 0x7F;
}

std::string Base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = i; k < i + 3; ++k) {
      group = group << 8 |
              (k < bytes.size() ? static_cast<uint8_t>(bytes[k]) : uint8_t{0});
    }
    const size_t left = bytes.size() - i;
    text += kDigits[group >> 18];
    text += kDigits[group >> 12 & 63];
    text += left > 1 ? kDigits[group >> 6 & 63] : '=';
    text += left > 2 ? kDigits[group & 63] : '=';
  }
  return text;
}

}  // namespace

std::string Escape(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  while (!text.empty()) {
    bool valid = false;
    const size_t bytes = CharacterBytes(text, valid);
    const char c = text[0];
    if (!valid || IsControl(c)) {
      escaped += "\uFFFD";
    } else if (const auto entity = EntityOf(c); !entity.empty()) {
      escaped += entity;
    } else if (c == '\'') {
      escaped += "&#39;";
    } else {
      escaped += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return escaped;
}

std::string Page(std::string_view title, std::string_view body) {
  // The policy holds even if a text got into the page unescaped.
  constexpr std::string_view kPolicy =
      "default-src 'none'; img-src data:; style-src 'unsafe-inline'";
  return fmt::format(R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{}</title>
<style>{}</style>
</head>
<body>
{}
</body>
</html>
)",
                     kPolicy, Escape(title), kStyle, body);
}

std::string Picture(const Tensor& image, std::string_view alternative) {
  Result<std::string> png = EncodePng(image);
  if (png.status().code() == Code::kUnimplemented) return "";
  return fmt::format(
      "<img src=\"data:image/png;base64,{}\" width=\"{}\" height=\"{}\" "
      "alt=\"{}\">",
      Base64(std::move(png).ValueOrThrow()), image.shape()[1], image.shape()[0],
      Escape(alternative));
}

}  // namespace sluice::report
