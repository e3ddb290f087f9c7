#include "models/report/line_chart.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/error_text.h"

namespace sluice::report {
namespace {

using testing::Contains;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

using Point = std::pair<double, double>;

struct Drawn {
  std::vector<std::vector<Point>> lines;  // the stretches of all paths
  std::vector<Point> dots;
  std::map<std::string, double> x_ticks, y_ticks;  // place by label
  std::vector<double> marks;                       // x
  double width = 0, height = 0;

  // All points of lines and dots.
  std::vector<Point> Points() const {
    std::vector<Point> points = dots;
    for (const auto& line : lines) {
      points.insert(points.end(), line.begin(), line.end());
    }
    return points;
  }
};

std::string Attribute(const std::string& tag, const std::string& name) {
  const std::string begin = " " + name + "=\"";
  const size_t at = tag.find(begin);
  if (at == std::string::npos) return "";
  const size_t from = at + begin.size();
  return tag.substr(from, tag.find('"', from) - from);
}

double Number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  CHECK_MESSAGE((!text.empty() && *end == '\0'), text);
  return value;
}

void ReadPath(const std::string& path, Drawn& drawn) {
  const char* at = path.c_str();
  while (*at != '\0') {
    const char command = *at++;
    REQUIRE((command == 'M' || command == 'L'));
    if (command == 'M') drawn.lines.emplace_back();
    char* end = nullptr;
    const double x = std::strtod(at, &end);
    REQUIRE(end != at);
    at = end;
    const double y = std::strtod(at, &end);
    REQUIRE(end != at);
    at = end;
    drawn.lines.back().emplace_back(x, y);
  }
}

// What an SVG shows. Checks that every coordinate lies within its view box.
Drawn Read(const std::string& svg) {
  Drawn drawn;
  for (size_t at = svg.find('<'); at != std::string::npos;
       at = svg.find('<', at + 1)) {
    const size_t close = svg.find('>', at);
    const std::string tag = svg.substr(at, close - at);
    if (tag.starts_with("<svg ")) {
      const std::string box = Attribute(tag, "viewBox");
      REQUIRE(box.starts_with("0 0 "));
      const size_t space = box.find(' ', 4);
      drawn.width = Number(box.substr(4, space - 4));
      drawn.height = Number(box.substr(space + 1));
    }
    if (tag.starts_with("<path ")) ReadPath(Attribute(tag, "d"), drawn);
    if (tag.starts_with("<circle ")) {
      drawn.dots.emplace_back(Number(Attribute(tag, "cx")),
                              Number(Attribute(tag, "cy")));
    }
    if (Attribute(tag, "class") == "mark") {
      drawn.marks.push_back(Number(Attribute(tag, "x1")));
    }
    if (Attribute(tag, "class") == "tick") {
      const std::string text =
          svg.substr(close + 1, svg.find('<', close) - close - 1);
      if (Attribute(tag, "text-anchor") == "middle") {
        drawn.x_ticks[text] = Number(Attribute(tag, "x"));
      } else {
        drawn.y_ticks[text] = Number(Attribute(tag, "y")) - 4;
      }
    }
    for (const char* name : {"x", "x1", "x2"}) {
      const std::string value = Attribute(tag, name);
      if (value.empty()) continue;
      CHECK(Number(value) >= 0);
      CHECK(Number(value) <= drawn.width);
    }
    for (const char* name : {"y", "y1", "y2"}) {
      const std::string value = Attribute(tag, name);
      if (value.empty()) continue;
      CHECK(Number(value) >= 0);
      CHECK(Number(value) <= drawn.height);
    }
  }
  for (const auto& [x, y] : drawn.Points()) {
    REQUIRE((x >= 0 && x <= drawn.width));
    REQUIRE((y >= 0 && y <= drawn.height));
  }
  return drawn;
}

Chart ChartOf(std::vector<Point> points) {
  return {.title = "t", .x_label = "step", .series = {{"s", points}}};
}

// Where a value is, by the places of two others: the axes are linear in
// `scale` of the values.
template <typename Scale>
double Between(double value, Point a, Point b, Scale scale) {
  const double share =
      (scale(value) - scale(a.first)) / (scale(b.first) - scale(a.first));
  return a.second + share * (b.second - a.second);
}
double Same(double value) {
  return value;
}
double Log(double value) {
  return std::log10(value);
}

TEST_CASE("report: a chart without a point says so") {
  for (const Chart& chart :
       {Chart{}, ChartOf({}), ChartOf({{kNaN, 1}, {1, kInf}, {-kInf, 0}})}) {
    const std::string svg = ToSvg(chart);
    CHECK(Contains(svg, ">no points</text>"));
    CHECK(Read(svg).Points().empty());
  }
  Chart log = ChartOf({{1, 0}, {2, -1}});
  CHECK(!Read(ToSvg(log)).Points().empty());
  log.log_y = true;
  CHECK(Contains(ToSvg(log), ">no points</text>"));
}

TEST_CASE("report: a point alone is a dot, a constant series a level line") {
  for (const double value : {0.0, -0.0, 1.0, -3e-320, 1e300, DBL_MAX, 5e-324}) {
    CAPTURE(value);
    const Drawn dot = Read(ToSvg(ChartOf({{value, value}})));
    CHECK(dot.dots.size() == 1);
    CHECK(dot.lines.empty());
    const Drawn twice = Read(ToSvg(ChartOf({{7, value}, {7, value}})));
    CHECK(twice.dots.size() == 1);
    const Drawn level = Read(ToSvg(ChartOf({{1, value}, {2, value}})));
    REQUIRE(level.lines.size() == 1);
    REQUIRE(level.lines[0].size() == 2);
    CHECK(level.lines[0][0].second == level.lines[0][1].second);
    CHECK(level.y_ticks.size() >= 2);
  }
}

TEST_CASE("report: a line is broken where a value is not finite") {
  const Drawn drawn = Read(ToSvg(ChartOf({{0, 1},
                                          {1, 2},
                                          {2, kNaN},
                                          {3, 1},
                                          {4, kInf},
                                          {kNaN, 1},
                                          {5, 2},
                                          {6, 3},
                                          {7, 4},
                                          {8, -kInf}})));
  REQUIRE(drawn.lines.size() == 2);
  CHECK(drawn.lines[0].size() == 2);
  CHECK(drawn.lines[1].size() == 3);
  CHECK(drawn.dots.size() == 1);
  CHECK(drawn.lines[0][1].first < drawn.dots[0].first);
  CHECK(drawn.dots[0].first < drawn.lines[1][0].first);
}

TEST_CASE("report: ticks are round and where their values are") {
  Chart chart = ChartOf({{0, 0.013}, {64000, 0.93}});
  const Drawn drawn = Read(ToSvg(chart));
  CHECK(drawn.x_ticks.size() == 7);
  CHECK(drawn.x_ticks.contains("0"));
  CHECK(drawn.x_ticks.contains("60000"));
  CHECK(drawn.y_ticks.size() == 4);
  REQUIRE(drawn.y_ticks.contains("0.2"));
  CHECK(drawn.y_ticks.contains("0.8"));
  const std::vector<Point>& line = drawn.lines.at(0);
  CHECK(drawn.x_ticks.at("60000") ==
        doctest::Approx(
            Between(60000, {0, line[0].first}, {64000, line[1].first}, Same))
            .epsilon(0.001));
  CHECK(drawn.y_ticks.at("0.2") ==
        doctest::Approx(
            Between(0.2, {0.013, line[0].second}, {0.93, line[1].second}, Same))
            .epsilon(0.001));
}

TEST_CASE("report: points and ticks of log axes lie by their logarithms") {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> exponent(-300, 300);
  for (int round = 0; round < 200; ++round) {
    const double low = exponent(random);
    const double high = low + (round % 2 == 0 ? 3 : 1 + 300 - low);
    Chart chart = ChartOf({});
    chart.log_x = chart.log_y = true;
    std::vector<Point>& points = chart.series[0].points;
    for (int i = 0; i <= 20; ++i) {
      const double x = std::pow(10, low + (high - low) * i / 20);
      points.emplace_back(std::min(x, DBL_MAX), 1 / x);
    }
    const Drawn drawn = Read(ToSvg(chart));
    REQUIRE(drawn.lines.size() == 1);
    const std::vector<Point>& line = drawn.lines[0];
    REQUIRE(line.size() == points.size());
    for (size_t i = 0; i < points.size(); ++i) {
      const double x =
          Between(points[i].first, {points.front().first, line.front().first},
                  {points.back().first, line.back().first}, Log);
      const double y = Between(points[i].second,
                               {points.front().second, line.front().second},
                               {points.back().second, line.back().second}, Log);
      CHECK(std::abs(line[i].first - x) < 0.16);
      CHECK(std::abs(line[i].second - y) < 0.16);
    }
    CHECK(drawn.x_ticks.size() >= 2);
    CHECK(drawn.x_ticks.size() <= 8);
    for (const auto& [label, place] : drawn.x_ticks) {
      const double x =
          Between(Number(label), {points.front().first, line.front().first},
                  {points.back().first, line.back().first}, Log);
      CHECK(std::abs(place - x) < 0.16);
    }
  }
}

TEST_CASE("report: what has no logarithm breaks the line of a log axis") {
  Chart chart = ChartOf({{0, 1}, {1, 10}, {2, 0}, {3, -1}, {4, 1}, {5, 5}});
  chart.log_y = true;
  CHECK(Read(ToSvg(chart)).lines.size() == 2);
  chart.log_x = true;
  const Drawn drawn = Read(ToSvg(chart));
  CHECK(drawn.lines.size() == 1);
  CHECK(drawn.dots.size() == 1);  // the one at 1, as 0 has no place
}

TEST_CASE("report: wild values stay within the view box") {
  const std::vector<double> wild = {
      0,        -0.0,    1e300,   -1e300, DBL_MAX,      -DBL_MAX,
      5e-324,   -5e-324, DBL_MIN, 1e-310, kNaN,         kInf,
      -kInf,    1,       -1,      0.1,    1 + 1e-15,    1e16,
      1e16 + 2, -7e-5,   1e-291,  3e-291, 123456789.125};
  std::mt19937_64 random(4);
  for (int round = 0; round < 3000; ++round) {
    Chart chart = {.title = "t", .x_label = "x", .series = {}};
    chart.log_x = random() % 2 == 0;
    chart.log_y = random() % 2 == 0;
    // Few kinds of values in a chart, so that narrow axes are frequent.
    const size_t kinds = 1 + random() % 3;
    std::vector<double> some;
    for (size_t i = 0; i < kinds; ++i) {
      some.push_back(wild[random() % wild.size()]);
    }
    const auto value = [&] {
      const double base = some[random() % kinds];
      return random() % 4 == 0 ? base * 1.5 : base;
    };
    for (size_t s = random() % 3; s-- > 0;) {
      std::vector<Point> points(random() % 6);
      for (Point& point : points) point = {value(), value()};
      if (random() % 2 == 0) std::sort(points.begin(), points.end());
      chart.series.push_back({"s", std::move(points)});
    }
    chart.marks.emplace_back(value(), "mark");
    const Drawn drawn = Read(ToSvg(chart));
    CHECK(drawn.x_ticks.size() < 20);
    CHECK(drawn.y_ticks.size() < 20);
    CHECK((drawn.Points().empty() || drawn.y_ticks.size() > 1));
  }
}

TEST_CASE("report: decimation keeps the extremes of each pixel") {
  std::mt19937 random(5);
  std::normal_distribution<double> noise;
  for (const size_t count : {3000u, 20000u, 100000u}) {
    std::vector<Point> points;
    for (size_t i = 0; i < count; ++i) {
      points.emplace_back(static_cast<double>(i), noise(random));
    }
    const Drawn drawn = Read(ToSvg(ChartOf(points)));
    REQUIRE(drawn.lines.size() == 1);
    const std::vector<Point>& line = drawn.lines[0];
    CHECK(line.size() < 4 * 640);
    // First and last are kept, and so are the least and greatest: they give
    // both scales.
    const auto by_y = [](const Point& a, const Point& b) {
      return a.second < b.second;
    };
    const auto [least, greatest] =
        std::minmax_element(points.begin(), points.end(), by_y);
    const auto [top, bottom] =
        std::minmax_element(line.begin(), line.end(), by_y);
    struct Extremes {
      double low = kInf, high = -kInf;
      void Include(double y) {
        low = std::min(low, y);
        high = std::max(high, y);
      }
    };
    std::map<int, Extremes> wanted, got;
    for (const auto& [x, y] : points) {
      const double place =
          Between(x, {points.front().first, line.front().first},
                  {points.back().first, line.back().first}, Same);
      wanted[static_cast<int>(std::floor(std::round(place * 10) / 10))].Include(
          Between(y, {least->second, bottom->second},
                  {greatest->second, top->second}, Same));
    }
    for (const auto& [x, y] : line) {
      got[static_cast<int>(std::floor(x))].Include(y);
    }
    REQUIRE(wanted.size() == got.size());
    for (const auto& [column, extremes] : wanted) {
      CHECK(std::abs(got[column].low - extremes.low) < 0.16);
      CHECK(std::abs(got[column].high - extremes.high) < 0.16);
    }
    for (size_t i = 1; i < line.size(); ++i) {
      CHECK(line[i - 1].first <= line[i].first);
    }
  }
}

TEST_CASE("report: a long series with many gaps stays small") {
  std::vector<Point> points;
  for (int i = 0; i < 200000; ++i) {
    points.emplace_back(i, i % 2 == 0 ? kNaN : i % 7);
  }
  CHECK(ToSvg(ChartOf(points)).size() < 100000);
}

TEST_CASE("report: lines have their own looks and an escaped legend") {
  Chart chart = {.title = "<b>", .x_label = "a & b", .series = {}};
  for (int i = 0; i < 20; ++i) {
    chart.series.push_back(
        {"\"s\" <" + std::to_string(i) + "> &'", {{0, i}, {1, i + 1}}});
  }
  const std::string svg = ToSvg(chart);
  Read(svg);
  CHECK(Contains(svg, "&lt;b&gt;"));
  CHECK(Contains(svg, ">a &amp; b</text>"));
  CHECK(svg.find("<b>") == std::string::npos);
  std::set<std::string> looks;
  size_t at = 0;
  for (int i = 0; i < 20; ++i) {
    CHECK(Contains(svg, ">&quot;s&quot; &lt;" + std::to_string(i) +
                            "&gt; &amp;&#39;</text>"));
    const size_t path = svg.find("<path", at);
    const size_t group = svg.rfind("<g class=\"", path);
    at = path + 1;
    looks.insert(
        Attribute(svg.substr(group, svg.find('>', group) - group), "class") +
        Attribute(svg.substr(path, svg.find('>', path) - path),
                  "stroke-dasharray"));
  }
  CHECK(looks.size() == 20);
  CHECK(Read(svg).height > Read(ToSvg(ChartOf({{0, 0}}))).height);
}

TEST_CASE("report: a long name is cut, in no character's middle") {
  for (const std::string character :
       {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x90\xB1"}) {
    for (size_t before = 0; before < 8; ++before) {
      Chart chart = ChartOf({});
      std::string& name = chart.series[0].name;
      name.assign(before, 'a');
      for (int i = 0; i < 500; ++i) name += character;
      const std::string svg = ToSvg(chart);
      CHECK(Contains(svg, character + "\xE2\x80\xA6</text>"));
      CHECK(svg.find("\xEF\xBF\xBD") == std::string::npos);
      CHECK(svg.size() < 1500);
    }
  }
}

TEST_CASE("report: marks stand at their place, those beyond the axis do not") {
  Chart chart = ChartOf({{0, 1}, {100, 2}});
  chart.marks = {
      {25, "a < b"}, {100, "end"}, {101, "out"}, {-1, "out"}, {kNaN, "out"}};
  const std::string svg = ToSvg(chart);
  const Drawn drawn = Read(svg);
  REQUIRE(drawn.marks.size() == 2);
  const std::vector<Point>& line = drawn.lines.at(0);
  CHECK(std::abs(drawn.marks[0] - Between(25, {0, line[0].first},
                                          {100, line[1].first}, Same)) < 0.16);
  CHECK(drawn.marks[1] == line[1].first);
  CHECK(Contains(svg, ">a &lt; b</text>"));
  CHECK(svg.find(">out<") == std::string::npos);
}

}  // namespace
}  // namespace sluice::report
