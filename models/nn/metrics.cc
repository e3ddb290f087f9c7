#include "models/nn/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/ops/elementwise.h"
#include "graph/ops/index.h"
#include "graph/ops/reduce.h"

namespace sluice {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

// One of the first for each of the second.
void CheckPairs(const char* metric, std::span<const Tensor> values) {
  if (values[0].elements() == values[1].elements()) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: {} predictions for {} labels", metric,
                          values[0].elements(), values[1].elements()));
}

// Sums are kept in double: exact for counts.
class MeanState final : public MetricState {
 public:
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

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

class PerplexityState final : public MetricState {
 public:
  void Add(std::span<const Tensor> values, int64_t examples) override {
    mean_.Add(values, examples);
  }
  double Value() const override { return std::exp(mean_.Value()); }

 private:
  MeanState mean_;
};

// Of predictions and labels, int64 [n] each.
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
      ++counts_[labels[i]].labels;
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

 private:
  struct Count {
    int64_t labels = 0, predictions = 0, both = 0;
  };
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

 private:
  std::vector<double> positive_, negative_;  // scores
};

Output AsInt64(Operand labels) {
  return labels.tensor().dtype() == DType::kInt64 ? labels.output()
                                                  : Cast(labels, DType::kInt64);
}

}  // namespace

Metric::Metric(const Output& values)
    : Metric({values}, [] { return std::make_unique<MeanState>(); }) {}

Metric::Metric(std::vector<Output> tensors, Start start)
    : tensors_(std::move(tensors)), start_(std::move(start)) {}

Output Accuracy(Operand logits, Operand labels) {
  LocationScope location(logits.graph(), logits.location());
  NameScope names(logits.graph(), "accuracy");
  return Cast(Equal(ArgMax(logits), AsInt64(labels)), DType::kFloat32);
}

Output TopKAccuracy(Operand logits, Operand labels, int64_t k) {
  LocationScope location(logits.graph(), logits.location());
  NameScope names(logits.graph(), "top_k_accuracy");
  return Cast(InTopK(logits, labels, k), DType::kFloat32);
}

Output AbsoluteError(Operand predictions, Operand targets) {
  LocationScope location(predictions.graph(), predictions.location());
  NameScope names(predictions.graph(), "absolute_error");
  const Output error = Abs(predictions - targets);
  Axes others;
  for (int axis = 1; axis < error.shape().rank(); ++axis) {
    others.push_back(axis);
  }
  return others.empty() ? error : Mean(error, others);
}

Metric F1(Operand logits, Operand labels) {
  LocationScope location(logits.graph(), logits.location());
  NameScope names(logits.graph(), "f1");
  const Shape& shape = logits.output().shape();
  if (shape.rank() != 2 || shape[1] == kUnknown) {
    throw Error(Code::kInvalidArgument,
                fmt::format("F1: logits are {}, wanted [n, classes]",
                            shape.ToString()));
  }
  return {{ArgMax(logits), AsInt64(labels)},
          [classes = shape[1]] { return std::make_unique<F1State>(classes); }};
}

Metric AreaUnderCurve(Operand scores, Operand labels) {
  return {{scores.output(), labels.output()},
          [] { return std::make_unique<CurveState>(); }};
}

Metric Perplexity(Operand cross_entropy) {
  return {{cross_entropy.output()},
          [] { return std::make_unique<PerplexityState>(); }};
}

MetricsOverSet::MetricsOverSet(const NamedMetrics& metrics)
    : metrics_(metrics) {
  for (const auto& [name, metric] : metrics) states_.push_back(metric.Begin());
}

void MetricsOverSet::Add(std::span<const Tensor> values, int64_t examples) {
  for (size_t i = 0; i < states_.size(); ++i) {
    const size_t count = metrics_[i].second.tensors().size();
    states_[i]->Add(values.first(count), examples);
    values = values.subspan(count);
  }
}

std::vector<std::pair<std::string, double>> MetricsOverSet::Values() const {
  std::vector<std::pair<std::string, double>> values;
  for (size_t i = 0; i < states_.size(); ++i) {
    values.emplace_back(metrics_[i].first, states_[i]->Value());
  }
  return values;
}

std::vector<Output> TensorsOf(const NamedMetrics& metrics) {
  std::vector<Output> tensors;
  for (const auto& [name, metric] : metrics) {
    tensors.insert(tensors.end(), metric.tensors().begin(),
                   metric.tensors().end());
  }
  return tensors;
}

}  // namespace sluice
