// Line charts as SVG elements, to stand in a page (html.h).
#ifndef SLUICE_MODELS_REPORT_LINE_CHART_H_
#define SLUICE_MODELS_REPORT_LINE_CHART_H_

#include <string>
#include <utility>
#include <vector>

namespace sluice::report {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x and y, x growing
};

struct Chart {
  std::string title, x_label;
  bool log_x = false;
  bool log_y = false;
  std::vector<Series> series;
  // Vertical lines at some x, with what they mean. Those beyond the axis are
  // left out.
  std::vector<std::pair<double, std::string>> marks = {};
};

// Axes with round numbers, a line and a legend entry for each series. Where a
// value is not finite, or has no logarithm on such an axis, the line is broken;
// a point alone is a dot. Of a series with more points than there are pixels,
// each pixel's least and greatest value are drawn, and gaps within one pixel
// are not seen. A chart without any point says so.
std::string ToSvg(const Chart& chart);

}  // namespace sluice::report

#endif  // SLUICE_MODELS_REPORT_LINE_CHART_H_
