#include "models/train/hooks/summaries.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "io/images/png.h"
#include "io/images/stretch.h"

namespace sluice {
namespace {

// Pictures of the first batch to show.
constexpr int64_t kImages = 4;

// What only has their rank, such as long series of numbers, is none.
bool IsImages(const Tensor& batch) {
  const Shape& shape = batch.shape();
  return shape.rank() == 4 && IsPngSize(shape[1], shape[2]) &&
         (shape[3] == 1 || shape[3] == 3 || shape[3] == 4) &&
         (batch.dtype() == DType::kUInt8 || IsFloating(batch.dtype()));
}

// Bytes of what EventWriter::Image would clip, such as standardised pixels.
Tensor WithinRange(const Tensor& image) {
  if (!IsFloating(image.dtype())) return image;
  const Tensor pixels = image.Cast(DType::kFloat32);
  const std::span<const float> values = pixels.values<float>();
  const bool beyond = std::any_of(values.begin(), values.end(), [](float v) {
    return std::isfinite(v) && (v < 0 || v > 1);
  });
  return beyond ? Stretched(pixels) : image;
}

// Each value as often as it was counted.
Tensor ValuesOf(const std::map<int64_t, int64_t>& counts) {
  int64_t number = 0;
  for (const auto& [value, count] : counts) number += count;
  Tensor values(DType::kInt64, {number});
  int64_t* at = values.data<int64_t>();
  for (const auto& [value, count] : counts) at = std::fill_n(at, count, value);
  return values;
}

// Pictures need libpng; without it there are none.
void IgnoreUnimplemented(const Status& status) {
  if (status.code() != Code::kUnimplemented) ThrowIfError(status);
}

}  // namespace

EventGraph ToEventGraph(const Graph& graph) {
  EventGraph out;
  for (const auto& node : graph.nodes()) {
    EventGraph::Node twin;
    twin.name = node->name();
    twin.op = node->op().name;
    twin.device = node->device();
    for (const Output& input : node->inputs()) {
      twin.inputs.push_back(input.name());
    }
    for (const Node* control : node->control_inputs()) {
      twin.inputs.push_back("^" + control->name());
    }
    for (const TensorType& type : node->output_types()) {
      twin.output_shapes.push_back(type.shape);
    }
    out.nodes.push_back(std::move(twin));
  }
  return out;
}

void Summaries::Begin(TrainingRun& run) {
  const bool fresh = run.resumed_from().empty();
  log_ = ScalarLog::Open(log_dir_, run.step(), fresh).ValueOrThrow();
  if (!log_->warning().empty()) run.options().Note(log_->warning());
  OpenEvents(run);
  throughput_.Start(run);
}

void Summaries::OpenEvents(const TrainingRun& run) {
  auto train = EventWriter::Open(JoinPath(log_dir_, train_.name));
  if (!train.ok() && train.status().code() == Code::kUnimplemented) {
    run.options().Note("no TensorBoard events: " + train.status().message());
    return;
  }
  train_.events = std::move(train).ValueOrThrow();
  eval_.events =
      EventWriter::Open(JoinPath(log_dir_, eval_.name)).ValueOrThrow();
  // TensorBoard wants one graph a folder.
  if (run.resumed_from().empty()) {
    ThrowIfError(train_.events->Graph(ToEventGraph(run.graph())));
  }
}

bool Summaries::Measures(const TrainingRun& run, int64_t step) const {
  return run.Passes(step, every_);
}

void Summaries::WriteImages(const TrainingRun& run) {
  for (const auto& [name, tensor] : run.batch()) {
    if (!IsImages(tensor)) continue;
    const Shape& shape = tensor.shape();
    for (int64_t i = 0; i < std::min(kImages, shape[0]); ++i) {
      IgnoreUnimplemented(train_.events->Image(
          fmt::format("{}/{}", name, i), run.step(),
          WithinRange(tensor.Rows(i, i + 1).Reshaped(shape.Slice(1, 4)))));
    }
  }
}

void Summaries::AddScalar(const TrainingRun& run, const Set& set,
                          const std::string& name, double value) {
  if (set.events) ThrowIfError(set.events->Scalar(name, run.step(), value));
  ThrowIfError(log_->Add({.seconds = log_->seconds() + run.training_seconds(),
                          .step = run.step(),
                          .set = set.name,
                          .name = name,
                          .value = value}));
}

void Summaries::Flush() {
  for (const Set* set : {&train_, &eval_}) {
    if (set->events) ThrowIfError(set->events->Flush());
  }
  ThrowIfError(log_->Flush());
}

void Summaries::AfterStep(TrainingRun& run) {
  if (train_.events && !images_written_) {
    WriteImages(run);
    images_written_ = true;
  }
  if (!Measures(run, run.step())) return;
  const Measurement& measured = run.measurement();
  const auto add = [&](const std::string& name, double value) {
    AddScalar(run, train_, name, value);
  };
  const auto add_ranks = [&](const char* name, const auto& values) {
    for (size_t rank = 0; rank < values.size(); ++rank) {
      add(fmt::format("{}/rank_{}", name, rank),
          static_cast<double>(values[rank]));
    }
  };
  // A worker that had no example of this step has figures of another.
  const bool of_this_step = measured.step == run.step();
  if (of_this_step) {
    add("loss", measured.loss);
    add("learning_rate", measured.learning_rate);
    if (measured.loss_scale) add("loss_scale", *measured.loss_scale);
  }
  const Rates rates = throughput_.Since(run);
  add("examples_per_second", rates.examples_per_second);
  add("input_wait", rates.input_wait);
  if (run.workers().several()) {
    add("examples_per_second_per_worker",
        rates.examples_per_second / run.workers().size());
    add("exchange_wait", rates.exchange_wait);
  }
  add_ranks("examples_per_second", rates.worker_examples_per_second);
  add_ranks("exchange_wait", rates.worker_exchange_waits);
  if (!rates.staleness.empty()) {
    add("staleness_mean", MeanOf(rates.staleness));
    add("staleness_max", static_cast<double>(rates.staleness.rbegin()->first));
    if (train_.events) {
      ThrowIfError(train_.events->Histogram("staleness", run.step(),
                                            ValuesOf(rates.staleness)));
    }
  }
  add_ranks("dropped", run.dropped());
  if (!of_this_step) return Flush();
  for (const auto& [name, value] : measured.metrics) add(name, value);
  for (const auto& [name, value] : measured.summaries) {
    if (value.shape().scalar()) {
      add(name, value.At(0));
    } else if (train_.events) {
      ThrowIfError(train_.events->Histogram(name, run.step(), value));
    }
  }
  Flush();
}

void Summaries::AfterEvaluation(TrainingRun& run,
                                const Evaluation& evaluation) {
  for (const auto& [name, value] : evaluation.values) {
    AddScalar(run, eval_, name, value);
  }
  if (train_.events) {
    for (const Output& variable : run.graph().TrainableVariables()) {
      if (run.IsTable(variable.name())) continue;  // as large as that
      ThrowIfError(train_.events->Histogram(variable.name(), run.step(),
                                            run.ValueOf(variable)));
    }
  }
  Flush();
}

void Summaries::End(TrainingRun& /*run*/) {
  Flush();
}

void Summaries::SyncFiles() const {
  if (log_ == nullptr) return;
  for (const Set* set : {&train_, &eval_}) {
    if (set->events) (void)set->events->Sync();
  }
  (void)log_->Sync();
}

}  // namespace sluice
