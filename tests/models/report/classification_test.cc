#include "models/report/classification.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/error_text.h"

namespace sluice::report {
namespace {

using testing::Contains;
using testing::ErrorOf;

// All examples at once, and the plainest way to every figure.
struct Set {
  int64_t classes = 0;
  std::vector<int64_t> labels = {};
  std::vector<std::vector<float>> probabilities = {};
  std::vector<std::vector<uint8_t>> pixels = {};  // [2,3,1] each

  int64_t Predicted(size_t i) const {
    int64_t best = 0;
    for (int64_t c = 1; c < classes; ++c) {
      if (probabilities[i][c] > probabilities[i][best]) best = c;
    }
    return best;
  }
};

Set RandomSet(std::mt19937& random, int64_t classes, size_t examples) {
  Set set = {.classes = classes};
  for (size_t i = 0; i < examples; ++i) {
    set.labels.push_back(static_cast<int64_t>(random() % classes));
    std::vector<float> row(classes);
    // Few values: equal ones are frequent, within a row and among rows.
    for (float& p : row) p = static_cast<float>(random() % 9) / 8;
    if (random() % 2 == 0) row[set.labels.back()] = 1;
    set.probabilities.push_back(row);
    std::vector<uint8_t> picture(6);
    for (uint8_t& pixel : picture) pixel = static_cast<uint8_t>(random());
    set.pixels.push_back(picture);
  }
  return set;
}

// Examples [begin,end) of the set.
void AddTo(Classification& classification, const Set& set, size_t begin,
           size_t end, DType label_type, bool with_images) {
  const auto n = static_cast<int64_t>(end - begin);
  Tensor labels(DType::kInt64, {n});
  Tensor probabilities(DType::kFloat32, {n, set.classes});
  Tensor images(DType::kUInt8, {n, 2, 3, 1});
  float* p = probabilities.data<float>();
  uint8_t* pixel = images.data<uint8_t>();
  for (size_t i = begin; i < end; ++i) {
    labels.data<int64_t>()[i - begin] = set.labels[i];
    p = std::copy(set.probabilities[i].begin(), set.probabilities[i].end(), p);
    pixel = std::copy(set.pixels[i].begin(), set.pixels[i].end(), pixel);
  }
  classification.Add(labels.Cast(label_type), probabilities,
                     with_images ? &images : nullptr);
  // What is kept is a copy.
  std::fill_n(images.data<uint8_t>(), images.elements(), uint8_t{77});
}

template <typename Part, typename Whole>
void CheckFigure(double got, Part part, Whole whole) {
  if (whole == 0) {
    CHECK(std::isnan(got));
  } else {
    CHECK(got == doctest::Approx(static_cast<double>(part) /
                                 static_cast<double>(whole)));
  }
}

void CheckCounts(const Classification& got, const Set& set) {
  const size_t classes = set.classes, examples = set.labels.size();
  std::vector<std::vector<int64_t>> matrix(classes,
                                           std::vector<int64_t>(classes));
  std::vector<double> confidence(classes);
  for (size_t i = 0; i < examples; ++i) {
    ++matrix[set.labels[i]][set.Predicted(i)];
    confidence[set.labels[i]] += set.probabilities[i][set.Predicted(i)];
  }
  int64_t correct = 0;
  double f1_sum = 0, f1_count = 0, confidence_sum = 0;
  std::vector<std::vector<int64_t>> confusions;  // -count, label, predicted
  for (size_t c = 0; c < classes; ++c) {
    int64_t of_label = 0, of_prediction = 0;
    for (size_t other = 0; other < classes; ++other) {
      REQUIRE(got.Count(c, other) == matrix[c][other]);
      of_label += matrix[c][other];
      of_prediction += matrix[other][c];
      if (other != c && matrix[c][other] > 0) {
        confusions.push_back({-matrix[c][other], static_cast<int64_t>(c),
                              static_cast<int64_t>(other)});
      }
    }
    const auto hits = static_cast<double>(matrix[c][c]);
    const ClassFigures figures = got.Figures(c);
    CHECK(figures.examples == of_label);
    CHECK(figures.predicted == of_prediction);
    CHECK(figures.correct == matrix[c][c]);
    CheckFigure(figures.recall, hits, of_label);
    CheckFigure(figures.precision, hits, of_prediction);
    CheckFigure(figures.f1, 2 * hits, of_label + of_prediction);
    CheckFigure(figures.confidence, confidence[c], of_label);
    if (of_label + of_prediction > 0) {
      f1_sum += 2 * hits / static_cast<double>(of_label + of_prediction);
      ++f1_count;
    }
    confidence_sum += confidence[c];
    correct += matrix[c][c];
  }
  CHECK(got.examples() == static_cast<int64_t>(examples));
  CHECK(got.correct() == correct);
  CheckFigure(got.Accuracy(), correct, examples);
  CheckFigure(got.Confidence(), confidence_sum, examples);
  CheckFigure(got.MacroF1(), f1_sum, f1_count);

  std::sort(confusions.begin(), confusions.end());
  const std::vector<Confusion> found = got.Confusions();
  REQUIRE(found.size() == confusions.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].count == -confusions[i][0]);
    CHECK(found[i].label == confusions[i][1]);
    CHECK(found[i].predicted == confusions[i][2]);
  }
}

void CheckMistakes(const Classification& got, const Set& set, size_t worst,
                   bool with_images) {
  std::vector<std::pair<float, size_t>> all;  // -probability, number
  for (size_t i = 0; i < set.labels.size(); ++i) {
    const int64_t predicted = set.Predicted(i);
    if (predicted == set.labels[i]) continue;
    all.emplace_back(-set.probabilities[i][predicted], i);
  }
  std::sort(all.begin(), all.end());
  all.resize(std::min(all.size(), worst));
  const std::vector<Mistake> mistakes = got.WorstMistakes();
  REQUIRE(mistakes.size() == all.size());
  for (size_t k = 0; k < all.size(); ++k) {
    const size_t i = all[k].second;
    const Mistake& mistake = mistakes[k];
    CHECK(mistake.number == static_cast<int64_t>(i));
    CHECK(mistake.label == set.labels[i]);
    CHECK(mistake.predicted == set.Predicted(i));
    CHECK(mistake.predicted_probability == -all[k].first);
    CHECK(mistake.label_probability == set.probabilities[i][set.labels[i]]);
    if (with_images) {
      CHECK(mistake.image.BitEqual(
          Tensor::Array<uint8_t>({2, 3, 1}, set.pixels[i])));
    } else {
      CHECK(mistake.image.elements() == 0);
    }
  }
}

TEST_CASE("report: figures and mistakes are those of a plain computation") {
  std::mt19937 random(7);
  for (int round = 0; round < 120; ++round) {
    const int64_t classes = round % 10 == 0 ? 200 : 1 + random() % 6;
    const Set set = RandomSet(random, classes, random() % 150);
    const size_t worst = std::vector<size_t>{0, 1, 5, 1000}[random() % 4];
    const bool with_images = random() % 2 == 0;
    const DType label_type = random() % 2 == 0 ? DType::kInt32 : DType::kInt64;
    Classification classification({}, worst);
    size_t begin = 0;
    do {  // batches of any size, none too
      const size_t end = std::min(set.labels.size(), begin + random() % 40);
      AddTo(classification, set, begin, end, label_type, with_images);
      begin = end;
    } while (begin < set.labels.size());
    CHECK(classification.classes() == classes);
    CheckCounts(classification, set);
    CheckMistakes(classification, set, worst, with_images);
  }
}

TEST_CASE("report: before the first batch there is nothing") {
  const Classification classification({"a"}, 3);
  CHECK(classification.classes() == 0);
  CHECK(classification.examples() == 0);
  CHECK(std::isnan(classification.Accuracy()));
  CHECK(std::isnan(classification.MacroF1()));
  CHECK(classification.Confusions().empty());
  CHECK(classification.WorstMistakes().empty());
}

TEST_CASE("report: float pictures are stretched, each on its own") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kMax = std::numeric_limits<float>::max();
  const Tensor images =
      Tensor::Array<float>({5, 1, 3, 1}, {-2, 0, 2,              //
                                          0.25, 0.25, 0.25,      //
                                          0, std::nanf(""), 10,  //
                                          -kInf, 1, kInf,        //
                                          -kMax, 0, kMax});
  Classification classification({}, 9);
  classification.Add(
      Tensor::Array<int32_t>({5}, {0, 0, 0, 0, 0}),
      Tensor::Array<float>({5, 2}, {0, 1, 0, 1, 0, 1, 0, 1, 0, 1}), &images);
  const std::vector<std::vector<uint8_t>> wanted = {
      {0, 128, 255}, {0, 0, 0}, {0, 0, 255}, {0, 0, 0}, {0, 128, 255}};
  const std::vector<Mistake> mistakes = classification.WorstMistakes();
  REQUIRE(mistakes.size() == 5);
  for (size_t i = 0; i < 5; ++i) {
    CAPTURE(i);
    CHECK(mistakes[i].image.BitEqual(
        Tensor::Array<uint8_t>({1, 3, 1}, wanted[i])));
  }
}

TEST_CASE("report: classes without a name are their numbers") {
  const Classification classification({"cat", "", "7"}, 0);
  CHECK(classification.ClassName(0) == "cat");
  CHECK(classification.ClassName(1) == "1");
  CHECK(classification.ClassName(2) == "7");
  CHECK(classification.ClassName(3) == "3");
  CHECK(classification.HasName(2));
  CHECK(!classification.HasName(1));
  CHECK(!classification.HasName(3));
}

TEST_CASE("report: a bad example is named, and nothing of its batch counts") {
  Classification classification({}, 2);
  const Tensor good = Tensor::Array<float>({2, 2}, {0.5, 0.5, 0, 1});
  classification.Add(Tensor::Array<int64_t>({2}, {0, 0}), good, nullptr);
  const auto code_of = [&](const Tensor& labels, const Tensor& probabilities) {
    try {
      classification.Add(labels, probabilities, nullptr);
    } catch (const Error& error) {
      return error.code();
    }
    return Code::kOk;
  };
  const auto error_of = [&](const Tensor& labels, const Tensor& probabilities,
                            const Tensor* images = nullptr) {
    return ErrorOf([&] { classification.Add(labels, probabilities, images); });
  };

  const Tensor labels = Tensor::Array<int64_t>({2}, {1, 0});
  for (const int64_t wrong : {int64_t{2}, int64_t{-1}, int64_t{1} << 40}) {
    const Tensor bad = Tensor::Array<int64_t>({2}, {1, wrong});
    CHECK(code_of(bad, good) == Code::kOutOfRange);
    CHECK(Contains(
        error_of(bad, good),
        "example 3 has label " + std::to_string(wrong) + ", wanted 0 to 1"));
  }
  const Tensor three = Tensor::Zeros(DType::kFloat32, {2, 3});
  CHECK(Contains(error_of(labels, three), "wanted float32[n,2]"));
  CHECK(Contains(error_of(labels, Tensor::Zeros(DType::kFloat64, {2, 2})),
                 "float64[2,2]"));
  CHECK(Contains(error_of(labels.Rows(0, 1), good), "labels are int64[1]"));
  CHECK(Contains(error_of(labels.Cast(DType::kFloat32), good),
                 "labels are float32[2]"));
  for (const Shape& shape : {Shape{1, 2, 2, 1}, Shape{2, 2, 2},
                             Shape{2, 2, 2, 2}, Shape{2, 0, 2, 1}}) {
    const Tensor images = Tensor::Zeros(DType::kUInt8, shape);
    CHECK(Contains(error_of(labels, good, &images),
                   "images are uint8" + shape.ToString()));
  }
  CHECK(classification.examples() == 2);
  CHECK(classification.correct() == 1);

  Classification none({}, 2);
  CHECK(Contains(ErrorOf([&] {
                   none.Add(Tensor::Zeros(DType::kInt64, {0}),
                            Tensor::Zeros(DType::kFloat32, {0, 0}), nullptr);
                 }),
                 "wanted float32[n,classes]"));
}

TEST_CASE("probabilities that are no numbers are wrong and predict nothing") {
  for (const float wrong :
       {std::nanf(""), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    Classification classification({}, 5);
    const Tensor labels = Tensor::Array<int64_t>({4}, {1, 0, 1, 1});
    classification.Add(
        labels,
        Tensor::Array<float>({4, 2}, {0, wrong, wrong, 1, 0.25, 0.75, 1, 0}),
        nullptr);
    CHECK(classification.examples() == 4);
    CHECK(classification.undecided() == 2);
    CHECK(classification.correct() == 1);
    CHECK(classification.Accuracy() == 0.25);
    CHECK(classification.Figures(1).examples == 3);
    CHECK(classification.Figures(1).predicted == 1);
    CHECK(classification.Figures(0).predicted == 1);
    CHECK(classification.Figures(0).recall == 0);
    CHECK(classification.Confusions().size() == 1);
    const auto mistakes = classification.WorstMistakes();
    REQUIRE(mistakes.size() == 1);
    CHECK(mistakes[0].number == 3);
  }
}

}  // namespace
}  // namespace sluice::report
