#include "models/report/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <string_view>

#include "models/report/html.h"

namespace sluice::report {
namespace {

// Lengths are in units of the viewBox: pixels, unless the page scales it.
constexpr double kWidth = 640;
constexpr double kTop = 30, kBottom = 300, kRight = kWidth - 16;
constexpr double kInset = 6;        // of the lines within the frame
constexpr double kRow = 18;         // of the legend
constexpr double kLegendTop = 354;  // baseline of its first row
constexpr size_t kColors = 8;       // c0 to c7 in the style sheet

// About what a character takes of sans-serif at 12 pixels. Bytes that continue
// a UTF-8 character take nothing; other scripts are wider.
double WidthOf(char byte) {
  const auto value = static_cast<uint8_t>(byte);
  if (value < 0x80) return 6.6;
  return value < 0xC0 ? 0 : 12;
}
double WidthOf(std::string_view text) {
  double width = 0;
  for (const char byte : text) width += WidthOf(byte);
  return width;
}

// Text for an element, cut where it would be wider than `width`.
std::string Fitted(std::string_view text, double width) {
  if (WidthOf(text) <= width) return Escape(text);
  size_t end = 0;
  for (double used = 12; end < text.size(); ++end) {
    used += WidthOf(text[end]);
    if (used > width) break;
  }
  return Escape(text.substr(0, end)) + "\u2026";
}

// "0.25", "120000", "1.5e6", "2e-7".
std::string NumberText(double value, int digits) {
  std::string text = fmt::format("{:.{}g}", value, digits);
  const size_t e = text.find('e');
  if (e == std::string::npos) return text;
  return fmt::format("{}e{}", text.substr(0, e),
                     std::strtol(text.c_str() + e + 1, nullptr, 10));
}

struct Tick {
  double at;  // on the axis's scale
  std::string label;
};

// The values of one direction. Its scale is the values themselves or their
// logarithms to base 10.
class Axis {
 public:
  explicit Axis(bool log) : log_(log) {}

  // Not finite for a value that has no place on the axis.
  double Scaled(double value) const {
    if (!log_) return value;
    return value > 0 ? std::log10(value)
                     : std::numeric_limits<double>::quiet_NaN();
  }
  void Include(double scaled) {
    low_ = std::min(low_, scaled);
    high_ = std::max(high_, scaled);
  }
  // To be called after the last Include, of one at least: gives values that
  // are the same, or nearly, an axis of some length.
  void Close();

  bool Covers(double scaled) const { return scaled >= low_ && scaled <= high_; }
  // 0 at the begin, 1 at the end.
  double Fraction(double scaled) const {
    // Halves, as the difference of two doubles may be beyond them.
    const double fraction = (scaled / 2 - low_ / 2) / (high_ / 2 - low_ / 2);
    return std::clamp(fraction, 0.0, 1.0);
  }
  // Round numbers within the axis, about `count` unless it is logarithmic.
  std::vector<Tick> Ticks(int count) const {
    return log_ ? LogTicks() : LinearTicks(count);
  }

 private:
  std::vector<Tick> LinearTicks(int count) const;
  std::vector<Tick> LogTicks() const;
  double Magnitude() const { return std::max(std::abs(low_), std::abs(high_)); }

  bool log_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
};

void Axis::Close() {
  constexpr double kTiny = 1e-290;  // below it ticks would be subnormal
  const double magnitude = Magnitude();
  const double middle = low_ / 2 + high_ / 2;
  double half = high_ / 2 - low_ / 2;
  if (log_) {
    half = std::max(half, 0.35);  // from 2 to 10: two ticks at least
  } else if (magnitude < kTiny) {
    half = 1;
  } else if (half < 1e-12 * magnitude) {
    half = magnitude / 10;
  } else {
    return;
  }
  constexpr double kMax = std::numeric_limits<double>::max();
  low_ = std::max(middle - half, -kMax);
  high_ = std::min(middle + half, kMax);
}

std::vector<Tick> Axis::LinearTicks(int count) const {
  const double wanted = high_ / count - low_ / count;
  const double exponent = std::floor(std::log10(wanted));
  const double power = std::pow(10, exponent);
  double step = 10 * power;
  for (const double round : {5.0, 2.0, 1.0}) {
    if (round * power >= wanted) step = round * power;
  }
  // As many digits as tell neighbours apart.
  const int digits =
      2 + static_cast<int>(std::floor(std::log10(Magnitude())) - exponent);
  std::vector<Tick> ticks;
  // Adding 0 makes 0 of -0.
  const double last = std::floor(high_ / step + 1e-9);
  for (double i = std::ceil(low_ / step - 1e-9) + 0.0; i <= last; ++i) {
    ticks.push_back({i * step, NumberText(i * step, std::max(digits, 6))});
  }
  return ticks;
}

std::vector<Tick> Axis::LogTicks() const {
  const double span = high_ - low_;
  const bool decades = span >= 2;  // else 1, 2 and 5 of each
  const double stride = decades ? std::ceil(span / 6) : 1;
  std::vector<Tick> ticks;
  for (double exponent = std::floor(low_); exponent <= high_; ++exponent) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      if (decades && (digit != 1 || std::fmod(exponent, stride) != 0)) continue;
      const double at = exponent + std::log10(digit);
      if (at < low_ - 1e-9 || at > high_ + 1e-9) continue;
      // A power beyond the doubles has a name all the same.
      ticks.push_back({at, std::abs(exponent) <= 4
                               ? NumberText(digit * std::pow(10, exponent), 6)
                               : fmt::format("{}e{}", digit, exponent)});
    }
  }
  return ticks;
}

struct Pixel {
  double x, y;
  friend bool operator==(const Pixel&, const Pixel&) = default;
};
using Stretch = std::vector<Pixel>;

double ToTenth(double length) {
  return std::round(length * 10) / 10;
}

// The frame and what is at which place in it.
struct Plot {
  Axis x, y;
  double left = 0;  // of the frame; the other sides are constant

  double X(double scaled) const {
    const double width = kRight - left - 2 * kInset;
    return ToTenth(left + kInset + width * x.Fraction(scaled));
  }
  double Y(double scaled) const {
    const double height = kBottom - kTop - 2 * kInset;
    return ToTenth(kBottom - kInset - height * y.Fraction(scaled));
  }
};

// The points of a line, x growing, that lie in one column of pixels: as far as
// one sees, its first, highest, lowest and last.
class Column {
 public:
  explicit Column(Pixel pixel)
      : first_(pixel), top_(pixel), bottom_(pixel), last_(pixel) {}

  bool Holds(Pixel pixel) const {
    return std::floor(pixel.x) == std::floor(first_.x);
  }
  void Add(Pixel pixel) {
    if (pixel.y < top_.y) {
      top_ = pixel;
      top_is_later_ = true;
    }
    if (pixel.y > bottom_.y) {
      bottom_ = pixel;
      top_is_later_ = false;
    }
    last_ = pixel;
  }
  void AppendTo(Stretch& stretch) const {
    for (const Pixel& pixel : {first_, top_is_later_ ? bottom_ : top_,
                               top_is_later_ ? top_ : bottom_, last_}) {
      if (stretch.empty() || stretch.back() != pixel) stretch.push_back(pixel);
    }
  }

 private:
  Pixel first_, top_, bottom_, last_;
  bool top_is_later_ = false;  // than bottom_
};

// The unbroken parts of a line.
std::vector<Stretch> StretchesOf(const Series& series, const Plot& plot) {
  std::vector<Stretch> stretches;
  std::vector<Column> column;  // the one being filled, if any
  bool broken = true;
  for (const auto& [x, y] : series.points) {
    const double scaled_x = plot.x.Scaled(x), scaled_y = plot.y.Scaled(y);
    if (!std::isfinite(scaled_x) || !std::isfinite(scaled_y)) {
      broken = true;
      continue;
    }
    const Pixel pixel = {plot.X(scaled_x), plot.Y(scaled_y)};
    if (!column.empty() && column[0].Holds(pixel)) {
      column[0].Add(pixel);
    } else {
      if (!column.empty()) column[0].AppendTo(stretches.back());
      if (broken) stretches.emplace_back();
      column.assign(1, Column(pixel));
    }
    broken = false;
  }
  if (!column.empty()) column[0].AppendTo(stretches.back());
  return stretches;
}

// Lines that share a colour differ in their dashes.
std::string DashOf(size_t series) {
  const size_t round = series / kColors;
  if (round == 0) return "";
  return fmt::format(" stroke-dasharray=\"{} 4\"", 2 + 4 * (round - 1));
}

void AddText(std::string& svg, double x, double y, std::string_view attributes,
             std::string_view escaped) {
  fmt::format_to(std::back_inserter(svg),
                 "<text x=\"{}\" y=\"{}\"{}>{}</text>\n", ToTenth(x),
                 ToTenth(y), attributes, escaped);
}

void AddRule(std::string& svg, std::string_view kind, Pixel from, Pixel to) {
  fmt::format_to(std::back_inserter(svg),
                 "<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" "
                 "y2=\"{}\"/>\n",
                 kind, from.x, from.y, to.x, to.y);
}

void AddGrid(std::string& svg, const Plot& plot,
             const std::vector<Tick>& y_ticks, std::string_view x_label) {
  for (const Tick& tick : plot.x.Ticks(7)) {
    const double x = plot.X(tick.at);
    AddRule(svg, "rule", {x, kTop}, {x, kBottom});
    AddText(svg, x, kBottom + 16, " class=\"tick\" text-anchor=\"middle\"",
            tick.label);
  }
  for (const Tick& tick : y_ticks) {
    const double y = plot.Y(tick.at);
    AddRule(svg, "rule", {plot.left, y}, {kRight, y});
    AddText(svg, plot.left - 6, y + 4, " class=\"tick\" text-anchor=\"end\"",
            tick.label);
  }
  AddText(svg, (plot.left + kRight) / 2, kBottom + 34,
          " class=\"label\" text-anchor=\"middle\"",
          Fitted(x_label, kRight - plot.left));
}

void AddMarks(std::string& svg, const Chart& chart, const Plot& plot) {
  int row = 0;  // neighbours' texts are not in one line
  for (const auto& [value, text] : chart.marks) {
    const double scaled = plot.x.Scaled(value);
    if (!plot.x.Covers(scaled)) continue;
    const double x = plot.X(scaled);
    const bool to_the_left = x > (plot.left + kRight) / 2;
    AddRule(svg, "mark", {x, kTop}, {x, kBottom});
    AddText(svg, to_the_left ? x - 4 : x + 4, kTop + 12 + 14 * row,
            to_the_left ? " class=\"label\" text-anchor=\"end\""
                        : " class=\"label\"",
            Fitted(text, to_the_left ? x - plot.left : kRight - x));
    row = (row + 1) % 4;
  }
}

void AddLine(std::string& svg, const Series& series, size_t number,
             const Plot& plot) {
  const auto out = std::back_inserter(svg);
  std::string path, dots;
  for (const Stretch& stretch : StretchesOf(series, plot)) {
    if (stretch.size() == 1) {
      fmt::format_to(std::back_inserter(dots),
                     "<circle cx=\"{}\" cy=\"{}\" r=\"2.5\"/>\n", stretch[0].x,
                     stretch[0].y);
      continue;
    }
    char command = 'M';
    for (const Pixel& pixel : stretch) {
      fmt::format_to(std::back_inserter(path), "{}{} {}", command, pixel.x,
                     pixel.y);
      command = 'L';
    }
  }
  fmt::format_to(out, "<g class=\"c{}\"><title>{}</title>\n", number % kColors,
                 Escape(series.name));
  if (!path.empty()) {
    fmt::format_to(out, "<path d=\"{}\"{}/>\n", path, DashOf(number));
  }
  svg += dots + "</g>\n";
}

// Returns its height.
double AddLegend(std::string& svg, const std::vector<Series>& series) {
  constexpr double kKey = 22, kGap = 18, kWidest = 280;
  double x = kInset, y = kLegendTop;
  for (size_t i = 0; i < series.size(); ++i) {
    const double width =
        kKey + std::min(WidthOf(series[i].name), kWidest) + kGap;
    if (x > kInset && x + width > kRight) {
      x = kInset;
      y += kRow;
    }
    fmt::format_to(std::back_inserter(svg),
                   "<g class=\"c{}\"><line class=\"key\" x1=\"{}\" y1=\"{}\" "
                   "x2=\"{}\" y2=\"{}\"{}/></g>\n",
                   i % kColors, ToTenth(x), y - 4, ToTenth(x + kKey - 6), y - 4,
                   DashOf(i));
    AddText(svg, x + kKey, y, "", Fitted(series[i].name, kWidest));
    x += width;
  }
  return series.empty() ? 0 : y - kLegendTop + kRow;
}

// Axes that hold all points of all series; false where there is none.
bool FitAxes(const Chart& chart, Plot& plot) {
  bool any = false;
  for (const Series& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      const double scaled_x = plot.x.Scaled(x), scaled_y = plot.y.Scaled(y);
      if (!std::isfinite(scaled_x) || !std::isfinite(scaled_y)) continue;
      plot.x.Include(scaled_x);
      plot.y.Include(scaled_y);
      any = true;
    }
  }
  if (!any) return false;
  plot.x.Close();
  plot.y.Close();
  return true;
}

}  // namespace

std::string ToSvg(const Chart& chart) {
  std::string svg;
  AddText(svg, kInset, 18, " class=\"title\"",
          Fitted(chart.title, 0.85 * (kWidth - 2 * kInset)));
  Plot plot = {Axis(chart.log_x), Axis(chart.log_y)};
  if (FitAxes(chart, plot)) {
    const std::vector<Tick> y_ticks = plot.y.Ticks(5);
    for (const Tick& tick : y_ticks) {
      plot.left = std::max(plot.left, WidthOf(tick.label) + 12);
    }
    AddGrid(svg, plot, y_ticks, chart.x_label);
    for (size_t i = 0; i < chart.series.size(); ++i) {
      AddLine(svg, chart.series[i], i, plot);
    }
    AddMarks(svg, chart, plot);
  } else {
    AddText(svg, kWidth / 2, (kTop + kBottom) / 2,
            " class=\"label\" text-anchor=\"middle\"", "no points");
  }
  const double legend = AddLegend(svg, chart.series);
  return fmt::format(
      "<svg class=\"chart\" role=\"img\" viewBox=\"0 0 {} {}\" "
      "aria-label=\"{}\">\n{}</svg>\n",
      kWidth, kLegendTop - kRow + legend + 6, Escape(chart.title), svg);
}

}  // namespace sluice::report
