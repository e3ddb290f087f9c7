#include "models/nn/metric_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace sluice {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

// The examples that all workers may have seen: doubles count no further.
constexpr int64_t kMostExamples = int64_t{1} << 53;

// One of the first for each of the second.
void CheckPairs(const char* metric, std::span<const Tensor> values) {
  if (values[0].elements() == values[1].elements()) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: {} predictions for {} labels", metric,
                          values[0].elements(), values[1].elements()));
}

void CheckLength(const char* metric, std::span<const double> state,
                 size_t wanted) {
  if (state.size() == wanted) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: a state of {} numbers, wanted {}", metric,
                          state.size(), wanted));
}

// Sums are kept in double: exact for counts.
class MeanState final : public MetricState {
 public:
  explicit MeanState(const char* metric) : metric_(metric) {}

  void Add(std::span<const Tensor> values, int64_t examples) override {
    const Tensor& value = values[0];
    if (value.shape().scalar()) {
      // Of no examples it may be NaN, and weighs nothing.
      if (examples > 0) sum_ += value.At(0) * static_cast<double>(examples);
      count_ += examples;
      return;
    }
    for (int64_t i = 0; i < value.elements(); ++i) sum_ += value.At(i);
    count_ += value.elements();
  }

  double Value() const override {
    return count_ == 0 ? kUndefined : sum_ / static_cast<double>(count_);
  }

  // {sum, count}
  std::vector<double> State() const override {
    return {sum_, static_cast<double>(count_)};
  }

  void Merge(std::span<const double> state) override {
    CheckLength(metric_, state, 2);
    const int64_t count = CountOf(metric_, state[1], kMostExamples - count_);
    if (count == 0 && state[0] != 0) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("{}: a sum of {} over nothing, wanted 0", metric_,
                              state[0]));
    }
    sum_ += state[0];
    count_ += count;
  }

 private:
  const char* metric_;  // in messages
  double sum_ = 0;
  int64_t count_ = 0;
};

class PerplexityState final : public MetricState {
 public:
  void Add(std::span<const Tensor> values, int64_t examples) override {
    mean_.Add(values, examples);
  }
  double Value() const override { return std::exp(mean_.Value()); }
  std::vector<double> State() const override { return mean_.State(); }
  void Merge(std::span<const double> state) override { mean_.Merge(state); }

 private:
  MeanState mean_{"Perplexity"};
};

// Of predictions and labels, int64 [n] each; where there is no prediction it is
// below 0.
class F1State final : public MetricState {
 public:
  explicit F1State(int64_t classes) : counts_(static_cast<size_t>(classes)) {}

  void Add(std::span<const Tensor> values, int64_t /*examples*/) override {
    const int64_t* const predictions = values[0].data<int64_t>();
    const int64_t* const labels = values[1].data<int64_t>();
    const auto classes = static_cast<int64_t>(counts_.size());
    CheckPairs("F1", values);
    for (int64_t i = 0; i < values[0].elements(); ++i) {
      if (labels[i] < 0 || labels[i] >= classes) {
        throw Error(Code::kInvalidArgument,
                    fmt::format("F1: label {} is none of {} classes", labels[i],
                                classes));
      }
      ++examples_;
      ++counts_[labels[i]].labels;
      if (predictions[i] < 0) continue;
      ++counts_[predictions[i]].predictions;
      if (labels[i] == predictions[i]) ++counts_[labels[i]].both;
    }
  }

  double Value() const override {
    double sum = 0;
    int seen = 0;
    for (const Count& count : counts_) {
      const int64_t either = count.labels + count.predictions;
      if (either == 0) continue;
      ++seen;
      sum += 2 * static_cast<double>(count.both) / static_cast<double>(either);
    }
    return seen == 0 ? kUndefined : sum / seen;
  }

  // {labels, predictions, both} of each class
  std::vector<double> State() const override {
    std::vector<double> state;
    state.reserve(3 * counts_.size());
    for (const Count& count : counts_) {
      for (const int64_t n : {count.labels, count.predictions, count.both}) {
        state.push_back(static_cast<double>(n));
      }
    }
    return state;
  }

  void Merge(std::span<const double> state) override {
    CheckLength("F1", state, 3 * counts_.size());
    std::vector<Count> sums = counts_;
    // Of all classes: every example has a label, and at most one prediction.
    int64_t labels = examples_, predictions = examples_;
    for (Count& sum : sums) {
      const int64_t label = CountOf("F1", state[0], kMostExamples - labels);
      const int64_t prediction =
          CountOf("F1", state[1], kMostExamples - predictions);
      sum.both += CountOf("F1", state[2], std::min(label, prediction));
      sum.labels += label;
      sum.predictions += prediction;
      labels += label;
      predictions += prediction;
      state = state.subspan(3);
    }
    if (predictions > labels) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("F1: {} predictions for {} labels",
                              predictions - examples_, labels - examples_));
    }
    counts_ = std::move(sums);
    examples_ = labels;
  }

 private:
  struct Count {
    int64_t labels = 0, predictions = 0, both = 0;
  };
  int64_t examples_ = 0;
  std::vector<Count> counts_;  // by class
};

// By the ranks of all scores (Mann and Whitney's U).
class CurveState final : public MetricState {
 public:
  void Add(std::span<const Tensor> values, int64_t /*examples*/) override {
    CheckPairs("AreaUnderCurve", values);
    for (int64_t i = 0; i < values[0].elements(); ++i) {
      const double label = values[1].At(i);
      if (label != 0 && label != 1) {
        throw Error(
            Code::kInvalidArgument,
            fmt::format("AreaUnderCurve: label {}, wanted 0 or 1", label));
      }
      (label == 1 ? positive_ : negative_).push_back(values[0].At(i));
    }
  }

  double Value() const override {
    const auto is_nan = [](double score) { return std::isnan(score); };
    if (positive_.empty() || negative_.empty() ||
        std::any_of(positive_.begin(), positive_.end(), is_nan) ||
        std::any_of(negative_.begin(), negative_.end(), is_nan)) {
      return kUndefined;
    }
    std::vector<double> negative = negative_;
    std::sort(negative.begin(), negative.end());
    // Of pairs, in halves.
    double won = 0;
    for (const double score : positive_) {
      const auto [first, last] =
          std::equal_range(negative.begin(), negative.end(), score);
      won += static_cast<double>((first - negative.begin()) +
                                 (last - negative.begin()));
    }
    return won / 2 / static_cast<double>(positive_.size()) /
           static_cast<double>(negative.size());
  }

  // {how many are positive, their scores..., the negative ones'...}
  std::vector<double> State() const override {
    std::vector<double> state = {static_cast<double>(positive_.size())};
    state.reserve(1 + positive_.size() + negative_.size());
    state.insert(state.end(), positive_.begin(), positive_.end());
    state.insert(state.end(), negative_.begin(), negative_.end());
    return state;
  }

  void Merge(std::span<const double> state) override {
    if (state.empty()) {
      throw Error(Code::kInvalidArgument,
                  "AreaUnderCurve: a state of 0 numbers, wanted 1 or more");
    }
    const std::span<const double> scores = state.subspan(1);
    const auto positive = static_cast<size_t>(CountOf(
        "AreaUnderCurve", state[0], static_cast<int64_t>(scores.size())));
    const auto add = [](std::span<const double> from, std::vector<double>* to) {
      to->insert(to->end(), from.begin(), from.end());
    };
    add(scores.first(positive), &positive_);
    add(scores.subspan(positive), &negative_);
  }

 private:
  std::vector<double> positive_, negative_;  // scores
};

}  // namespace

std::unique_ptr<MetricState> StartMean() {
  return std::make_unique<MeanState>("mean");
}
std::unique_ptr<MetricState> StartPerplexity() {
  return std::make_unique<PerplexityState>();
}
std::unique_ptr<MetricState> StartF1(int64_t classes) {
  return std::make_unique<F1State>(classes);
}
std::unique_ptr<MetricState> StartAreaUnderCurve() {
  return std::make_unique<CurveState>();
}

int64_t CountOf(std::string_view who, double number, int64_t most) {
  if (number >= 0 && number <= static_cast<double>(most) &&
      number == std::floor(number)) {
    return static_cast<int64_t>(number);
  }
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: a count of {}, wanted a whole number from 0 to "
                          "{}",
                          who, number, most));
}

}  // namespace sluice
