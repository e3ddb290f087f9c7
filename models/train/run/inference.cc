#include "models/train/run/inference.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "graph/row_pieces.h"
#include "graph/traversal.h"
#include "models/train/run/check_model.h"
#include "models/train/run/leaf_steps.h"
#include "models/train/run/scattered_variables.h"
#include "models/train/values/weights_file.h"
#include "models/train/workers/device_threads.h"

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

// Whether computing them takes an exchange with other workers.
bool AreExchanged(const std::vector<Output>& outputs) {
  std::vector<const Node*> nodes;
  for (const Output& output : outputs) nodes.push_back(&output.node());
  const auto needed = Needed(nodes);
  return std::any_of(needed.begin(), needed.end(),
                     [](const Node* node) { return node->op().collective; });
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
  // How many batches there are may be known where the size of a pass is not.
  const int64_t examples = input.examples_per_epoch();
  return input.cardinality() < 0 || examples < 0
             ? input.batch_size()
             : std::min(input.batch_size(), examples);
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
  // The first one last: what is saved is its position, which is to be before
  // the batch, whichever of them cannot read it.
  for (size_t i = batches.size(); i-- > 0;) {
    more = batches[i].Next(&(*next)[i]).ValueOrThrow();
  }
  return more;
}

Inference::Inference(const TrainerSpec& spec, RunContext run,
                     const SessionOptions& options)
    : Inference(spec, std::move(run), options,
                Workers(options.collective.get()), nullptr) {}

Inference::Inference(const TrainerSpec& spec, RunContext run,
                     const SessionOptions& options, const Workers& workers,
                     DeviceThreads* devices, const PlaceFn& place,
                     int64_t steps)
    : run_(std::move(run)),
      workers_(workers),
      devices_(devices),
      steps_(steps),
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
  CheckModel(spec.name, model_, run_.mode);
  SessionOptions own = options;
  own.container.clear();  // its variables are copies, whatever the training's
  own.concurrent_runs = 1;
  if (place) place(graph_, own);
  session_ = std::make_unique<Session>(graph_, own);
  scattered_ = ScatteredVariables::Make(graph_, workers_);
  for (size_t i = 1; devices_ != nullptr && i < devices_->size(); ++i) {
    own.devices = {devices_->name(i)};
    others_.push_back(std::make_unique<Session>(graph_, own));
  }

  if (model_.loss.valid()) figures_ = {{"loss", model_.loss}};
  figures_.insert(figures_.end(), model_.metrics.begin(), model_.metrics.end());
  workers_.RequireMergeable(figures_);
  const std::vector<Output> computed = TensorsOf(figures_);
  if (workers_.in_leaves()) RequireNoExchange(computed);
  meets_ = AreExchanged(computed);
  for (size_t i = 0; i <= others_.size(); ++i) {
    evaluate_.push_back(std::make_unique<BatchStep>(
        i == 0 ? *session_ : *others_[i - 1], *features_, computed));
  }
  predict_ = std::make_unique<BatchStep>(*session_, *features_,
                                         OutputsOf(model_.exports));
}

Inference::~Inference() = default;

void Inference::SetVariables(const std::vector<NamedTensor>& values,
                             const std::string& source) {
  const std::vector<Output> variables = graph_.Variables();
  std::vector<NamedTensor> chosen = PreferAverages(values, variables);
  scattered_->TakeMine(&chosen);
  ThrowIfError(
      WriteVariables(*session_, variables, chosen, Extra::kIgnored, source));
}

void Inference::LoadWeights(const std::string& path) {
  ThrowIfError(
      scattered_->Load(*session_, graph_.Variables(), path, {}).status());
}

void Inference::HandOut() {
  for (const Output& variable : scattered_->others()) {
    if (!workers_.several()) break;
    Tensor value = workers_.leads()
                       ? session_->Read(variable)
                       : Tensor(variable.dtype(), variable.shape());
    workers_.TakeFromFirst(variable.name(), value.raw(),
                           static_cast<int64_t>(value.bytes()));
    if (!workers_.leads()) session_->Write(variable, value);
  }
  scattered_->HandOut(*session_);
}

void Inference::CopyVariables(
    const Graph& graph, bool trained,
    const std::function<Tensor(const Output&)>& read) {
  for (const Output& variable : graph_.Variables()) {
    if (SpreadsRows(variable.node())) continue;  // it is the training's own
    // Averages are zeros before the first step.
    const std::string average = variable.name() + "/average";
    // The model may have one of that name itself.
    const bool averaged = trained && graph_.Find(average) == nullptr;
    const Node* twin = averaged ? graph.Find(average) : nullptr;
    if (twin == nullptr) twin = graph.Find(variable.name());
    if (twin == nullptr) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("variable '{}' exists only when the model is not "
                              "training; give it the same name in every mode "
                              "({})",
                              variable.name(), variable.node().location()));
    }
    const Tensor value = read(twin->output(0));
    session_->Write(variable, value);
    for (const auto& other : others_) other->Write(variable, value);
  }
}

void Inference::OnDevices(const std::function<void(size_t device)>& fn) {
  devices_ == nullptr ? fn(0) : devices_->Run(fn);
}

StepInfo Inference::PrepareEvaluation() {
  const int64_t examples = workers_.ShareOf(FullBatch(input_));
  const int64_t batch = FullBatch(input_) / steps_;
  std::vector<StepInfo> infos(evaluate_.size());
  OnDevices([&](size_t device) {
    infos[device] = evaluate_[device]->Prepare(
        examples, static_cast<int>(evaluate_.size()), batch);
  });
  return infos[0];
}

bool Inference::EvaluateShare(BatchStep& step, const Example& share,
                              const OnBatch& each, MetricsOverSet& figures) {
  const bool empty = RowsOf(share) == 0;
  if (empty && !meets_) return true;
  const std::span<const Tensor> values = step.Run(share);
  if (empty) return true;
  const size_t needed = TensorsOf(figures_).size();
  figures.Add(values.first(needed), RowsOf(share));
  return !each || each(share, ExportsOf(values.subspan(needed), RowsOf(share)));
}

std::optional<Evaluation> Inference::Evaluate(const EvaluationWatch& watch) {
  // Who ends it by that would leave the others waiting.
  SLUICE_CHECK(!watch.each || (!workers_.several() && others_.empty()));
  if (!model_.loss.valid()) {
    throw Error(Code::kFailedPrecondition,
                "the model cannot be evaluated: it was made to predict, "
                "without a loss");
  }
  const auto begin = std::chrono::steady_clock::now();
  if (watch.each && watched_ == nullptr) {
    std::vector<Output> fetches = TensorsOf(figures_);
    for (const auto& [name, output] : model_.exports) fetches.push_back(output);
    watched_ =
        std::make_unique<BatchStep>(*session_, *features_, std::move(fetches));
  }
  if (watch.each) {
    watched_->Prepare(workers_.ShareOf(FullBatch(input_)));
  } else {
    PrepareEvaluation();
  }
  std::vector<MetricsOverSet> figures;
  std::vector<Iterator> batches =
      Dataset::MakeIterators(shares_, nullptr, run_.input_bytes);
  for (size_t i = 0; i < batches.size(); ++i) figures.emplace_back(figures_);
  Evaluation evaluation;
  std::vector<Example> shares;
  bool go_on = true;  // for `each`, so that of one device
  while (NextOfEach(batches, &shares)) {
    if (Stopped(watch.stop)) return std::nullopt;
    evaluation.examples += WholeRowsOf(shares[0]);
    OnDevices([&](size_t device) {
      BatchStep& step = watch.each ? *watched_ : *evaluate_[device];
      const LeafRange mine = LeavesOf(static_cast<int64_t>(shares.size()),
                                      static_cast<int64_t>(device),
                                      static_cast<int64_t>(evaluate_.size()));
      for (auto i = static_cast<size_t>(mine.begin);
           i < static_cast<size_t>(mine.end); ++i) {
        if (EvaluateShare(step, shares[i], watch.each, figures[i])) continue;
        go_on = false;
        return;
      }
    });
    if (!go_on) return std::nullopt;
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

Example Inference::ExportsOf(std::span<const Tensor> values,
                             int64_t rows) const {
  Example exports;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& name = model_.exports[i].first;
    CheckExportRows(name, values[i].shape(), rows);
    exports.Set(name, values[i]);
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
    if (!fn(batch, ExportsOf(predict_->Run(batch), RowsOf(batch)))) return;
  }
}

}  // namespace sluice
