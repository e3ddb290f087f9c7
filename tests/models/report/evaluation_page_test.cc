#include "models/report/evaluation_page.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "io/images/png.h"
#include "tests/support/error_text.h"

namespace sluice::report {
namespace {

using testing::Contains;

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

// The end of the tag that begins at `at`: a '>' outside of quotes.
size_t TagEnd(const std::string& html, size_t at) {
  bool quoted = false;
  for (; at < html.size(); ++at) {
    if (html[at] == '"') quoted = !quoted;
    if (html[at] == '<' && quoted) return std::string::npos;
    if (html[at] == '>' && !quoted) return at;
  }
  return std::string::npos;
}

// What is wrong with the nesting of a page's elements; "" when all are closed
// in order. Attributes are in double quotes, and each '&' begins a reference.
std::string Imbalance(const std::string& html) {
  static const std::set<std::string> kVoid = {"meta", "img", "!doctype"};
  static const std::set<std::string> kReferences = {"amp", "lt", "gt", "quot",
                                                    "#39"};
  for (size_t at = html.find('&'); at != std::string::npos;
       at = html.find('&', at + 1)) {
    const size_t end = html.find(';', at);
    if (!kReferences.contains(html.substr(at + 1, end - at - 1))) {
      return "a bare & at " + html.substr(at, 20);
    }
  }
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos;
       at = html.find('<', at + 1)) {
    const size_t end = TagEnd(html, at);
    if (end == std::string::npos) return "no end: " + html.substr(at, 40);
    const bool closes = html[at + 1] == '/';
    const size_t from = at + 1 + (closes ? 1 : 0);
    const std::string name =
        html.substr(from, html.find_first_of(" />", from) - from);
    if (closes) {
      if (open.empty() || open.back() != name) return "closes " + name;
      open.pop_back();
    } else if (html[end - 1] != '/' && !kVoid.contains(name)) {
      open.push_back(name);
    }
    at = end;
  }
  return open.empty() ? "" : "open: " + open.back();
}

TEST_CASE("report: the checker of nesting finds what is wrong") {
  CHECK(Imbalance("<!doctype html>\n<p a=\"x > y\">&lt;<img><b/></p>").empty());
  CHECK(!Imbalance("<p>").empty());
  CHECK(!Imbalance("<p></b></p>").empty());
  CHECK(!Imbalance("<p><b></p></b>").empty());
  CHECK(!Imbalance("</p>").empty());
  CHECK(!Imbalance("<p>a < b</p>").empty());
  CHECK(!Imbalance("<p>a & b</p>").empty());
  CHECK(!Imbalance("<p a=\"<\"></p>").empty());
}

// Examples with random labels, of which about a third are misclassified.
Classification RandomClassification(int64_t classes, int64_t examples,
                                    std::vector<std::string> names,
                                    bool with_images, size_t worst = 6) {
  std::mt19937 random(11);
  Tensor labels(DType::kInt64, {examples});
  Tensor probabilities =
      Tensor::Full(DType::kFloat32, {examples, classes}, 0.0);
  for (int64_t i = 0; i < examples; ++i) {
    const auto label = static_cast<int64_t>(random() % classes);
    labels.data<int64_t>()[i] = label;
    const int64_t other = static_cast<int64_t>(random() % classes);
    float* row = probabilities.data<float>() + i * classes;
    row[label] = 0.4F;
    row[other] = random() % 2 == 0 ? 0.6F : 0.3F;
  }
  Tensor images(DType::kUInt8, {examples, 3, 4, 3});
  for (uint8_t& byte : images.values<uint8_t>()) {
    byte = static_cast<uint8_t>(random());
  }
  Classification classification(std::move(names), worst);
  classification.Add(labels, probabilities, with_images ? &images : nullptr);
  return classification;
}

TEST_CASE("report: a page of no example") {
  const Classification classification({}, 3);
  const std::string page = EvaluationPage({.title = "empty"}, classification);
  CHECK(Imbalance(page).empty());
  CHECK(Contains(page, "<p>No example was evaluated.</p>"));
  CHECK(page.find("nan") == std::string::npos);
}

TEST_CASE("report: a small set's page says what a reader expects") {
  // Of three examples of class 0, two are right; class 2 does not occur.
  Classification classification({"cat", "dog"}, 5);
  const Tensor image = Tensor::Zeros(DType::kUInt8, {4, 2, 2, 1});
  classification.Add(Tensor::Array<int32_t>({4}, {0, 0, 0, 1}),
                     Tensor::Array<float>({4, 3}, {0.9, 0.1, 0,          //
                                                   0.001, 0.998, 0.001,  //
                                                   0.5, 0.25, 0.25,      //
                                                   0, 1, 0}),
                     &image);
  EvaluationFacts facts = {.title = "pets",
                           .facts = {{"model", "resnet20"}},
                           .example_names = {"a.png", "b.png"}};
  const std::string page = EvaluationPage(facts, classification);
  CHECK(Imbalance(page) == "");
  CHECK(Contains(page, "<h1>pets</h1>"));
  CHECK(Contains(page, "<dd>75.00\u00A0%</dd>"));
  CHECK(Contains(page, "<dd>1 of 4</dd>"));
  CHECK(Contains(page, "<th>model</th><td>resnet20</td>"));
  CHECK(Contains(page,
                 "<th scope=\"row\">cat <span>0</span></th><td>3</td>"
                 "<td>66.7\u00A0%</td><td>100.0\u00A0%</td><td>80.0\u00A0%</td>"
                 "<td>79.9\u00A0%</td>"));
  CHECK(Contains(page,
                 "<th scope=\"row\">2</th><td>0</td><td>\u2013</td>"
                 "<td>\u2013</td><td>\u2013</td><td>\u2013</td>"));
  CHECK(Contains(page, "title=\"cat taken for dog: 33.3\u00A0%\">1</td>"));
  CHECK(Contains(page,
                 "<figcaption>b.png<span>cat taken for dog, 99.8\u00A0%; "
                 "0.1\u00A0% for cat</span></figcaption>"));
  const bool has_png = EncodePng(Tensor::Zeros(DType::kUInt8, {1, 1, 1})).ok();
  CHECK(CountOf(page, "<img ") == (has_png ? 1 : 0));
  CHECK(page.find("most confused") == std::string::npos);

  facts.example_names = {"a.png"};  // fewer than examples
  CHECK(Contains(EvaluationPage(facts, classification),
                 "<figcaption>example 1<span>"));
}

TEST_CASE("report: hostile names do not leave their place") {
  const std::string hostile = "</td><script>alert(\"1\")</script>'&\n\xFF<!--";
  const EvaluationFacts facts = {
      .title = hostile,
      .facts = {{hostile, hostile}},
      .example_names = std::vector<std::string>(60, hostile),
      .charts = {{.title = hostile,
                  .x_label = hostile,
                  .series = {{hostile, {{0, 1}, {1, 2}}}},
                  .marks = {{0.5, hostile}}}}};
  for (const int64_t classes : {4, 40, 120}) {
    const std::string page = EvaluationPage(
        facts,
        RandomClassification(classes, 60,
                             std::vector<std::string>(classes, hostile), true));
    CHECK(Imbalance(page) == "");
    CHECK(page.find("<script") == std::string::npos);
    CHECK(page.find("<!--") == std::string::npos);
    CHECK(page.find('\xFF') == std::string::npos);
    CHECK(CountOf(page, "<svg ") == 1);
  }
}

TEST_CASE("report: many classes are cut to the worst, and the page says so") {
  for (const int64_t classes : {1, 30, 31, 100, 101, 1000}) {
    CAPTURE(classes);
    const int64_t examples = 3000;
    const std::string page = EvaluationPage(
        {.title = "t"}, RandomClassification(classes, examples, {}, false));
    CHECK(Imbalance(page) == "");
    CHECK(CountOf(page, "<h2>Confusion matrix</h2>") ==
          (classes <= 30 ? 1 : 0));
    CHECK((page.find("The 50 most frequent of ") != std::string::npos) ==
          (classes > 30));
    CHECK((page.find("The 100 of " + std::to_string(classes) +
                     " classes with the least F1") != std::string::npos) ==
          (classes > 100));
    const size_t from = page.find("<h2>Classes</h2>");
    const std::string table =
        page.substr(from, page.find("</table>", from) - from);
    CHECK(CountOf(table, "<tr>") ==
          static_cast<size_t>(std::min<int64_t>(classes, 100)) + 1);
  }
}

TEST_CASE("report: of many classes those with the least F1 are shown") {
  // Class c > 0 has one right example and c taken for class 0.
  Classification classification({}, 0);
  const int64_t classes = 150;
  for (int64_t c = 1; c < classes; ++c) {
    const int64_t n = 1 + c;
    Tensor probabilities = Tensor::Full(DType::kFloat32, {n, classes}, 0.0);
    for (int64_t i = 0; i < n; ++i) {
      probabilities.data<float>()[i * classes + (i == 0 ? c : 0)] = 1;
    }
    classification.Add(Tensor::Full(DType::kInt64, {n}, c), probabilities,
                       nullptr);
  }
  const std::string page = EvaluationPage({.title = "t"}, classification);
  const size_t from = page.find("<h2>Classes</h2>");
  const std::string table =
      page.substr(from, page.find("</table>", from) - from);
  // Class 0 was never right, then the classes backwards.
  size_t at = 0;
  for (int64_t row = 0; row < 100; ++row) {
    const int64_t c = row == 0 ? 0 : classes - row;
    const size_t found =
        table.find("<th scope=\"row\">" + std::to_string(c) + "</th>");
    REQUIRE(found != std::string::npos);
    CHECK(found > at);
    at = found;
  }
  const size_t first_pair =
      page.find("<th scope=\"row\">149</th><td class=\"text");
  CHECK(first_pair != std::string::npos);
  CHECK(first_pair < page.find("<th scope=\"row\">148</th><td class=\"text"));
}

}  // namespace
}  // namespace sluice::report
