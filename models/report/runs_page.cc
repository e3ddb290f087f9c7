#include "models/report/runs_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "io/files/without_query.h"
#include "models/report/html.h"

namespace sluice::report {
namespace {

// ---- Charts.

// Where a chart stands: before and behind those of metrics.
int PlaceOf(std::string_view name) {
  constexpr std::array<std::string_view, 3> kLast = {
      "learning_rate", "loss_scale", "examples_per_second"};
  if (name == "loss") return 0;
  const auto* const found = std::find(kLast.begin(), kLast.end(), name);
  return found == kLast.end() ? 1 : 2 + static_cast<int>(found - kLast.begin());
}

// The names of scalars in the order of their charts; with `set` its own alone.
std::vector<std::string> NamesIn(const std::vector<RunCurves>& runs,
                                 std::optional<std::string_view> set) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const RunCurves& run : runs) {
    for (const ScalarRow& row : run.rows) {
      if (set && row.set != *set) continue;
      if (seen.insert(row.name).second) names.push_back(row.name);
    }
  }
  std::stable_sort(names.begin(), names.end(),
                   [](const std::string& a, const std::string& b) {
                     return PlaceOf(a) < PlaceOf(b);
                   });
  return names;
}

// Values by step.
using Curve = std::map<int64_t, double>;

// By set and name.
std::map<std::pair<std::string, std::string>, Curve> CurvesOf(
    const RunCurves& run) {
  std::map<std::pair<std::string, std::string>, Curve> curves;
  for (const ScalarRow& row : run.rows) {
    curves[{row.set, row.name}][row.step] = row.value;
  }
  return curves;
}

Series SeriesOf(std::string name, const Curve& curve) {
  Series series = {std::move(name), {}};
  series.points.reserve(curve.size());
  for (const auto& [step, value] : curve) {
    series.points.emplace_back(static_cast<double>(step), value);
  }
  return series;
}

// ---- The page.

struct TableColumn {
  std::string heading;
  bool text = false;  // else figures
};
using Rows = std::vector<std::vector<std::string>>;

// The first column names the rows.
std::string Table(const std::vector<TableColumn>& columns, const Rows& rows) {
  const auto element = [&](std::string_view tag, std::string_view scope,
                           size_t column, std::string_view text) {
    return fmt::format("<{0}{1}{2}>{3}</{0}>", tag, scope,
                       columns[column].text ? " class=\"text\"" : "",
                       Escape(text));
  };
  std::string html = "<div class=\"scroll\"><table>\n<thead><tr>";
  for (size_t i = 0; i < columns.size(); ++i) {
    html += element("th", " scope=\"col\"", i, columns[i].heading);
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    html += "<tr>" + element("th", " scope=\"row\"", 0, row[0]);
    for (size_t i = 1; i < row.size(); ++i) {
      html += element("td", "", i, row[i]);
    }
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table></div>\n";
}

std::string Figure(double value) {
  return fmt::format("{:.5g}", value);
}

// Whether a word of the name is one of these, or ends so: "logloss".
bool HasWord(std::string_view name, std::span<const std::string_view> words) {
  const auto ends = [&](std::string_view part) {
    return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
      return part.ends_with(word);
    });
  };
  size_t begin = 0;
  for (size_t at = 0; at <= name.size(); ++at) {
    const bool inside =
        at < name.size() && std::isalnum(static_cast<unsigned char>(name[at]));
    if (inside) continue;
    if (ends(name.substr(begin, at - begin))) return true;
    begin = at + 1;
  }
  return false;
}

// As far as a name tells; nullopt: it does not.
std::optional<bool> HigherIsBetter(std::string_view name) {
  constexpr std::array<std::string_view, 7> kLower = {
      "loss", "error", "perplexity", "entropy", "mae", "mse", "rmse"};
  constexpr std::array<std::string_view, 5> kHigher = {"accuracy", "precision",
                                                       "recall", "auc", "f1"};
  if (HasWord(name, kLower)) return false;
  if (HasWord(name, kHigher)) return true;
  return std::nullopt;
}

// The first metric of evaluations, by which the training judges: in the rows'
// order, which is the model's. "" where there is none.
std::string_view FirstMetric(const RunCurves& run) {
  for (const ScalarRow& row : run.rows) {
    if (row.set == "eval" && row.name != "loss") return row.name;
  }
  return "";
}

// The same of a run's figure.
std::optional<bool> HigherIsBetter(const RunCurves& run,
                                   std::string_view name) {
  return run.facts.higher_is_better && name == FirstMetric(run)
             ? run.facts.higher_is_better
             : HigherIsBetter(name);
}

// "0.98 at step 400"; empty where no value is finite, or it is not known which
// are better.
std::string Best(const Curve& curve, std::optional<bool> higher_is_better) {
  if (!higher_is_better) return "";
  const double sign = *higher_is_better ? 1 : -1;
  std::optional<std::pair<int64_t, double>> best;
  for (const auto& [step, value] : curve) {
    if (!std::isfinite(value)) continue;
    if (!best || sign * value > sign * best->second) best = {step, value};
  }
  if (!best) return "";
  return fmt::format("{} at step {}", Figure(best->second), best->first);
}

std::vector<std::string> RowOf(const RunCurves& run,
                               const std::vector<std::string>& figures) {
  int64_t steps = 0;
  double seconds = 0;
  for (const ScalarRow& row : run.rows) {
    steps = std::max(steps, row.step);
    seconds = std::max(seconds, row.seconds);
  }
  std::vector<std::string> cells = {run.name, run.facts.model,
                                    fmt::format("{}", steps),
                                    fmt::format("{:.1f}", seconds)};
  auto curves = CurvesOf(run);
  for (const std::string& name : figures) {
    const Curve& curve = curves[{"eval", name}];
    cells.push_back(curve.empty() ? "" : Figure(curve.rbegin()->second));
    cells.push_back(Best(curve, HigherIsBetter(run, name)));
  }
  return cells;
}

std::string RunTable(const std::vector<RunCurves>& runs) {
  const std::vector<std::string> figures = NamesIn(runs, "eval");
  std::vector<TableColumn> columns = {{.heading = "training", .text = true},
                                      {.heading = "model", .text = true},
                                      {.heading = "steps"},
                                      {.heading = "seconds"}};
  for (const std::string& name : figures) {
    columns.push_back({.heading = name + ", last"});
    columns.push_back({.heading = name + ", best"});
  }
  const bool notes =
      std::any_of(runs.begin(), runs.end(),
                  [](const RunCurves& run) { return !run.facts.note.empty(); });
  if (notes) columns.push_back({.heading = "note", .text = true});
  Rows rows;
  rows.reserve(runs.size());
  for (const RunCurves& run : runs) {
    rows.push_back(RowOf(run, figures));
    if (notes) rows.back().push_back(run.facts.note);
  }
  return Table(columns, rows);
}

// A row for each flag that not all runs have, with one value; "" without any.
std::string FlagTable(const std::vector<RunCurves>& runs) {
  std::set<std::string> names;
  std::vector<TableColumn> columns = {{.heading = "flag", .text = true}};
  for (const RunCurves& run : runs) {
    for (const auto& [name, value] : run.facts.flags) names.insert(name);
    columns.push_back({.heading = run.name, .text = true});
  }
  Rows rows;
  for (const std::string& name : names) {
    std::vector<std::string> cells = {"--" + name};
    std::set<std::optional<std::string>> values;
    for (const RunCurves& run : runs) {
      const auto found = run.facts.flags.find(name);
      std::optional<std::string> value;
      if (found != run.facts.flags.end()) value = WithoutQuery(found->second);
      cells.push_back(value.value_or(""));
      values.insert(std::move(value));
    }
    if (values.size() > 1) rows.push_back(std::move(cells));
  }
  if (rows.empty()) return "";
  return "<h2>Flags that differ</h2>\n" + Table(columns, rows);
}

}  // namespace

std::vector<Chart> ChartsOf(const std::vector<RunCurves>& runs) {
  std::vector<Chart> charts;
  std::map<std::string, size_t> index;  // in charts
  for (std::string& name : NamesIn(runs, std::nullopt)) {
    index[name] = charts.size();
    charts.push_back(
        {.title = std::move(name), .x_label = "step", .series = {}});
  }
  for (const RunCurves& run : runs) {
    const std::string prefix = runs.size() == 1 ? "" : run.name + " ";
    const auto curves = CurvesOf(run);
    // Backwards, so that "train" is before "eval".
    for (auto it = curves.rbegin(); it != curves.rend(); ++it) {
      const auto& [set, name] = it->first;
      charts[index.at(name)].series.push_back(
          SeriesOf(prefix + set, it->second));
    }
  }
  return charts;
}

std::string RunsPage(const std::vector<RunCurves>& runs) {
  std::string body = "<h1>Trainings</h1>\n" + RunTable(runs) + FlagTable(runs) +
                     "<h2>Curves</h2>\n<div class=\"grid charts\">\n";
  for (const Chart& chart : ChartsOf(runs)) body += ToSvg(chart) + "\n";
  return Page("Trainings", body + "</div>\n");
}

}  // namespace sluice::report
