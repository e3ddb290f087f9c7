#include "models/train/run/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "engine/catch_errors.h"
#include "engine/ceil_div.h"
#include "engine/cpu_features.h"
#include "engine/parse_number.h"
#include "engine/text/json.h"
#include "graph/compile/extract.h"
#include "graph/ops/collective.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/shape.h"
#include "graph/text/text.h"
#include "models/optim/contributions.h"
#include "models/optim/name_pattern.h"
#include "models/optim/schedule.h"
#include "models/train/run/backup_steps.h"
#include "models/train/run/check_model.h"
#include "models/train/run/leaf_steps.h"
#include "models/train/run/scattered_variables.h"
#include "models/train/run/served_tables.h"
#include "models/train/run/training_length.h"
#include "models/train/workers/device_threads.h"

namespace sluice {
namespace {

// The rate of the update, which Optimizer::Minimize has named. An input's
// feature or a node of the model may have taken the name before: so it is the
// last node of that name, or of one that was made unique (Graph::UniqueName).
Output RateOf(const Graph& graph) {
  constexpr std::string_view kName = "learning_rate";
  Output rate;
  for (const auto& node : graph.nodes()) {
    std::string_view name = node->name();
    if (!node->Is("Identity") || !name.starts_with(kName)) continue;
    name.remove_prefix(kName.size());
    const bool numbered =
        name.starts_with('_') && ParseWhole<int>(name.substr(1)).has_value();
    if (name.empty() || numbered) rate = node->output(0);
  }
  SLUICE_CHECK(rate.valid());
  return rate;
}

// Checkpoints hold them as JSON, which is UTF-8, and so they go to other
// workers: better now than at a resume.
void CheckNames(const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (!IsUtf8(names[i])) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("class number {} has a name that is not UTF-8, "
                              "which neither checkpoints nor other workers "
                              "can have",
                              i));
    }
  }
}

// Patterns that match none are a mistake; so is nothing left to train, which
// Minimize says.
void CheckFrozen(const std::string& patterns,
                 const std::vector<Output>& variables) {
  std::vector<std::string> names;
  for (const Output& variable : variables) names.push_back(variable.name());
  ThrowIfError(SelectNames(patterns, names).status().WithContext("freeze"));
}

// Of what the model has made.
void CheckNoShift(const Graph& graph) {
  const Output shift = LearningRateShift(graph);
  if (!shift.valid()) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("'{}' is the name of what schedules are ahead by, "
                          "where the batch size goes by the workers; give the "
                          "model's variable another ({})",
                          shift.name(), shift.node().location()));
}

// Whose batches are those of several steps.
RunContext ForInput(const RunContext& run, int64_t steps) {
  RunContext of_input = run;
  of_input.batch_size *= steps;
  return of_input;
}

Workers WorkersOf(const TrainingOptions& options) {
  return Workers(options.session.collective.get(), options.virtual_workers,
                 options.mirrored.devices.size(), options.pipeline.count);
}

// One process that has all leaves has nobody to compare its input with, nor has
// the first of an elastic job, to which others may come.
void CheckForAnyRank(const TrainerSpec& spec, const RunContext& run,
                     const std::string& position) {
  if (run.size == 1 && !run.elastic) return;
  RunContext last = run;
  last.size = std::max<int64_t>(run.size, 2);
  last.rank = last.size - 1;
  if (spec.input(last).MakeIterator().SavePosition() == position) return;
  throw Error(Code::kFailedPrecondition,
              fmt::format("{}: the input is another for worker {} than for {}; "
                          "batches are shared out afterwards",
                          spec.name, last.rank, run.rank));
}

// One graph is for all of them.
bool AllCopyBatches(const Workers& workers, const SessionOptions& session) {
  const std::vector<uint8_t> each = workers.GatherEach(
      "kind of device", static_cast<uint8_t>(CopiesBatches(session)));
  return std::find(each.begin(), each.end(), 0) == each.end();
}

}  // namespace

TrainingRun::TrainingRun(const TrainerSpec& spec, const RunContext& context,
                         const TrainingOptions& options)
    : spec_(spec),
      context_(WorkersOf(options).WithRank(context)),
      options_(options),
      workers_(WorkersOf(options)),
      backed_(options.servers.any() && options.servers.backups &&
              workers_.several()),
      apart_(backed_ || (options.servers.any() && options.servers.lead &&
                         workers_.several())),
      input_(spec.input(ForInput(context_, steps_at_once()))) {
  SLUICE_CHECK(context.training());
  CheckMirroredDevices(options_.mirrored.devices);
  if (options_.mirrored.any()) {
    options_.session.devices = {options_.mirrored.devices[0]};
  }
  if (options_.servers.any()) CheckServers();
  CheckSame();
  std::vector<BytesToFloats> to_floats = MakeInput();
  SetLength();
  if (spec.class_names) class_names_ = spec.class_names(context_);
  if (!options_.log_dir.empty() || workers_.several() || workers_.elastic()) {
    CheckNames(class_names_);
  }
  MakeModel(std::move(to_floats));
  MakeUpdate();
  MakeSession();
  MakeInference(ForInput(context, steps_at_once()).batch_size);
}

TrainingRun::~TrainingRun() = default;

void TrainingRun::CheckSame() const {
  workers_.RequireSame("number of virtual workers",
                       fmt::format("{}", options_.virtual_workers));
  // Each updates variables of its own, which have to stay the same, or its
  // leaves are to have the bits of any other's.
  if (!options_.servers.any() || workers_.in_leaves()) {
    workers_.RequireSame("instruction set (SLUICE_ISA)", ChosenIsa());
    workers_.RequireSame("kind of device", NameOf(OwnDevice(options_).type));
  }
  workers_.RequireSame("precision", NameOf(options_.session.precision));
}

std::vector<BytesToFloats> TrainingRun::MakeInput() {
  const std::string position = input_.MakeIterator().SavePosition();
  workers_.RequireSame("input", position);
  if (!workers_.several()) CheckForAnyRank(spec_, context_, position);
  // Else it would be who comes later that ends the training.
  if (const int64_t most = options_.most_workers;
      most > 1 && !workers_.in_leaves()) {
    const Status each =
        CatchErrors([&] { (void)input_.Share(most - 1, most); });
    ThrowIfError(
        each.WithContext(fmt::format("up to {} processes (--elastic)", most)));
  }
  workers_.RequireSame("seed", fmt::format("{}", context_.seed));
  std::vector<BytesToFloats> to_floats;
  if (AllCopyBatches(workers_, options_.session)) {
    input_ = input_.LeaveBytes(&to_floats);
  }
  batches_ = MakeIterators();
  shares_.resize(batches_.size());
  return to_floats;
}

void TrainingRun::SetLength() {
  ReckonLength(spec_, input_, steps_at_once(), &context_);
  workers_.RequireSame(
      "batch size, number of steps, evaluations or reports",
      fmt::format("{}, {}, {}, {}", batch_size(),
                  knows_total_steps()
                      ? fmt::format("{}", total_steps())
                      : fmt::format("{} epochs", context_.epochs),
                  options_.evaluate_every, options_.log_every));
}

void TrainingRun::MakeModel(std::vector<BytesToFloats> to_floats) {
  features_ =
      std::make_unique<Features>(graph_, input_.Sample(), std::move(to_floats));
  graph_.Freeze([patterns = options_.freeze](std::string_view name) {
    return MatchesAny(name, patterns);
  });
  Scope root(graph_);
  model_ = spec_.model(root, *features_, context_);
  CheckModel(spec_.name, model_, context_.mode);
  if (options_.pipeline.any()) CutModel();
  model_variables_ = graph_.Variables();
  CheckFrozen(options_.freeze, model_variables_);
  if (options_.batch_by_workers) CheckNoShift(graph_);
}

void TrainingRun::MakeUpdate() {
  Optimizer optimizer = OptimizerFor(spec_, context_, options_);
  learning_rate_ = optimizer.learning_rate();
  accumulates_ = optimizer.accumulates();
  const bool in_leaves = workers_.in_leaves();
  if (backed_ || (!apart_ && workers_.as_several())) {
    // Before the graphs are compared, which then differ for this reason.
    workers_.RequireSame("choice of bucket sizes",
                         fmt::format("{} and {} bytes", options_.buckets.first,
                                     options_.buckets.others));
    const Output weight = features_->AddScalar(graph_, kShareWeight);
    train_ = optimizer
                 .WithAllReduce({.weight = weight.name(),
                                 .between = options_.gradients_between,
                                 .buckets = options_.buckets,
                                 .in_two = in_leaves,
                                 .shared = options_.servers.any() ||
                                           options_.pipeline.any() ||
                                           (workers_.elastic() && !in_leaves),
                                 .largest_share = LargestShare(),
                                 .workers = workers_.size(),
                                 .rows_shared = options_.servers.any(),
                                 .contributed = backed_})
                 .Minimize(model_.loss);
    // After the gradients, so that none waits for it.
    loss_ = backed_ ? Cast(model_.loss, DType::kFloat32) : JobLoss(weight);
    workers_.RequireSame("graph", PrintGraph(graph_));
  } else {
    loss_ = model_.loss;
    train_ = optimizer.Minimize(loss_);
    if (apart_) workers_.RequireSame("graph", PrintGraph(graph_));
  }
}

void TrainingRun::MakeSession() {
  scattered_ = ScatteredVariables::Make(graph_, workers_);
  tables_ = std::make_unique<ServedTables>();
  options_.session.seed = context_.seed;
  devices_ = options_.mirrored.any()
                 ? std::make_unique<DeviceThreads>(options_.mirrored.devices)
                 : std::make_unique<DeviceThreads>();
  session_ = std::make_unique<Session>(graph_, PlaceTraining());
  if (apart_) session_->set_replica(static_cast<uint32_t>(workers_.rank()));
  MakeSteps(RateOf(graph_));
}

void TrainingRun::MakeInference(int64_t batch_size_asked) {
  RunContext evaluation = context_;
  evaluation.mode = Mode::kEval;
  evaluation.batch_size = batch_size_asked;
  evaluation.class_names = class_names_;
  evaluation.trained_on = batches_[0].SavePosition();
  inference_ = std::make_unique<Inference>(
      spec_, evaluation, options_.session, workers_.WithWholeModels(),
      devices_.get(),
      [this](Graph& graph, SessionOptions& session) {
        if (!options_.servers.any()) return;
        ReadFromServers(graph_, options_.servers, graph, session);
      },
      steps_at_once());
  workers_.RequireSame("evaluation input",
                       inference_->input().MakeIterator().SavePosition());
  inference_->PrepareEvaluation();
}

std::vector<Iterator> TrainingRun::MakeIterators() const {
  return Dataset::MakeIterators(workers_.SharesOf(input_), input_stages_,
                                context_.input_bytes);
}

void TrainingRun::MakeSteps(const Output& learning_rate) {
  std::vector<Output> measured = TensorsOf(model_.metrics);
  for (const auto& [name, value] : model_.summaries) measured.push_back(value);
  if (options_.pipeline.any()) measured = WithLoss(measured);
  const int64_t examples = workers_.ShareOf(FullBatch(input_));
  const int64_t batch = FullBatch(input_) / steps_at_once();
  if (workers_.in_leaves()) {
    leaves_ = std::make_unique<LeafSteps>(
        graph_, *session_, *features_, workers_, *devices_,
        LeafSteps::Options{loss_, learning_rate, train_, std::move(measured),
                           options_.servers.any(), options_.mirrored,
                           options_.session});
    info_ = leaves_->Prepare(examples, batch);
    if (owns_variables()) session_->Initialize();
    return;
  }
  const std::vector<Operation> targets = Targets();
  std::vector<Output> always = {loss_};
  if (stale_.valid()) always.push_back(stale_);
  if (backed_) always.push_back(learning_rate);
  plain_ = std::make_unique<BatchStep>(*session_, *features_, always, targets);
  info_ = plain_->Prepare(examples, /*beside=*/1, batch);
  if (owns_variables()) session_->Initialize();
  if (backed_) {
    backups_ = std::make_unique<BackupSteps>(graph_, *session_, workers_,
                                             options_.servers, train_,
                                             input_.batch_size());
  } else {
    always.push_back(learning_rate);
  }
  measured.insert(measured.begin(), always.begin(), always.end());
  measuring_ = std::make_unique<BatchStep>(*session_, *features_,
                                           std::move(measured), targets);
}

// Of contributions no rows travel by themselves.
std::vector<FeedShape> TrainingRun::LargestShare() const {
  if (backed_) return {};
  return FeedsOf(CeilDiv(batch_size(), workers_.leaves()));
}

std::vector<FeedShape> TrainingRun::FeedsOf(int64_t examples) const {
  const std::vector<Shape> shapes = features_->ShapesFor(examples);
  std::vector<FeedShape> feeds;
  for (const auto& [name, placeholder] : *features_) {
    feeds.push_back({placeholder, shapes[feeds.size()]});
  }
  return feeds;
}

// A share of no examples counts for nothing, whatever its loss is.
Output TrainingRun::JobLoss(const Output& weight) {
  const DeviceScope there(graph_, model_.loss.node().device());
  const Output loss = Cast(model_.loss, DType::kFloat32);
  return AllReduce(Select(Greater(weight, 0), loss * weight, ZerosLike(loss)),
                   Reduction::kMean, "job_loss");
}

std::unique_ptr<Graph> TrainingRun::StepGraph() const {
  StepRequest request;
  request.feeds = FeedsOf(workers_.ShareOf(input_.batch_size()));
  request.fetches = {loss_};
  request.targets = {train_};
  if (backed_) {
    for (const Output& fed : {AdmittedWorkers(graph_), AdmittedWeight(graph_)})
      request.feeds.push_back({fed, fed.shape()});
    request.targets.push_back(ContributionOf(graph_, workers_.rank()));
  }
  return ExtractStep(graph_, request).ValueOrThrow();
}

void TrainingRun::MarkWritten() {
  snapshot_is_old_ = true;
  if (leaves_ != nullptr) leaves_->MarkWritten();
}

std::vector<std::pair<Session*, std::string>> TrainingRun::step_sessions() {
  std::vector<std::pair<Session*, std::string>> sessions = {
      {session_.get(), session_->options().devices[0]}};
  for (size_t i = 0; leaves_ != nullptr && i < devices_->size(); ++i) {
    Session& session = leaves_->mirrors().session(i);
    if (&session == session_.get()) continue;
    sessions.emplace_back(&session, devices_->name(i));
  }
  return sessions;
}

std::optional<double> TrainingRun::loss_scale() const {
  return known_loss_scale_ ? known_loss_scale_ : ReadLossScale();
}

std::optional<double> TrainingRun::ReadLossScale() const {
  const Node* scale = graph_.Find("loss_scale/scale");
  if (scale == nullptr || !session_->CanRead(scale->output(0))) {
    return std::nullopt;
  }
  return session_->Read(scale->output(0)).At(0);
}

void TrainingRun::Stop(const std::string& reason) {
  if (stop_reason_.empty()) stop_reason_ = reason;
}

std::optional<Evaluation> TrainingRun::Evaluate(const StopToken* stop) {
  Finish();
  inference_->CopyVariables(
      graph_, /*trained=*/step_ > 0, [&](const Output& variable) {
        return scattered_->ReadForAll(*session_, variable);
      });
  std::optional<Evaluation> evaluation =
      inference_->Evaluate({.stop = stop, .reporter = options_.reporter});
  if (evaluation) evaluation->step = step_;
  return evaluation;
}

}  // namespace sluice
