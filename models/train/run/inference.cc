#include "models/train/run/inference.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "models/train/values/weights_file.h"

namespace sluice {
namespace {

Dataset FiniteInput(const TrainerSpec& spec, const RunContext& run) {
  SLUICE_CHECK(!run.training());
  Dataset input = spec.input(run);
  if (input.cardinality() == kInfinite) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: the input function repeats for ever when it "
                            "is not for training; call Repeat only if "
                            "run.training()",
                            spec.name));
  }
  return input;
}

std::vector<Output> OutputsOf(const NamedOutputs& named) {
  std::vector<Output> outputs;
  for (const auto& [name, output] : named) outputs.push_back(output);
  return outputs;
}

bool Stopped(const StopToken* stop) {
  return stop != nullptr && !stop->Reason().empty();
}

}  // namespace

const double* Evaluation::Find(std::string_view name) const {
  for (const auto& [known, value] : values) {
    if (known == name) return &value;
  }
  return nullptr;
}

int64_t FullBatch(const Dataset& input) {
  return input.cardinality() < 0
             ? input.batch_size()
             : std::min(input.batch_size(), input.examples_per_epoch());
}

int64_t RowsOf(const Example& batch) {
  return batch.empty() ? 0 : batch.begin()->second.shape()[0];
}

int64_t WholeRowsOf(const Example& batch) {
  return batch.whole_rows() > 0 ? batch.whole_rows() : RowsOf(batch);
}

bool NextOfEach(std::vector<Iterator>& batches, std::vector<Example>* next) {
  next->resize(batches.size());
  bool more = false;
  for (size_t i = 0; i < batches.size(); ++i) {
    more = batches[i].Next(&(*next)[i]).ValueOrThrow();
  }
  return more;
}

Inference::Inference(const TrainerSpec& spec, RunContext run,
                     const SessionOptions& options, int64_t virtual_workers)
    : run_(std::move(run)),
      workers_(options.collective.get(), virtual_workers),
      set_(spec.evaluated_on && run_.mode == Mode::kEval
               ? spec.evaluated_on(run_)
               : "test"),
      input_(FiniteInput(spec, run_)) {
  std::vector<BytesToFloats> to_floats;
  if (CopiesBatches(options)) input_ = input_.LeaveBytes(&to_floats);
  features_ =
      std::make_unique<Features>(graph_, input_.Sample(), std::move(to_floats));
  shares_ = workers_.SharesOf(input_);
  run_.batch_size = input_.batch_size();
  Scope root(graph_);
  model_ = spec.model(root, *features_, run_);
  SessionOptions own = options;
  own.container.clear();  // its variables are copies, whatever the training's
  own.concurrent_runs = 1;
  session_ = std::make_unique<Session>(graph_, own);

  figures_ = {{"loss", model_.loss}};
  figures_.insert(figures_.end(), model_.metrics.begin(), model_.metrics.end());
  workers_.RequireMergeable(figures_);
  for (const auto& node : graph_.nodes()) meets_ |= node->op().collective;
  evaluate_ =
      std::make_unique<BatchStep>(*session_, *features_, TensorsOf(figures_));
  predict_ = std::make_unique<BatchStep>(*session_, *features_,
                                         OutputsOf(model_.exports));
}

void Inference::SetVariables(const std::vector<NamedTensor>& values,
                             const std::string& source) {
  ThrowIfError(WriteVariables(*session_, graph_.Variables(),
                              PreferAverages(values), Extra::kIgnored, source));
}

void Inference::LoadWeights(const std::string& path) {
  ThrowIfError(sluice::LoadWeights(*session_, graph_.Variables(), path));
}

void Inference::CopyVariables(const Graph& graph, const Session& session) {
  for (const Output& variable : graph_.Variables()) {
    const Node* twin = graph.Find(variable.name() + "/average");
    if (twin == nullptr) twin = graph.Find(variable.name());
    if (twin == nullptr) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("variable '{}' exists only when the model is not "
                              "training; give it the same name in every mode "
                              "({})",
                              variable.name(), variable.node().location()));
    }
    session_->Write(variable, session.Read(twin->output(0)));
  }
}

std::optional<Evaluation> Inference::Evaluate(const EvaluationWatch& watch) {
  // Who ends it by that would leave the others waiting.
  SLUICE_CHECK(!watch.each || !workers_.several());
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Output> needed = TensorsOf(figures_);
  if (watch.each && watched_ == nullptr) {
    std::vector<Output> fetches = needed;
    for (const auto& [name, output] : model_.exports) fetches.push_back(output);
    watched_ =
        std::make_unique<BatchStep>(*session_, *features_, std::move(fetches));
  }
  BatchStep& step = watch.each ? *watched_ : *evaluate_;
  PrepareEvaluation(step);
  std::vector<MetricsOverSet> figures;
  std::vector<Iterator> batches =
      Dataset::MakeIterators(shares_, nullptr, run_.input_bytes);
  for (size_t i = 0; i < batches.size(); ++i) figures.emplace_back(figures_);
  Evaluation evaluation;
  std::vector<Example> shares;
  while (NextOfEach(batches, &shares)) {
    if (Stopped(watch.stop)) return std::nullopt;
    evaluation.examples += WholeRowsOf(shares[0]);
    for (size_t i = 0; i < shares.size(); ++i) {
      const bool empty = RowsOf(shares[i]) == 0;
      if (empty && !meets_) continue;
      const std::span<const Tensor> values = step.Run(shares[i]);
      if (empty) continue;
      figures[i].Add(values.first(needed.size()), RowsOf(shares[i]));
      if (watch.each &&
          !watch.each(shares[i], ExportsOf(values.subspan(needed.size())))) {
        return std::nullopt;
      }
    }
    if (watch.reporter != nullptr) {
      watch.reporter->Evaluating(evaluation.examples,
                                 input_.examples_per_epoch());
    }
  }
  evaluation.set = set_;
  evaluation.values = workers_.Merged(figures_, std::move(figures)).Values();
  evaluation.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count();
  return evaluation;
}

Example Inference::ExportsOf(std::span<const Tensor> values) const {
  Example exports;
  for (size_t i = 0; i < values.size(); ++i) {
    exports.Set(model_.exports[i].first, values[i]);
  }
  return exports;
}

StepInfo Inference::PreparePrediction() {
  return predict_->Prepare(FullBatch(input_));
}

void Inference::Predict(const OnBatch& fn, const StopToken* stop) {
  SLUICE_CHECK(!workers_.several());
  if (model_.exports.empty()) {
    throw Error(Code::kInvalidArgument,
                "the model has nothing to predict: its ModelSpec names no "
                "exports");
  }
  PreparePrediction();
  Iterator batches = input_.MakeIterator(nullptr, run_.input_bytes);
  Example batch;
  while (!Stopped(stop) && batches.Next(&batch).ValueOrThrow()) {
    if (!fn(batch, ExportsOf(predict_->Run(batch)))) return;
  }
}

}  // namespace sluice
