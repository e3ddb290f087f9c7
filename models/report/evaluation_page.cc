#include "models/report/evaluation_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

#include "models/report/html.h"

namespace sluice::report {
namespace {

constexpr size_t kMostClassRows = 100;
constexpr int64_t kMostMatrixClasses = 30;
constexpr size_t kMostConfusions = 50;

template <typename... Values>
void Append(std::string& html, fmt::format_string<Values...> format,
            Values&&... values) {
  fmt::format_to(std::back_inserter(html), format,
                 std::forward<Values>(values)...);
}

// Of a share; a dash where there is none (NaN).
std::string Percent(double share, int decimals = 1) {
  return std::isnan(share)
             ? "\u2013"
             : fmt::format("{:.{}f}\u00A0%", 100 * share, decimals);
}

// The name and, as two classes may have the same, the number.
std::string ClassHtml(const Classification& classification, int64_t number) {
  const std::string name = Escape(classification.ClassName(number));
  return classification.HasName(number)
             ? fmt::format("{} <span>{}</span>", name, number)
             : name;
}

std::string Headline(const Classification& classification) {
  std::string html = "<dl class=\"headline\">\n";
  const auto add = [&](std::string_view name, const std::string& value) {
    Append(html, "<div><dt>{}</dt><dd>{}</dd></div>\n", name, value);
  };
  const int64_t examples = classification.examples();
  add("accuracy", Percent(classification.Accuracy(), 2));
  add("wrong",
      fmt::format("{} of {}", examples - classification.correct(), examples));
  if (const int64_t undecided = classification.undecided(); undecided > 0) {
    add("of these, probabilities that are no numbers",
        fmt::format("{}", undecided));
  }
  add("mean F1 of the classes", Percent(classification.MacroF1()));
  add("mean confidence", Percent(classification.Confidence()));
  return html + "</dl>\n";
}

std::string FactTable(const EvaluationFacts& facts) {
  if (facts.facts.empty()) return "";
  std::string html = "<table class=\"facts\"><tbody>\n";
  for (const auto& [name, value] : facts.facts) {
    Append(html, "<tr><th>{}</th><td>{}</td></tr>\n", Escape(name),
           Escape(value));
  }
  return html + "</tbody></table>\n";
}

std::string Charts(const std::vector<Chart>& charts) {
  if (charts.empty()) return "";
  std::string html = "<h2>Training</h2>\n<div class=\"grid charts\">\n";
  for (const Chart& chart : charts) html += ToSvg(chart);
  return html + "</div>\n";
}

std::string ClassTable(const Classification& classification) {
  struct Row {
    int64_t number;
    ClassFigures figures;
  };
  std::vector<Row> rows;
  for (int64_t i = 0; i < classification.classes(); ++i) {
    rows.push_back({i, classification.Figures(i)});
  }
  std::string html = "<h2>Classes</h2>\n";
  if (rows.size() > kMostClassRows) {
    Append(html, "<p>The {} of {} classes with the least F1.</p>\n",
           kMostClassRows, rows.size());
    // Classes that did not occur have no F1 and come last.
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      const double x = a.figures.f1, y = b.figures.f1;
      return std::isnan(y) ? !std::isnan(x) : x < y;
    });
    rows.resize(kMostClassRows);
  }
  html +=
      "<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">class</th>"
      "<th scope=\"col\">examples</th><th scope=\"col\">recall</th>"
      "<th scope=\"col\">precision</th><th scope=\"col\">F1</th>"
      "<th scope=\"col\">confidence</th></tr></thead>\n<tbody>\n";
  for (const auto& [number, figures] : rows) {
    Append(html,
           "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td>"
           "<td>{}</td><td>{}</td></tr>\n",
           ClassHtml(classification, number), figures.examples,
           Percent(figures.recall), Percent(figures.precision),
           Percent(figures.f1), Percent(figures.confidence));
  }
  return html + "</tbody></table></div>\n";
}

// A cell, the more coloured the greater its share of the row. The root keeps
// the rare confusions visible; at 55 % the text is still read easily.
std::string MatrixCell(const Classification& classification, int64_t label,
                       int64_t predicted) {
  const int64_t count = classification.Count(label, predicted);
  if (count == 0) return "<td></td>";
  const double share =
      static_cast<double>(count) /
      static_cast<double>(classification.Figures(label).examples);
  return fmt::format(
      "<td style=\"background:rgb(var(--{})/{:.0f}%)\" title=\"{} taken for "
      "{}: {}\">{}</td>",
      label == predicted ? "right" : "wrong", 5 + 50 * std::sqrt(share),
      Escape(classification.ClassName(label)),
      Escape(classification.ClassName(predicted)), Percent(share), count);
}

std::string ConfusionMatrix(const Classification& classification) {
  const int64_t classes = classification.classes();
  // Columns are narrow: long names stand upright.
  constexpr size_t kShort = 3;
  bool upright = false;
  for (int64_t i = 0; i < classes; ++i) {
    upright = upright || classification.ClassName(i).size() > kShort;
  }
  std::string html = fmt::format(
      "<h2>Confusion matrix</h2>\n<p class=\"dim\">A row for each label, a "
      "column for each prediction.</p>\n<div class=\"scroll\">"
      "<table class=\"matrix{}\">\n<thead><tr><td></td>",
      upright ? " upright" : "");
  for (int64_t i = 0; i < classes; ++i) {
    Append(html, "<th scope=\"col\">{}</th>", ClassHtml(classification, i));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (int64_t label = 0; label < classes; ++label) {
    Append(html, "<tr><th scope=\"row\">{}</th>",
           ClassHtml(classification, label));
    for (int64_t predicted = 0; predicted < classes; ++predicted) {
      html += MatrixCell(classification, label, predicted);
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string ConfusionTable(const Classification& classification) {
  std::vector<Confusion> confusions = classification.Confusions();
  std::string html = "<h2>Most confused classes</h2>\n";
  if (confusions.empty()) return html + "<p>None was confused.</p>\n";
  if (confusions.size() > kMostConfusions) {
    Append(html, "<p>The {} most frequent of {} confusions.</p>\n",
           kMostConfusions, confusions.size());
    confusions.resize(kMostConfusions);
  }
  html +=
      "<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">label</th>"
      "<th scope=\"col\" class=\"text\">taken for</th>"
      "<th scope=\"col\">times</th><th scope=\"col\">of the label</th>"
      "</tr></thead>\n<tbody>\n";
  for (const auto& [label, predicted, count] : confusions) {
    const auto examples =
        static_cast<double>(classification.Figures(label).examples);
    Append(html,
           "<tr><th scope=\"row\">{}</th><td class=\"text\">{}</td>"
           "<td>{}</td><td>{}</td></tr>\n",
           ClassHtml(classification, label),
           ClassHtml(classification, predicted), count,
           Percent(static_cast<double>(count) / examples));
  }
  return html + "</tbody></table></div>\n";
}

std::string MistakeFigure(const EvaluationFacts& facts,
                          const Classification& classification,
                          const Mistake& mistake) {
  const auto number = static_cast<size_t>(mistake.number);
  const bool named = number < facts.example_names.size() &&
                     !facts.example_names[number].empty();
  const std::string name = named ? facts.example_names[number]
                                 : fmt::format("example {}", mistake.number);
  const std::string label = classification.ClassName(mistake.label);
  return fmt::format(
      "<figure>{}<figcaption>{}<span>{} taken for {}, {}; {} for {}</span>"
      "</figcaption></figure>\n",
      mistake.image.elements() == 0 ? "" : Picture(mistake.image, name),
      Escape(name), Escape(label),
      Escape(classification.ClassName(mistake.predicted)),
      Percent(double{mistake.predicted_probability}),
      Percent(double{mistake.label_probability}), Escape(label));
}

std::string WorstMistakes(const EvaluationFacts& facts,
                          const Classification& classification) {
  const std::vector<Mistake> mistakes = classification.WorstMistakes();
  if (mistakes.empty()) return "";
  const int64_t wrong = classification.examples() - classification.correct();
  std::string html = "<h2>Worst mistakes</h2>\n";
  Append(html,
         "<p>{} of {} wrong predictions, those that were made with the most "
         "certainty.</p>\n<div class=\"grid pictures\">\n",
         mistakes.size(), wrong);
  for (const Mistake& mistake : mistakes) {
    html += MistakeFigure(facts, classification, mistake);
  }
  return html + "</div>\n";
}

}  // namespace

std::string EvaluationPage(const EvaluationFacts& facts,
                           const Classification& classification) {
  std::string body = "<h1>" + Escape(facts.title) + "</h1>\n";
  const bool any = classification.examples() > 0;
  body += any ? Headline(classification) : "<p>No example was evaluated.</p>\n";
  body += FactTable(facts) + Charts(facts.charts);
  if (any) {
    body += ClassTable(classification);
    body += classification.classes() <= kMostMatrixClasses
                ? ConfusionMatrix(classification)
                : ConfusionTable(classification);
    body += WorstMistakes(facts, classification);
  }
  return Page(facts.title, body);
}

}  // namespace sluice::report
