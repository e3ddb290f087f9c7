// The page of several trainings: which charts and series there are, against
// lists made by hand and by brute force, and that the page is well-formed
// whatever the names are.
#include "models/report/runs_page.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/counter_random.h"
#include "models/report/html.h"
#include "tests/support/error_text.h"

namespace sluice::report {
namespace {

using testing::Contains;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Points = std::vector<std::pair<double, double>>;

// "loss: a train, a eval; accuracy: a eval"
std::string Listed(const std::vector<Chart>& charts) {
  std::string list;
  for (const Chart& chart : charts) {
    list += (list.empty() ? "" : "; ") + chart.title + ":";
    for (size_t i = 0; i < chart.series.size(); ++i) {
      list += (i == 0 ? " " : ", ") + chart.series[i].name;
    }
  }
  return list;
}

RunCurves Run(const std::string& name) {
  return {name,
          {{1, 10, "train", "examples_per_second", 900},
           {1, 10, "train", "learning_rate", 0.1},
           {1, 10, "train", "loss_scale", 1024},
           {1, 10, "train", "accuracy", 0.5},
           {1, 10, "train", "loss", 2},
           {2, 20, "eval", "loss", 1.5},
           {2, 20, "eval", "accuracy", 0.75},
           {2, 20, "train", "a_norm", 7}}};
}

TEST_CASE("charts and series in their order") {
  CHECK(ChartsOf({}).empty());
  CHECK(ChartsOf({{"empty", {}}}).empty());
  CHECK(Listed(ChartsOf({Run("one")})) ==
        "loss: train, eval; accuracy: train, eval; a_norm: train; "
        "learning_rate: train; loss_scale: train; "
        "examples_per_second: train");
  CHECK(Listed(ChartsOf({{"b", {{1, 1, "eval", "top_5", 1}}},
                         {"empty", {}},
                         {"a",
                          {{1, 1, "train", "learning_rate", 1},
                           {1, 1, "train", "top_5", 1},
                           {1, 1, "eval", "loss", 1}}}})) ==
        "loss: a eval; top_5: b eval, a train; learning_rate: a train");
}

TEST_CASE("points are steps and values") {
  const auto charts = ChartsOf({Run("one")});
  CHECK(charts[0].x_label == "step");
  CHECK_FALSE(charts[0].log_x);
  CHECK_FALSE(charts[0].log_y);
  CHECK(charts[0].series[0].points == Points{{10, 2}});
  CHECK(charts[0].series[1].points == Points{{20, 1.5}});
  // x grows, and of a step the later row counts.
  const auto twice = ChartsOf({{"",
                                {{1, 5, "train", "loss", 1},
                                 {2, 7, "train", "loss", kInfinity},
                                 {3, 5, "train", "loss", 3},
                                 {4, 0, "train", "loss", 4}}}});
  CHECK(twice[0].series[0].points == Points{{0, 4}, {5, 3}, {7, kInfinity}});
}

TEST_CASE("each row has its point, and each point its row") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    CounterRandom random(seed);
    std::vector<RunCurves> runs(2 + random.Below(3));
    for (size_t r = 0; r < runs.size(); ++r) {
      runs[r].name = "r" + std::to_string(r);
      for (uint32_t n = random.Below(40); n > 0; --n) {
        runs[r].rows.push_back({0, random.Below(10),
                                random.Below(2) ? "train" : "eval",
                                std::string(1, "abc"[random.Below(3)]),
                                static_cast<double>(random.Next())});
      }
    }
    size_t points = 0, wanted = 0;
    const auto charts = ChartsOf(runs);
    for (const Chart& chart : charts) {
      for (const Series& series : chart.series) {
        CHECK(std::is_sorted(series.points.begin(), series.points.end()));
        points += series.points.size();
      }
    }
    for (const RunCurves& run : runs) {
      for (size_t i = 0; i < run.rows.size(); ++i) {
        const ScalarRow& row = run.rows[i];
        const bool replaced =
            std::any_of(run.rows.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                        run.rows.end(), [&](const ScalarRow& later) {
                          return later.step == row.step &&
                                 later.set == row.set && later.name == row.name;
                        });
        if (replaced) continue;
        ++wanted;
        const std::pair<double, double> point(row.step, row.value);
        const bool drawn =
            std::any_of(charts.begin(), charts.end(), [&](const Chart& chart) {
              return chart.title == row.name &&
                     std::any_of(
                         chart.series.begin(), chart.series.end(),
                         [&](const Series& series) {
                           return series.name == run.name + " " + row.set &&
                                  std::count(series.points.begin(),
                                             series.points.end(), point) == 1;
                         });
            });
        CHECK(drawn);
      }
    }
    CHECK(points == wanted);
  }
}

// The texts of the page's table cells, row after row.
std::vector<std::string> Cells(std::string_view page) {
  std::vector<std::string> cells;
  for (size_t at = page.find("<t"); at != page.npos; at = page.find("<t", at)) {
    const std::string_view tag = page.substr(at, 4);
    at = page.find('>', at) + 1;
    if (!tag.starts_with("<td") && tag != "<th ") continue;
    cells.emplace_back(page.substr(at, page.find('<', at) - at));
  }
  return cells;
}

using Strings = std::vector<std::string>;

TEST_CASE("the table of trainings") {
  RunCurves first = {"first",
                     {{0.25, 5, "train", "loss", 9},
                      {1, 10, "eval", "accuracy", 0.5},
                      {1, 10, "eval", "loss", 0.5},
                      {1, 10, "eval", "error_rate", 0.25},
                      {2, 20, "eval", "accuracy", 0.75},
                      {2, 20, "eval", "loss", 0.25},
                      {2, 20, "eval", "error_rate", 0.5},
                      {90.55, 30, "eval", "accuracy", kNan},
                      {90.55, 30, "eval", "loss", kInfinity},
                      {90.55, 30, "eval", "error_rate", 0.375},
                      {90.66, 31, "train", "loss", 9}},
                     {.model = "a model"}};
  RunCurves second = {
      "second",
      {{3, 7, "train", "loss", 1}, {3, 7, "eval", "accuracy", -kInfinity}},
      {.note = "no run.json"}};
  CHECK(Cells(RunsPage({first, second})) == Strings{"training",
                                                    "model",
                                                    "steps",
                                                    "seconds",
                                                    "loss, last",
                                                    "loss, best",
                                                    "accuracy, last",
                                                    "accuracy, best",
                                                    "error_rate, last",
                                                    "error_rate, best",
                                                    "note",  //
                                                    "first",
                                                    "a model",
                                                    "31",
                                                    "90.7",
                                                    "inf",
                                                    "0.25 at step 20",
                                                    "nan",
                                                    "0.75 at step 20",
                                                    "0.375",
                                                    "0.25 at step 10",
                                                    "",  //
                                                    "second",
                                                    "",
                                                    "7",
                                                    "3.0",
                                                    "",
                                                    "",
                                                    "-inf",
                                                    "",
                                                    "",
                                                    "",
                                                    "no run.json"});
  CHECK(Cells(RunsPage({{"empty", {}}})) == Strings{"training", "model",
                                                    "steps", "seconds", "empty",
                                                    "", "0", "0.0"});
}

// The best of a figure of 2, 3, 1 in steps 1, 2, 3.
std::string BestOf(const std::string& name, RunFacts facts) {
  RunCurves run = {"run", {}, std::move(facts)};
  for (const auto& [step, value] : {std::pair(1, 2.0), {2, 3.0}, {3, 1.0}}) {
    run.rows.push_back({1, step, "eval", "loss", value});
    run.rows.push_back({1, step, "eval", name, value});
  }
  const Strings cells = Cells(RunsPage({run}));
  REQUIRE(cells.size() == 2 * 8);
  CHECK(cells[8 + 5] == "1 at step 3");  // the loss, whatever the metric is
  return cells.back();
}

TEST_CASE("the best is the least or the greatest, as the program says") {
  for (const char* name : {"error_rate", "perplexity", "mae", "rmse", "mse",
                           "cross_entropy", "val_loss", "logloss"}) {
    CAPTURE(name);
    CHECK(BestOf(name, {}) == "1 at step 3");
    CHECK(BestOf(name, {.higher_is_better = true}) == "3 at step 2");
  }
  for (const char* name : {"accuracy", "top_5_accuracy", "f1", "auc"}) {
    CAPTURE(name);
    CHECK(BestOf(name, {}) == "3 at step 2");
    CHECK(BestOf(name, {.higher_is_better = false}) == "1 at step 3");
  }
  // Nothing is guessed.
  for (const char* name : {"norm", "maestro", "lossless", "k"}) {
    CAPTURE(name);
    CHECK(BestOf(name, {}) == "");
    CHECK(BestOf(name, {.higher_is_better = false}) == "1 at step 3");
  }
  // It is said of the first metric alone.
  const RunCurves two = {"two",
                         {{1, 1, "eval", "gain", 2},
                          {1, 1, "eval", "other", 2},
                          {1, 1, "eval", "recall", 2},
                          {2, 2, "eval", "gain", 1},
                          {2, 2, "eval", "other", 1},
                          {2, 2, "eval", "recall", 1}},
                         {.higher_is_better = false}};
  const Strings cells = Cells(RunsPage({two}));
  REQUIRE(cells.size() == 2 * 10);
  CHECK(cells[15] == "1 at step 2");
  CHECK(cells[17] == "");
  CHECK(cells[19] == "2 at step 1");
}

TEST_CASE("the flags that differ") {
  RunCurves first = {"first", {}};
  RunCurves second = {"second", {}};
  first.facts.flags = {{"seed", "1"}, {"epochs", "5"}, {"clip", "1"}};
  second.facts.flags = {{"seed", "2"}, {"epochs", "5"}, {"optimizer", "adam"}};
  const std::string page = RunsPage({first, second});
  const size_t at = page.find("Flags that differ");
  REQUIRE(at != page.npos);
  CHECK(Cells(std::string_view(page).substr(at)) ==
        Strings{"flag", "first", "second", "--clip", "1", "", "--optimizer", "",
                "adam", "--seed", "1", "2"});
  CHECK(RunsPage({first}).find("Flags that differ") == page.npos);
  CHECK(RunsPage({first, first}).find("Flags that differ") == page.npos);
}

TEST_CASE(
    "addresses are shown without their signatures, by which none differ") {
  RunCurves first = {"first", {}};
  RunCurves second = {"second", {}};
  first.facts.flags = {{"data", "https://h/a.tar?signature=1"},
                       {"weights", "https://h/a.pth?signature=1"},
                       {"labels", "a?1"}};
  second.facts.flags = {{"data", "https://h/a.tar?signature=2"},
                        {"weights", "https://h/b.pth?signature=2"},
                        {"labels", "a?2"}};
  const std::string page = RunsPage({first, second});
  CHECK(!Contains(page, "signature"));
  CHECK(Cells(std::string_view(page).substr(page.find("Flags that differ"))) ==
        Strings{"flag", "first", "second", "--labels", "a?1", "a?2",
                "--weights", "https://h/a.pth", "https://h/b.pth"});
}

// Whether each element ends, in the order in which they began, and no text has
// a bare "&".
bool WellFormed(std::string_view page) {
  std::vector<std::string> open;
  size_t at = page.find("<body");
  while ((at = page.find_first_of("<&", at)) != page.npos) {
    if (page[at] == '&') {
      const size_t end = page.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyz0123456789#", at + 1);
      if (end == page.npos || page[end] != ';') return false;
      at = end;
      continue;
    }
    const size_t end = page.find('>', at);
    if (end == page.npos) return false;
    const std::string_view tag = page.substr(at + 1, end - at - 1);
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return false;
    const std::string name(tag.substr(0, tag.find_first_of(" \n")));
    if (tag.starts_with('/')) {
      if (open.empty() || "/" + open.back() != name) return false;
      open.pop_back();
      if (name == "/body") return open.empty();
    } else if (!tag.ends_with('/')) {
      open.push_back(name);
    }
    at = end;
  }
  return false;
}

TEST_CASE("no text breaks the page") {
  CHECK_FALSE(WellFormed("<body><p></body>"));
  CHECK_FALSE(WellFormed("<body>a & b</body>"));
  for (const std::string& text :
       {std::string("<script>alert(1)</script>"), std::string("\"a'&amp;<b>"),
        std::string("\xff\xfe\0", 3), std::string("two\nlines"), std::string(),
        std::string(5000, '<'), std::string("{} {0} %s"),
        std::string("</td></table></svg></body>")}) {
    CAPTURE(text);
    RunCurves run = {text,
                     {{1, 1, "train", text, 1},
                      {2, 2, text, text, -kInfinity},
                      {2, std::numeric_limits<int64_t>::max(), "eval", text,
                       std::numeric_limits<double>::max()},
                      {2, 3, "eval", text, kNan}},
                     {text, {{text, text}}, text}};
    for (const std::string& page :
         {RunsPage({}), RunsPage({run}), RunsPage({run, {"other", {}}})}) {
      CHECK(WellFormed(page));
      CHECK(page.find("<script") == page.npos);
    }
    CHECK(Cells(RunsPage({run})).size() == (text.empty() ? 2 * 6 : 2 * 7));
    CHECK(Contains(RunsPage({run}), Escape(text)));
  }
}

}  // namespace
}  // namespace sluice::report
