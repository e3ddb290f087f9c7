#include "models/train/run/batch_step.h"

#include <algorithm>

#include "engine/device.h"
#include "graph/session/cluster.h"
#include "models/train/run/memory_check.h"

namespace sluice {
namespace {

// Shapes of batch kept ready: the usual one and a remainder or two.
constexpr size_t kPrepared = 4;
// Batches in memory at a time: the step's, one being made, two ready.
constexpr size_t kBatches = 4;

}  // namespace

bool CopiesBatches(const SessionOptions& session) {
  const auto device = ParseDeviceName(session.devices.at(0)).ValueOrThrow();
  return device.type != DeviceType::kCpu;
}

BatchStep::BatchStep(Session& session, const Features& features,
                     std::vector<Output> fetches,
                     std::vector<Operation> targets, int at_once)
    : session_(session),
      features_(features),
      placeholders_(features.begin(), features.end()),
      fetches_(std::move(fetches)),
      targets_(std::move(targets)),
      at_once_(static_cast<size_t>(at_once)),
      feeds_(placeholders_.size()),
      shapes_(placeholders_.size()) {}

BatchStep::Prepared& BatchStep::PreparedFor(const std::vector<Shape>& shapes) {
  auto found = std::find_if(
      prepared_.begin(), prepared_.end(),
      [&](const Prepared& prepared) { return prepared.shapes == shapes; });
  if (found != prepared_.end()) {
    std::rotate(prepared_.begin(), found, found + 1);
    return prepared_.front();
  }
  Prepared prepared;
  prepared.shapes = shapes;
  std::vector<FeedShape> feeds;
  for (size_t i = 0; i < shapes.size(); ++i) {
    feeds.push_back({placeholders_[i].second, shapes[i]});
  }
  prepared.step = session_.Prepare(feeds, fetches_, targets_);
  prepared.values.resize(at_once_ + 1);
  if (prepared_.size() == kPrepared) prepared_.pop_back();
  prepared_.insert(prepared_.begin(), std::move(prepared));
  return prepared_.front();
}

StepInfo BatchStep::Prepare(int64_t examples, int beside, int64_t batch) {
  MemoryNeed need;
  need.examples = examples;
  need.batch = batch;
  shapes_ = features_.ShapesFor(examples);
  for (size_t i = 0; i < placeholders_.size(); ++i) {
    need.batches += kBatches * static_cast<size_t>(shapes_[i].elements()) *
                    SizeOf(placeholders_[i].second.dtype());
    if (i > 0) continue;
    for (const Output& variable : placeholders_[i].second.graph().Variables()) {
      if (!session_.CanRead(variable)) continue;
      // What other processes have takes none of this one's memory.
      if (!IsHere(variable.node().device(), session_.options().task)) continue;
      need.variables += static_cast<size_t>(variable.shape().elements()) *
                        SizeOf(variable.dtype());
    }
  }
  StepInfo info = PreparedFor(shapes_).step.info();
  const auto less = [](size_t a, size_t b) { return a > b ? a - b : 0; };
  need.arena = less(at_once_ * info.arena_bytes, session_.arena_bytes());
  need.variables = less(need.variables, session_.variable_bytes());
  const auto accelerator = session_.available_accelerator_bytes();
  if (accelerator) {
    ThrowIfError(CheckMemory(need, *accelerator));
    return info;
  }
  need.examples *= beside;
  for (size_t* bytes : {&need.arena, &need.variables, &need.batches}) {
    *bytes *= static_cast<size_t>(beside);
  }
  ThrowIfError(CheckMemory(need));
  return info;
}

std::span<const Tensor> BatchStep::Pending::Wait() {
  run_.Wait();
  return values_;
}

BatchStep::Pending BatchStep::Start(const Example& batch,
                                    std::optional<uint32_t> replica) {
  for (size_t i = 0; i < feeds_.size(); ++i) {
    feeds_[i] = batch[placeholders_[i].first];
    shapes_[i] = feeds_[i].shape();
  }
  Prepared& prepared = PreparedFor(shapes_);
  std::vector<Tensor>& values = prepared.values[prepared.turn];
  if (values.empty()) values = prepared.step.MakeFetches();
  Pending pending;
  pending.run_ = replica ? prepared.step.Start(feeds_, values, *replica)
                         : prepared.step.Start(feeds_, values);
  prepared.turn = (prepared.turn + 1) % prepared.values.size();
  pending.values_ = values;
  return pending;
}

std::span<const Tensor> BatchStep::Run(const Example& batch) {
  last_ = Start(batch);
  return last_.Wait();
}

}  // namespace sluice
