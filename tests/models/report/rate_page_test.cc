// The page of a search for a learning rate.
#include "models/report/rate_page.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/error_text.h"

namespace sluice::report {
namespace {

using testing::Contains;

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

// The cells of each row of the table's body.
std::vector<std::vector<std::string>> RowsOf(const std::string& page) {
  std::vector<std::vector<std::string>> rows;
  const size_t begin = page.find("<tbody>");
  REQUIRE(begin != std::string::npos);
  const std::string body = page.substr(begin, page.find("</tbody>") - begin);
  const std::regex row("<tr>(.*?)</tr>"), cell("<td>(.*?)</td>");
  const std::sregex_iterator end;
  for (std::sregex_iterator r(body.begin(), body.end(), row); r != end; ++r) {
    const std::string inside = (*r)[1];
    rows.emplace_back();
    for (std::sregex_iterator c(inside.begin(), inside.end(), cell); c != end;
         ++c) {
      rows.back().push_back((*c)[1]);
    }
  }
  return rows;
}

// Every element that begins ends, and nothing overlaps.
void CheckNested(const std::string& page) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-zA-Z0-9]+)([^>]*)>");
  const std::sregex_iterator end;
  for (std::sregex_iterator t(page.begin(), page.end(), tag); t != end; ++t) {
    const std::string name = (*t)[2], rest = (*t)[3];
    if (name == "meta" || name == "br" || rest.ends_with("/")) continue;
    if ((*t)[1].length() == 0) {
      open.push_back(name);
      continue;
    }
    REQUIRE(!open.empty());
    CHECK(open.back() == name);
    open.pop_back();
  }
  CHECK(open.empty());
}

RateCurve Falling() {
  RateCurve curve;
  for (int i = 0; i < 30; ++i) {
    curve.rates.push_back(1e-4 * std::pow(1.5, i));
    curve.losses.push_back(3 - 0.1 * i);
    curve.smoothed.push_back(3 - 0.08 * i);
  }
  curve.suggested = curve.rates[12];
  return curve;
}

TEST_CASE("the suggestion, a chart and all steps") {
  const RateCurve curve = Falling();
  const std::string page = RatePage(curve, "mnist cnn");
  CheckNested(page);
  CHECK(Contains(page, "<title>mnist cnn</title>"));
  CHECK(Contains(page, "<h1>mnist cnn</h1>"));
  CHECK(Contains(page, "<strong>0.013</strong>"));
  CHECK(Contains(page, "suggested: 0.013"));  // the mark
  CHECK(Count(page, "<svg") == 1);
  CHECK(Count(page, "diverged at") == 0);
  const auto rows = RowsOf(page);
  REQUIRE(rows.size() == curve.rates.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    REQUIRE(rows[i].size() == 4);
    CHECK(std::stoul(rows[i][0]) == i + 1);
    CHECK(std::stod(rows[i][1]) ==
          doctest::Approx(curve.rates[i]).epsilon(0.01));
    CHECK(std::stod(rows[i][2]) ==
          doctest::Approx(curve.losses[i]).epsilon(1e-5));
    CHECK(std::stod(rows[i][3]) ==
          doctest::Approx(curve.smoothed[i]).epsilon(1e-5));
  }
}

TEST_CASE("the heights to which a loss diverges are no part of the chart") {
  RateCurve curve = Falling();
  const std::string before = RatePage(curve, "t");
  curve.rates.push_back(20);
  curve.losses.push_back(1e30);
  curve.smoothed.push_back(1e29);
  curve.diverged = true;
  const std::string page = RatePage(curve, "t");
  CHECK(Contains(page, "The loss diverged at 20."));
  CHECK(RowsOf(page).back() ==
        std::vector<std::string>{"31", "20", "1e+30", "1e+29"});
  const auto chart = [](const std::string& text) {
    const size_t begin = text.find("<svg");
    return text.substr(begin, text.find("</svg>") - begin);
  };
  CHECK(Count(chart(page), "e+") == 0);
  CHECK(Count(chart(page), "e29") == 0);
  CHECK(chart(page).size() <= chart(before).size() + 200);
}

TEST_CASE("losses that are no numbers, and none") {
  RateCurve curve = Falling();
  curve.suggested.reset();
  curve.rates.push_back(20);
  curve.losses.push_back(std::numeric_limits<double>::quiet_NaN());
  curve.smoothed.push_back(std::numeric_limits<double>::quiet_NaN());
  curve.diverged = true;
  std::string page = RatePage(curve, "t");
  CheckNested(page);
  CHECK(Contains(page, "No learning rate is suggested"));
  CHECK(Count(page, "<strong>") == 0);
  CHECK(Contains(page, "<td>nan</td>"));

  RateCurve one;
  one.rates = {1e-7};
  one.losses = one.smoothed = {std::numeric_limits<double>::infinity()};
  one.diverged = true;
  page = RatePage(one, "t");
  CheckNested(page);
  CHECK(Contains(page, "diverged at 1e-07"));

  page = RatePage({}, "t");
  CheckNested(page);
  CHECK(RowsOf(page).empty());
}

TEST_CASE("titles are text") {
  const std::string page = RatePage(Falling(), "a & <b> \"c\" 'd'\n\xff");
  CheckNested(page);
  CHECK(Count(page, "<b>") == 0);
  CHECK(Count(page, "a &amp; &lt;b&gt; &quot;c&quot; &#39;d&#39;") == 2);
  CHECK(Count(page, "\uFFFD") == 2);
}

TEST_CASE("curves at random") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    RateCurve curve;
    const size_t n = random() % 40;
    for (size_t i = 0; i < n; ++i) {
      curve.rates.push_back(1e-7 * std::pow(10, 0.2 * static_cast<double>(i)));
      const double loss = std::ldexp(static_cast<double>(random()) - 0x1p31,
                                     static_cast<int>(random() % 200) - 100);
      curve.losses.push_back(random() % 9 == 0 ? HUGE_VAL : loss);
      curve.smoothed.push_back(loss);
    }
    if (n > 0 && random() % 2 == 0) curve.suggested = curve.rates[n / 2];
    curve.diverged = n > 0 && random() % 2 == 0;
    const std::string page = RatePage(curve, "t");
    CheckNested(page);
    CHECK(RowsOf(page).size() == n);
  }
}

}  // namespace
}  // namespace sluice::report
