// Runs of a prepared step: operands are checked, each device's executor is
// given its part, and what they fetch is collected.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "engine/caught.h"
#include "engine/runtime/collective.h"
#include "graph/session/session_state.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// `limit` from now, or none, where the clock does not go so far.
Clock::time_point DeadlineAfter(std::chrono::milliseconds limit) {
  using std::chrono::milliseconds;
  const Clock::time_point now = Clock::now();
  // Compared in milliseconds, since as nanoseconds the limit may overflow.
  const auto left =
      std::chrono::floor<milliseconds>(Clock::time_point::max() - now);
  return limit < left ? now + limit : Clock::time_point::max();
}

// Whether another task has the run begun, and chose its key.
bool IsOrdered(const std::optional<RunOrder>& order) {
  return order && order->key != RunKey();
}

}  // namespace

PreparedStep::Impl::Impl(Session::Impl& s, BuiltStep built,
                         const StepRequest& request)
    : session(s),
      feed_types(std::move(built.feed_types)),
      fetch_types(std::move(built.fetch_types)),
      feeds_here(std::move(built.feeds_here)),
      fetches_here(std::move(built.fetches_here)),
      passes(std::move(built.passes)),
      launches(std::move(built.launches)),
      edges(built.edges),
      has_targets(!request.targets.empty()),
      updates(built.updates),
      counts(has_targets || updates),
      frames(static_cast<size_t>(s.lanes.count())) {
  for (const FeedShape& feed : request.feeds) {
    feed_names.push_back(feed.output.name());
  }
  for (const Output& fetch : request.fetches) {
    fetch_names.push_back(fetch.name());
  }
  for (const BuiltStep::Part& part : built.parts) {
    queued = queued || (part.device->accelerator() != nullptr &&
                        !part.device->variables().shared());
  }
  // A collective is for one thread at a time, which may be the caller's.
  goes_on = edges > 0 && !queued && s.rendezvous->tells() &&
            s.options.collective == nullptr;
  if (frames.size() > 1) cut = std::move(built.cut);
  frames[0] = MakeFrame(std::move(built.parts), s.lanes.lane(0));
}

std::unique_ptr<PreparedStep::Impl::Frame> PreparedStep::Impl::MakeFrame(
    std::vector<BuiltStep::Part> built, const Lane& lane) {
  auto frame = std::make_unique<Frame>(*this);
  for (BuiltStep::Part& part : built) {
    frame->on_devices.push_back(std::make_unique<DevicePart>(
        DevicePart{std::move(part.plan), nullptr}));
    DevicePart& here = *frame->on_devices.back();
    here.executor = std::make_unique<Executor>(here.plan, *part.device,
                                               *lane.arenas.at(part.device));
  }
  MakeParts(*frame);
  frame->feeds.resize(feed_types.size());
  frame->kept.resize(feed_types.size());
  frame->by_address.reserve(fetch_types.size());
  for (Begun& run : frame->runs) {
    run.values.resize(fetch_types.size());
    run.fetches.resize(fetch_types.size());
  }
  return frame;
}

// Accelerators' parts are one if they can be. What another rendezvous than the
// local one does between them only it knows.
void PreparedStep::Impl::MakeParts(Frame& frame) {
  std::vector<Executor*> grouped;
  if (dynamic_cast<const LocalRendezvous*>(session.rendezvous.get())) {
    for (const auto& here : frame.on_devices) {
      if (here->executor->on_accelerator()) {
        grouped.push_back(here->executor.get());
      }
    }
  }
  std::unique_ptr<ExecutorGroup> group = ExecutorGroup::Make(grouped);
  if (group == nullptr) {
    grouped.clear();
  } else {
    frame.parts.push_back(std::make_unique<Part>(frame));
    frame.parts.back()->executors = grouped;
    frame.parts.back()->group = std::move(group);
  }
  for (const auto& here : frame.on_devices) {
    Executor* const executor = here->executor.get();
    if (std::find(grouped.begin(), grouped.end(), executor) != grouped.end()) {
      continue;
    }
    frame.parts.push_back(std::make_unique<Part>(frame));
    frame.parts.back()->executors = {executor};
  }
}

Result<PreparedStep::Impl::Frame*> PreparedStep::Impl::FrameOf(
    const Lane& lane) {
  std::unique_ptr<Frame>& frame = frames[lane.index];
  if (frame == nullptr) {
    try {
      SLUICE_ASSIGN_OR_RETURN(std::vector<BuiltStep::Part> built,
                              CompileParts(cut, session.devices));
      frame = MakeFrame(std::move(built), lane);
    } catch (...) {
      return CaughtStatus();
    }
  }
  return frame.get();
}

Status PreparedStep::Impl::CheckOperands(std::span<const Tensor> feed_values,
                                         std::span<Tensor> fetch_values) const {
  if (feed_values.size() != feed_types.size() ||
      fetch_values.size() != fetch_types.size()) {
    return InvalidArgument(fmt::format(
        "the step was prepared for {} feeds and {} fetches, got {} and {}",
        feed_types.size(), fetch_types.size(), feed_values.size(),
        fetch_values.size()));
  }
  for (size_t i = 0; i < feed_types.size(); ++i) {
    if (!feeds_here[i]) continue;
    const TensorType got = TensorTypeOf(feed_values[i]);
    if (!(got == feed_types[i])) {
      return InvalidArgument(fmt::format("feed of '{}': {} given, wanted {}",
                                         feed_names[i], got.ToString(),
                                         feed_types[i].ToString()));
    }
  }
  for (size_t i = 0; i < fetch_types.size(); ++i) {
    if (!fetches_here[i]) continue;
    const TensorType got = TensorTypeOf(fetch_values[i]);
    if (!(got == fetch_types[i])) {
      return InvalidArgument(
          fmt::format("fetch {}: a buffer {} given, wanted {}", i,
                      got.ToString(), fetch_types[i].ToString()));
    }
  }
  return {};
}

// Of those in the order of their addresses, neighbours overlap if any do.
Status PreparedStep::Impl::CheckApart(
    Frame& frame, std::span<const Tensor> fetch_values) const {
  auto& fetches = frame.by_address;
  fetches.clear();
  for (size_t i = 0; i < fetch_values.size(); ++i) {
    if (!fetches_here[i] || fetch_values[i].bytes() == 0) continue;
    fetches.emplace_back(reinterpret_cast<uintptr_t>(fetch_values[i].raw()), i);
  }
  std::sort(fetches.begin(), fetches.end());
  for (size_t i = 1; i < fetches.size(); ++i) {
    const auto& [address, fetch] = fetches[i - 1];
    const auto& [next_address, next] = fetches[i];
    if (next_address - address >= fetch_values[fetch].bytes()) continue;
    return InvalidArgument(fmt::format("fetches '{}' and '{}' share memory",
                                       fetch_names[fetch], fetch_names[next]));
  }
  return {};
}

RunKey PreparedStep::Impl::TakeKey(const std::optional<RunOrder>& order) {
  if (IsOrdered(order)) return order->key;
  return meets_others() ? session.rendezvous->NewRun() : RunKey();
}

Status PreparedStep::Impl::BeginRun(Lane& lane, Frame& frame, const RunKey& key,
                                    std::span<const Tensor> feed_values,
                                    std::span<Tensor> fetch_values,
                                    const std::optional<RunOrder>& order,
                                    int parts_here) {
  SLUICE_RETURN_IF_ERROR(CheckOperands(feed_values, fetch_values));
  SLUICE_RETURN_IF_ERROR(CheckApart(frame, fetch_values));
  // One that was prepared before it was; others are not prepared.
  if (updates && session.is_frozen) {
    return FailedPrecondition(
        "the step updates variables, but the session is frozen");
  }
  if (static_cast<int>(frame.parts.size()) > parts_here) {
    SLUICE_RETURN_IF_ERROR(session.ReserveThreads(lane, parts_here));
  }
  const int slot = static_cast<int>(frame.next_run % frame.runs.size());
  Begun& run = frame.runs[slot];
  if (run.under_way) SLUICE_RETURN_IF_ERROR(WaitIn(frame, run.number));
  SLUICE_RETURN_IF_ERROR(TakeFeeds(frame, feed_values, fetch_values,
                                   /*copy_all=*/parts_here == 0));
  for (size_t i = 0; i < fetch_values.size(); ++i) {
    run.values[i] = fetch_values[i];
    run.fetches[i] = fetch_values[i].raw();
  }
  const auto limit = session.options.deadline;
  if (frame.far.size() != remotes.size()) {
    frame.far.resize(remotes.size());
    for (FarEnd& end : frame.far) end.frame = &frame;
  }
  const bool ordered = IsOrdered(order);
  const Clock::time_point deadline = ordered ? order->deadline
                                     : limit.count() > 0
                                         ? DeadlineAfter(limit)
                                         : Clock::time_point::max();
  frame.key = key;
  lane.stop.Begin(
      ordered || meets_others() ? session.rendezvous.get() : nullptr, key,
      deadline);

  frame.lane = &lane;
  frame.buffers = {frame.feeds, run.fetches, slot};
  frame.counted = counts && !order;
  const auto [step, replica, observer] = session.Begin(frame.counted);
  frame.observer = observer;
  frame.context = {};
  frame.context.step = order ? order->step : step;
  frame.context.replica = order ? order->replica : replica;
  frame.context.collective = session.options.collective.get();
  return {};
}

Result<uint64_t> PreparedStep::Impl::EndRun(Frame& frame) {
  Lane& lane = *frame.lane;
  lane.stop.End();
  // Not before: whoever stops the step aborts the run.
  for (const auto& part : frame.parts) {
    if (std::exchange(part->joined, false)) {
      session.rendezvous->Leave(frame.key);
    }
  }
  if (!remotes.empty()) {
    const Status status =
        lane.stop.stopped() ? lane.stop.status() : Status::Ok();
    for (const auto& remote : remotes) remote->Release(frame.key, status);
  }
  if (lane.stop.stopped()) {
    if (frame.counted) session.GiveBack(frame.context.step);
    // Other devices' parts may be under way, in the slot that is used next.
    for (const auto& here : frame.on_devices) here->executor->Drain();
    return lane.stop.status();
  }
  Begun& run = frame.runs[frame.buffers.slot];
  run.number = frame.next_run++;
  run.under_way = true;
  // It is over on the host. What a shared accelerator has to say is this run's
  // to be told.
  if (!queued) SLUICE_RETURN_IF_ERROR(WaitIn(frame, run.number));
  return run.number;
}

Result<uint64_t> PreparedStep::Impl::StartIn(
    Lane& lane, Frame& frame, const RunKey& key,
    std::span<const Tensor> feed_values, std::span<Tensor> fetch_values,
    const std::optional<RunOrder>& order) {
  Status begun = BeginRun(lane, frame, key, feed_values, fetch_values, order,
                          /*parts_here=*/1);
  if (!begun.ok()) return session.Refuse(key, std::move(begun));
  RunParts(frame);
  return EndRun(frame);
}

Status PreparedStep::Impl::WaitIn(Frame& frame, uint64_t number) {
  const int slot = static_cast<int>(number % frame.runs.size());
  Begun& run = frame.runs[slot];
  if (run.number != number) return {};  // a later one has waited for it
  if (!run.under_way) return run.status;
  run.under_way = false;
  run.status = {};
  const StepBuffers buffers = {{}, run.fetches, slot};
  for (const auto& here : frame.on_devices) {
    Status status = here->executor->Collect(buffers);
    if (run.status.ok()) run.status = std::move(status);
  }
  for (Tensor& value : run.values) value = Tensor();
  return run.status;
}

Status PreparedStep::Impl::Run(std::span<const Tensor> feed_values,
                               std::span<Tensor> fetch_values,
                               std::optional<RunOrder> order) {
  const Lanes::Turn turn(session.lanes);
  return RunIn(turn.lane(), feed_values, fetch_values, order);
}

Status PreparedStep::Impl::RunIn(Lane& lane,
                                 std::span<const Tensor> feed_values,
                                 std::span<Tensor> fetch_values,
                                 const std::optional<RunOrder>& order) {
  const RunKey key = TakeKey(order);
  const Result<Frame*> frame = FrameOf(lane);
  if (!frame.ok()) return session.Refuse(key, frame.status());
  SLUICE_ASSIGN_OR_RETURN(
      const uint64_t run,
      StartIn(lane, **frame, key, feed_values, fetch_values, order));
  return fetch_values.empty() ? Status() : WaitIn(**frame, run);
}

Result<uint64_t> PreparedStep::Impl::Start(std::span<const Tensor> feed_values,
                                           std::span<Tensor> fetch_values,
                                           std::optional<uint32_t> replica) {
  Lanes::Turn turn(session.lanes);
  const RunKey key = TakeKey(/*order=*/std::nullopt);
  const Result<Frame*> frame = FrameOf(turn.lane());
  if (!frame.ok()) return session.Refuse(key, frame.status());
  std::optional<RunOrder> order;
  if (replica) {
    if (has_targets) {
      return session.Refuse(
          key, InvalidArgument("a replica can be given to steps without "
                               "targets alone"));
    }
    MutexLock lock(session.mutex);
    order = RunOrder{.step = session.step, .replica = *replica};
  }
  if (goes_on) {
    return StartAlone(turn, **frame, key, feed_values, fetch_values, order);
  }
  return StartIn(turn.lane(), **frame, key, feed_values, fetch_values, order);
}

// On the host a run that was started and does not go on is over, in whichever
// lane it was.
Status PreparedStep::Impl::Wait(uint64_t number) {
  if (goes_on) {
    return WaitAlone(*frames[number % frames.size()], number / frames.size());
  }
  if (!queued) return {};
  const Lanes::Turn turn(session.lanes);
  return WaitIn(*frames[0], number);
}

bool PreparedStep::Impl::UnderWay(uint64_t number) {
  if (goes_on) {
    Frame& frame = *frames[number % frames.size()];
    MutexLock lock(frame.mutex);
    return frame.under_way && frame.started == number / frames.size();
  }
  if (!queued) return false;
  const Lanes::Turn turn(session.lanes);
  const Begun& run = frames[0]->runs[number % frames[0]->runs.size()];
  return run.number == number && run.under_way;
}

void PreparedStep::Run(std::span<const Tensor> feeds,
                       std::span<Tensor> fetches) {
  ThrowIfError(TryRun(feeds, fetches));
}

Status PreparedStep::TryRun(std::span<const Tensor> feeds,
                            std::span<Tensor> fetches) {
  return impl_->Run(feeds, fetches);
}

PendingRun PreparedStep::Start(std::span<const Tensor> feeds,
                               std::span<Tensor> fetches) {
  return {impl_, impl_->Start(feeds, fetches).ValueOrThrow()};
}

PendingRun PreparedStep::Start(std::span<const Tensor> feeds,
                               std::span<Tensor> fetches, uint32_t replica) {
  return {impl_, impl_->Start(feeds, fetches, replica).ValueOrThrow()};
}

bool PendingRun::under_way() const {
  return valid() && step_->UnderWay(run_);
}

void PendingRun::Wait() {
  if (valid()) ThrowIfError(step_->Wait(run_));
}

const std::vector<TensorType>& PreparedStep::fetch_types() const {
  return impl_->fetch_types;
}

std::vector<Tensor> PreparedStep::MakeFetches() const {
  std::vector<Tensor> fetches;
  for (size_t i = 0; i < impl_->fetch_types.size(); ++i) {
    const TensorType& type = impl_->fetch_types[i];
    fetches.push_back(impl_->fetches_here[i] ? Tensor(type.dtype, type.shape)
                                             : Tensor());
  }
  return fetches;
}

std::map<std::string, std::map<std::string, int>> StepInfo::ProviderCounts()
    const {
  std::map<std::string, std::map<std::string, int>> counts;
  for (const Provider& p : providers) ++counts[p.op][p.provider];
  return counts;
}

std::vector<std::string> StepInfo::Refusals() const {
  std::vector<std::string> lines;
  for (const Provider& p : providers) {
    if (p.refused.empty()) continue;
    lines.push_back(fmt::format("{} '{}' is by '{}': {}", p.op, p.node,
                                p.provider, p.refused));
  }
  return lines;
}

StepInfo PreparedStep::info() const {
  StepInfo info;
  info.launches = impl_->launches;
  for (const passes::PassReport& pass : impl_->passes) {
    info.passes.push_back({pass.name, pass.seconds, pass.nodes});
  }
  const PreparedStep::Impl::Frame& frame = *impl_->frames[0];
  for (const auto& here : frame.on_devices) {
    const Plan& plan = here->plan;
    info.nodes += static_cast<int64_t>(plan.instructions.size());
    info.arena_bytes = std::max(info.arena_bytes, plan.arena_bytes);
    info.arena_lower_bound =
        std::max(info.arena_lower_bound, plan.arena_lower_bound);
    for (const InstructionLabel& label : plan.labels) {
      info.providers.push_back(
          {label.node, label.op, label.provider, label.refused});
    }
    for (const Tensor& constant : plan.constants) {
      info.constant_bytes += constant.bytes();
    }
  }
  for (const auto& part : frame.parts) {
    if (!info.why_not_captured.empty()) break;
    info.why_not_captured = part->group != nullptr
                                ? part->group->why_not_captured()
                                : part->executors[0]->why_not_captured();
  }
  return info;
}

}  // namespace sluice
