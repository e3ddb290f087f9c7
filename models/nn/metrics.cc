#include "models/nn/metrics.h"

#include <fmt/format.h>

#include "engine/caught.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/index.h"
#include "graph/ops/loss.h"
#include "graph/ops/reduce.h"
#include "graph/ops/shape.h"
#include "models/nn/metric_states.h"

namespace sluice {
namespace {

Output AsInt64(Operand labels) {
  return labels.tensor().dtype() == DType::kInt64 ? labels.output()
                                                  : Cast(labels, DType::kInt64);
}

// bool [n], of floating logits[n, classes]: where one is NaN, which ArgMax
// takes for the largest.
Output HasNan(Operand logits) {
  return IsNan(Max(logits, {-1}));
}

// Calls what may be a user's; its errors name the metric.
template <typename Call>
auto OfMetric(const std::string& name, Call call) {
  try {
    return call();
  } catch (...) {
    throw Error(CaughtStatus().WithContext(fmt::format("metric '{}'", name)));
  }
}

// The numbers of one metric, whose count goes before them, off the front of
// `state`.
std::span<const double> TakeNumbers(std::span<const double>* state) {
  if (state->empty()) {
    throw Error(Code::kInvalidArgument, "its numbers are missing");
  }
  const auto count = static_cast<size_t>(CountOf(
      "its numbers", state->front(), static_cast<int64_t>(state->size() - 1)));
  const std::span<const double> numbers = state->subspan(1, count);
  *state = state->subspan(1 + count);
  return numbers;
}

}  // namespace

std::vector<double> MetricState::State() const {
  throw Error(Code::kUnimplemented,
              "its MetricState has no State, which several workers need");
}

void MetricState::Merge(std::span<const double> /*state*/) {
  throw Error(Code::kUnimplemented,
              "its MetricState has no Merge, which several workers need");
}

Metric::Metric(const Output& values) : Metric({values}, StartMean) {}

Metric::Metric(std::vector<Output> tensors, Start start)
    : tensors_(std::move(tensors)), start_(std::move(start)) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].valid()) continue;
    throw Error(Code::kInvalidArgument,
                fmt::format("Metric: tensor {} of {} is an empty Output: a "
                            "handle that no op returned",
                            i + 1, tensors_.size()));
  }
  if (start_ == nullptr) {
    throw Error(Code::kInvalidArgument,
                "Metric: no function that makes its states");
  }
}

std::unique_ptr<MetricState> Metric::Begin() const {
  std::unique_ptr<MetricState> state = start_();
  if (state == nullptr) {
    throw Error(Code::kInvalidArgument,
                "its function that makes states returned none");
  }
  return state;
}

Output Accuracy(Operand logits, Operand labels) {
  LocationScope location(logits.graph(), logits.location());
  NameScope names(logits.graph(), "accuracy");
  const Output likeliest = ArgMax(logits);
  // Else they would broadcast.
  if (!Compatible(likeliest.shape(), labels.tensor().shape())) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("Accuracy: logits={} want labels of shape {}, got {} ({})",
                    logits.tensor().shape().ToString(),
                    likeliest.shape().ToString(),
                    labels.tensor().shape().ToString(),
                    FormatLocation(logits.location())));
  }
  Output right = Equal(likeliest, EnsureShapeOf(AsInt64(labels), likeliest));
  if (IsFloating(logits.tensor().dtype())) {
    right = LogicalAnd(right, LogicalNot(HasNan(logits)));
  }
  return Cast(right, DType::kFloat32);
}

Output TopKAccuracy(Operand logits, Operand labels, int64_t k) {
  LocationScope location(logits.graph(), logits.location());
  NameScope names(logits.graph(), "top_k_accuracy");
  return Cast(InTopK(logits, labels, k), DType::kFloat32);
}

Output AbsoluteError(Operand predictions, Operand targets) {
  const Operand wanted = CheckTargets("AbsoluteError", predictions, targets);
  LocationScope location(predictions.graph(), predictions.location());
  NameScope names(predictions.graph(), "absolute_error");
  const Output error = Abs(predictions - wanted);
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
  Output predicted = ArgMax(logits);
  if (IsFloating(logits.tensor().dtype())) {
    predicted = Select(HasNan(logits), -1, predicted);
  }
  return {{predicted, AsInt64(labels)},
          [classes = shape[1]] { return StartF1(classes); }};
}

Metric AreaUnderCurve(Operand scores, Operand labels) {
  return {{scores.output(), labels.output()}, StartAreaUnderCurve};
}

Metric Perplexity(Operand cross_entropy) {
  return {{cross_entropy.output()}, StartPerplexity};
}

MetricsOverSet::MetricsOverSet(const NamedMetrics& metrics)
    : metrics_(metrics) {
  for (const auto& [name, metric] : metrics) {
    states_.push_back(OfMetric(name, [&metric] { return metric.Begin(); }));
  }
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

std::vector<double> MetricsOverSet::State() const {
  std::vector<double> state;
  for (size_t i = 0; i < states_.size(); ++i) {
    const std::vector<double> numbers =
        OfMetric(metrics_[i].first, [&] { return states_[i]->State(); });
    state.push_back(static_cast<double>(numbers.size()));
    state.insert(state.end(), numbers.begin(), numbers.end());
  }
  return state;
}

void MetricsOverSet::Merge(std::span<const double> state) {
  // Into copies: when the last metric's numbers make no sense, the first must
  // not have changed.
  std::vector<std::unique_ptr<MetricState>> merged;
  for (size_t i = 0; i < states_.size(); ++i) {
    merged.push_back(OfMetric(metrics_[i].first, [&] {
      std::unique_ptr<MetricState> copy = metrics_[i].second.Begin();
      copy->Merge(states_[i]->State());
      copy->Merge(TakeNumbers(&state));
      return copy;
    }));
  }
  if (!state.empty()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{} numbers follow those of {} metrics",
                            state.size(), states_.size()));
  }
  states_ = std::move(merged);
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
