#include "models/report/classification.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "io/images/stretch.h"

namespace sluice::report {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double Ratio(double part, int64_t whole) {
  return whole == 0 ? kNaN : part / static_cast<double>(whole);
}

bool IsWorse(const Mistake& a, const Mistake& b) {
  if (a.predicted_probability != b.predicted_probability) {
    return a.predicted_probability > b.predicted_probability;
  }
  return a.number < b.number;
}

[[noreturn]] void Reject(std::string_view what, const Tensor& got,
                         std::string_view wanted) {
  throw Error(Code::kInvalidArgument,
              fmt::format("evaluation: {} are {}{}, wanted {}", what,
                          NameOf(got.dtype()), got.shape().ToString(), wanted));
}

// Row `row` of [n,h,w,c] as uint8 [h,w,c] of its own.
Tensor PictureOf(const Tensor& images, int64_t row) {
  const Shape& shape = images.shape();
  const Tensor image =
      images.Rows(row, row + 1).Reshaped(shape.Slice(1, shape.rank()));
  return image.dtype() == DType::kUInt8 ? image.Clone() : Stretched(image);
}

}  // namespace

Classification::Classification(std::vector<std::string> class_names,
                               size_t worst)
    : class_names_(std::move(class_names)), worst_(worst) {}

void Classification::CheckBatch(const Tensor& labels,
                                const Tensor& probabilities,
                                const Tensor* images) const {
  const Shape& shape = probabilities.shape();
  if (probabilities.dtype() != DType::kFloat32 || shape.rank() != 2 ||
      shape[1] < 1 || (classes() != 0 && shape[1] != classes())) {
    Reject("probabilities", probabilities,
           classes() == 0 ? std::string("float32[n,classes]")
                          : fmt::format("float32[n,{}]", classes()));
  }
  if ((labels.dtype() != DType::kInt32 && labels.dtype() != DType::kInt64) ||
      labels.shape() != Shape{shape[0]}) {
    Reject("labels", labels, fmt::format("int32[{0}] or int64[{0}]", shape[0]));
  }
  if (images == nullptr) return;
  const Shape& sides = images->shape();
  if ((images->dtype() != DType::kUInt8 &&
       images->dtype() != DType::kFloat32) ||
      sides.rank() != 4 || sides[0] != shape[0] || sides[1] < 1 ||
      sides[2] < 1 || (sides[3] != 1 && sides[3] != 3)) {
    Reject("images", *images,
           fmt::format("uint8 or float32[{},height,width,1|3]", shape[0]));
  }
}

std::vector<int64_t> Classification::Predict(
    const Tensor& labels, const Tensor& probabilities) const {
  const int64_t width = probabilities.shape()[1];
  std::vector<int64_t> predicted;
  for (int64_t i = 0; i < labels.elements(); ++i) {
    const int64_t label = labels.IntAt(i);
    if (label < 0 || label >= width) {
      throw Error(Code::kOutOfRange,
                  fmt::format("evaluation: example {} has label {}, wanted 0 "
                              "to {}",
                              examples_ + i, label, width - 1));
    }
    const float* row = probabilities.data<float>() + i * width;
    const bool finite =
        std::all_of(row, row + width, [](float p) { return std::isfinite(p); });
    predicted.push_back(finite ? std::max_element(row, row + width) - row
                               : kNone);
  }
  return predicted;
}

void Classification::Add(const Tensor& labels, const Tensor& probabilities,
                         const Tensor* images) {
  CheckBatch(labels, probabilities, images);
  const std::vector<int64_t> predictions = Predict(labels, probabilities);
  const int64_t width = probabilities.shape()[1];
  tallies_.resize(static_cast<size_t>(width));
  for (int64_t i = 0; i < labels.elements(); ++i, ++examples_) {
    const int64_t label = labels.IntAt(i);
    const int64_t predicted = predictions[static_cast<size_t>(i)];
    const float* row = probabilities.data<float>() + i * width;
    Tally& tally = tallies_[static_cast<size_t>(label)];
    ++tally.examples;
    if (predicted == kNone) {
      ++undecided_;
      continue;
    }
    tally.confidence += row[predicted];
    ++tallies_[static_cast<size_t>(predicted)].predicted;
    ++counts_[{label, predicted}];
    if (label == predicted) {
      ++correct_;
    } else {
      Keep({.number = examples_,
            .label = label,
            .predicted = predicted,
            .predicted_probability = row[predicted],
            .label_probability = row[label],
            .image = Tensor()},
           images, i);
    }
  }
}

void Classification::Keep(Mistake mistake, const Tensor* images, int64_t row) {
  if (mistakes_.size() >= worst_) {
    if (worst_ == 0 || !IsWorse(mistake, mistakes_.front())) return;
    std::pop_heap(mistakes_.begin(), mistakes_.end(), IsWorse);
    mistakes_.pop_back();
  }
  // Only now, as most are not kept.
  if (images != nullptr) mistake.image = PictureOf(*images, row);
  mistakes_.push_back(std::move(mistake));
  std::push_heap(mistakes_.begin(), mistakes_.end(), IsWorse);
}

double Classification::Accuracy() const {
  return Ratio(static_cast<double>(correct_), examples_);
}

double Classification::Confidence() const {
  double sum = 0;
  for (const Tally& tally : tallies_) sum += tally.confidence;
  return Ratio(sum, examples_);
}

double Classification::MacroF1() const {
  double sum = 0;
  int64_t with_f1 = 0;
  for (int64_t i = 0; i < classes(); ++i) {
    const double f1 = Figures(i).f1;
    if (std::isnan(f1)) continue;
    sum += f1;
    ++with_f1;
  }
  return Ratio(sum, with_f1);
}

ClassFigures Classification::Figures(int64_t number) const {
  const Tally& tally = tallies_.at(static_cast<size_t>(number));
  const int64_t correct = Count(number, number);
  const auto hits = static_cast<double>(correct);
  return {.examples = tally.examples,
          .predicted = tally.predicted,
          .correct = correct,
          .recall = Ratio(hits, tally.examples),
          .precision = Ratio(hits, tally.predicted),
          .f1 = Ratio(2 * hits, tally.examples + tally.predicted),
          .confidence = Ratio(tally.confidence, tally.examples)};
}

int64_t Classification::Count(int64_t label, int64_t predicted) const {
  const auto found = counts_.find({label, predicted});
  return found == counts_.end() ? 0 : found->second;
}

std::vector<Confusion> Classification::Confusions() const {
  std::vector<Confusion> confusions;
  for (const auto& [pair, count] : counts_) {
    if (pair.first == pair.second) continue;
    confusions.push_back({pair.first, pair.second, count});
  }
  // Stable, as the map's order is that of label and prediction.
  std::stable_sort(
      confusions.begin(), confusions.end(),
      [](const Confusion& a, const Confusion& b) { return a.count > b.count; });
  return confusions;
}

std::vector<Mistake> Classification::WorstMistakes() const {
  std::vector<Mistake> worst = mistakes_;
  std::sort(worst.begin(), worst.end(), IsWorse);
  return worst;
}

bool Classification::HasName(int64_t number) const {
  const auto i = static_cast<size_t>(number);
  return i < class_names_.size() && !class_names_[i].empty();
}

std::string Classification::ClassName(int64_t number) const {
  return HasName(number) ? class_names_[static_cast<size_t>(number)]
                         : fmt::format("{}", number);
}

}  // namespace sluice::report
