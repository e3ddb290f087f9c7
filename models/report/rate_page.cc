#include "models/report/rate_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "models/report/html.h"
#include "models/report/line_chart.h"

namespace sluice::report {
namespace {

std::string Verdict(const RateCurve& curve) {
  std::string text =
      curve.suggested
          ? fmt::format(
                "Suggested learning rate: <strong>{:.3g}</strong>, "
                "where the smoothed loss falls steepest.",
                *curve.suggested)
          : "No learning rate is suggested: the smoothed loss never fell.";
  if (curve.diverged) {
    text += fmt::format(" The loss diverged at {:.3g}.", curve.rates.back());
  }
  return text;
}

// Above it nothing is drawn: the losses of a training that diverges leave no
// room for the others.
double Top(const RateCurve& curve) {
  double least = std::numeric_limits<double>::infinity();
  double greatest = -least;
  const size_t last = curve.smoothed.size() - (curve.diverged ? 1 : 0);
  for (size_t i = 0; i < last; ++i) {
    least = std::min(least, curve.smoothed[i]);
    greatest = std::max(greatest, curve.smoothed[i]);
  }
  const double range = greatest - least;
  return range > 0 ? greatest + range : std::numeric_limits<double>::infinity();
}

Series SeriesOf(std::string name, const std::vector<double>& rates,
                const std::vector<double>& losses, double top) {
  Series series{.name = std::move(name), .points = {}};
  for (size_t i = 0; i < rates.size(); ++i) {
    const double drawn =
        losses[i] > top ? std::numeric_limits<double>::quiet_NaN() : losses[i];
    series.points.emplace_back(rates[i], drawn);
  }
  return series;
}

std::string ChartOf(const RateCurve& curve) {
  Chart chart;
  chart.title = "Loss against learning rate";
  chart.x_label = "learning rate";
  chart.log_x = true;
  const double top = Top(curve);
  chart.series = {SeriesOf("loss", curve.rates, curve.losses, top),
                  SeriesOf("smoothed", curve.rates, curve.smoothed, top)};
  if (curve.suggested) {
    chart.marks = {
        {*curve.suggested, fmt::format("suggested: {:.3g}", *curve.suggested)}};
  }
  return ToSvg(chart);
}

std::string Table(const RateCurve& curve) {
  std::string rows;
  for (size_t i = 0; i < curve.rates.size(); ++i) {
    rows += fmt::format(
        "<tr><td>{}</td><td>{:.3g}</td><td>{:.6g}</td><td>{:.6g}</td></tr>\n",
        i + 1, curve.rates[i], curve.losses[i], curve.smoothed[i]);
  }
  return "<h2>Steps</h2>\n<div class=\"scroll\"><table>\n<thead><tr>"
         "<th scope=\"col\">step</th><th scope=\"col\">learning rate</th>"
         "<th scope=\"col\">loss</th><th scope=\"col\">smoothed</th></tr>"
         "</thead>\n<tbody>\n" +
         rows + "</tbody>\n</table></div>\n";
}

}  // namespace

std::string RatePage(const RateCurve& curve, std::string_view title) {
  return Page(title,
              fmt::format("<h1>{}</h1>\n<p>{}</p>\n{}\n{}", Escape(title),
                          Verdict(curve), ChartOf(curve), Table(curve)));
}

}  // namespace sluice::report
