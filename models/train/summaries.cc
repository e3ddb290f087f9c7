#include "models/train/summaries.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// Pictures of the first batch to show.
constexpr int64_t kImages = 4;

bool IsImages(const Tensor& batch) {
  const Shape& shape = batch.shape();
  return shape.rank() == 4 &&
         (shape[3] == 1 || shape[3] == 3 || shape[3] == 4) &&
         (batch.dtype() == DType::kUInt8 || IsFloating(batch.dtype()));
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
  auto train = EventWriter::Open(JoinPath(log_dir_, "train"));
  if (!train.ok() && train.status().code() == Code::kUnimplemented) {
    run.options().Note("no TensorBoard events: " + train.status().message());
    return;
  }
  train_ = std::move(train).ValueOrThrow();
  eval_ = EventWriter::Open(JoinPath(log_dir_, "eval")).ValueOrThrow();
  // TensorBoard wants one graph a folder.
  if (run.resumed_from().empty()) {
    ThrowIfError(train_->Graph(ToEventGraph(run.graph())));
  }
  throughput_.Start(run);
}

bool Summaries::Measures(const TrainingRun& /*run*/, int64_t step) const {
  return train_ && step % every_ == 0;
}

void Summaries::WriteImages(const TrainingRun& run) {
  for (const auto& [name, tensor] : run.batch()) {
    if (!IsImages(tensor)) continue;
    const Shape& shape = tensor.shape();
    for (int64_t i = 0; i < std::min(kImages, shape[0]); ++i) {
      IgnoreUnimplemented(
          train_->Image(fmt::format("{}/{}", name, i), run.step(),
                        tensor.Rows(i, i + 1).Reshaped(shape.Slice(1, 4))));
    }
  }
}

void Summaries::AfterStep(TrainingRun& run) {
  if (!train_) return;
  if (!images_written_) {
    WriteImages(run);
    images_written_ = true;
  }
  const int64_t step = run.step();
  if (!Measures(run, step)) return;
  const Measurement& measured = run.measurement();
  ThrowIfError(train_->Scalar("loss", step, measured.loss));
  ThrowIfError(train_->Scalar("learning_rate", step, measured.learning_rate));
  if (measured.loss_scale) {
    ThrowIfError(train_->Scalar("loss_scale", step, *measured.loss_scale));
  }
  ThrowIfError(
      train_->Scalar("examples_per_second", step, throughput_.Since(run)));
  for (const auto& [name, value] : measured.metrics) {
    ThrowIfError(train_->Scalar(name, step, value));
  }
  for (const auto& [name, value] : measured.summaries) {
    ThrowIfError(value.shape().scalar()
                     ? train_->Scalar(name, step, value.At(0))
                     : train_->Histogram(name, step, value));
  }
  ThrowIfError(train_->Flush());
}

void Summaries::AfterEvaluation(TrainingRun& run,
                                const Evaluation& evaluation) {
  if (!train_) return;
  for (const auto& [name, value] : evaluation.values) {
    ThrowIfError(eval_->Scalar(name, run.step(), value));
  }
  ThrowIfError(eval_->Flush());
  for (const Output& variable : run.graph().TrainableVariables()) {
    ThrowIfError(
        train_->Histogram(variable.name(), run.step(),
                          std::as_const(run).session().Read(variable)));
  }
  ThrowIfError(train_->Flush());
}

void Summaries::End(TrainingRun& /*run*/) {
  if (!train_) return;
  ThrowIfError(train_->Flush());
  ThrowIfError(eval_->Flush());
}

}  // namespace sluice
