// The parts of a run: on the caller's thread and the session's, or on those
// alone, while the caller goes on.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/allocate.h"
#include "engine/caught.h"
#include "engine/threads.h"
#include "graph/session/session_state.h"

namespace sluice {
namespace {

bool SharesMemory(const Tensor& value, std::span<const Tensor> others) {
  const auto begin = [](const Tensor& t) {
    return reinterpret_cast<uintptr_t>(t.raw());
  };
  return std::any_of(others.begin(), others.end(), [&](const Tensor& other) {
    return begin(value) < begin(other) + other.bytes() &&
           begin(other) < begin(value) + value.bytes();
  });
}

}  // namespace

// A part that blocks in a wait needs a thread of its own. One that gives it
// back does not, so there are no more than work at once.
Status Session::Impl::ReserveThreads(const Lane& lane, int mine) {
  const int parts = static_cast<int>(devices.size());  // the most
  int wanted = (lane.index + 1) * parts - mine;
  if (rendezvous->tells()) {
    wanted = std::min(wanted, std::max(parts, ComputeThreads().threads()));
  }
  try {
    threads.Reserve(wanted);
  } catch (...) {
    return CaughtStatus();
  }
  return {};
}

bool PreparedStep::Impl::Part::Begin() {
  const Impl& step = frame.step;
  StepStop& stop = frame.lane->stop;
  StepContext context = frame.context;
  if (step.edges > 0) {
    const Result<Exchange*> exchange = step.session.rendezvous->Join(
        frame.key, step.edges, static_cast<int>(frame.parts.size()),
        stop.deadline());
    if (!exchange.ok()) {
      stop.Stop(exchange.status());
      return false;
    }
    joined = true;
    context.exchange = *exchange;
  }
  for (Executor* executor : executors) {
    context.seed = executor->plan().seed;
    executor->Begin(frame.buffers, context, stop, frame.observer);
  }
  return true;
}

// The first error is the step's; the others only follow from it.
bool PreparedStep::Impl::Part::GoOn(Waker* waker) {
  try {
    std::optional<BusyClock::Work> work;
    if (waker != nullptr) work.emplace(frame.step.session.busy);
    if (!std::exchange(begun, true) && !Begin()) return true;
    if (group == nullptr) return executors[0]->Resume(waker);
    group->Run();
    return true;
  } catch (...) {  // of a rendezvous
    frame.lane->stop.Stop(CaughtStatus());
    return true;
  }
}

void PreparedStep::Impl::Part::Ended() {
  frame.PartEnded();
}

// The other parts are stopped while the run is certain to be this one.
void PreparedStep::Impl::FarEnd::Ended(const Status& status) {
  if (!status.ok()) frame->lane->stop.Stop(status);
  frame->PartEnded();
}

void PreparedStep::Impl::Frame::PartEnded() {
  {
    MutexLock lock(mutex);
    if (--left > 0) return;
    changed.NotifyAll();
    if (keeper == nullptr) return;
  }
  step.EndAlone(*this);
}

// Those from `begin` on, in the session's threads.
void PreparedStep::Impl::StartParts(Frame& frame, size_t begin) {
  for (const auto& part : frame.parts) part->begun = false;
  begin = std::min(begin, frame.parts.size());
  const size_t started = frame.parts.size() - begin + remotes.size();
  if (started == 0) return;
  {
    MutexLock lock(frame.mutex);
    frame.left = static_cast<int>(started);
  }
  // By its end the run may be another.
  const auto deadline = frame.lane->stop.deadline();
  const RunOrder order = {frame.key, frame.context.step, frame.context.replica,
                          deadline};
  for (size_t i = 0; i < remotes.size(); ++i) {
    remotes[i]->Start(order, frame.far[i]);
  }
  for (size_t i = begin, end = frame.parts.size(); i < end; ++i) {
    session.threads.Start(*frame.parts[i], deadline);
  }
}

// The caller's thread waits anyway.
void PreparedStep::Impl::RunParts(Frame& frame) {
  StartParts(frame, /*begin=*/1);
  if (!frame.parts.empty()) frame.parts[0]->GoOn(/*waker=*/nullptr);
  if (frame.parts.size() <= 1 && remotes.empty()) return;
  MutexLock lock(frame.mutex);
  while (frame.left > 0) frame.changed.Wait(frame.mutex);
}

Status PreparedStep::Impl::TakeFeeds(Frame& frame,
                                     std::span<const Tensor> feed_values,
                                     std::span<const Tensor> fetch_values,
                                     bool copy_all) {
  for (size_t i = 0; i < frame.feeds.size(); ++i) {
    const Tensor& value = feed_values[i];
    frame.feeds[i] = const_cast<void*>(value.raw());
    if (!feeds_here[i] || value.bytes() == 0) continue;
    if (!copy_all && !SharesMemory(value, fetch_values)) continue;
    Tensor& kept = frame.kept[i];
    if (kept.bytes() == 0) {
      SLUICE_ASSIGN_OR_RETURN(
          kept, AllocateTensor(feed_types[i].dtype, feed_types[i].shape));
    }
    std::memcpy(kept.raw(), value.raw(), value.bytes());
    frame.feeds[i] = kept.raw();
  }
  return {};
}

Result<uint64_t> PreparedStep::Impl::StartAlone(
    Lanes::Turn& turn, Frame& frame, const RunKey& key,
    std::span<const Tensor> feed_values, std::span<Tensor> fetch_values,
    const std::optional<RunOrder>& order) {
  Status begun;
  {
    MutexLock lock(frame.mutex);
    if (!frame.status.ok() && !std::exchange(frame.told_caller, true)) {
      begun = frame.status;
    }
  }
  if (begun.ok()) {
    begun = BeginRun(turn.lane(), frame, key, feed_values, fetch_values, order,
                     /*parts_here=*/0);
  }
  if (!begun.ok()) return session.Refuse(key, std::move(begun));
  uint64_t number = 0;
  {
    MutexLock lock(frame.mutex);
    number = ++frame.started;
    frame.under_way = true;
    frame.told_caller = false;
    frame.status = {};
  }
  const auto lane = static_cast<uint64_t>(turn.lane().index);
  frame.keeper = shared_from_this();
  turn.Release();
  StartParts(frame, /*begin=*/0);
  return number * frames.size() + lane;
}

// The last part has ended, on whichever thread.
void PreparedStep::Impl::EndAlone(Frame& frame) {
  Lanes& lanes = session.lanes;
  const Lane& lane = *frame.lane;
  Status status;
  try {
    status = EndRun(frame).status();
  } catch (...) {  // of a rendezvous
    status = CaughtStatus();
  }
  std::shared_ptr<Impl> keeper = std::move(frame.keeper);
  RunEnd* const told = std::exchange(frame.told, nullptr);
  const Status ordered = told == nullptr ? Status() : status;
  {
    MutexLock lock(frame.mutex);
    frame.status = std::move(status);
    frame.under_way = false;
    frame.changed.NotifyAll();
  }
  // The session keeps this at least until it has all lanes.
  keeper.reset();
  lanes.Give(lane);
  if (told != nullptr) told->Ended(ordered);
}

Status PreparedStep::Impl::WaitAlone(Frame& frame, uint64_t number) {
  MutexLock lock(frame.mutex);
  while (frame.under_way && frame.started == number) {
    frame.changed.Wait(frame.mutex);
  }
  if (frame.started != number) return {};  // a later one has thrown its error
  frame.told_caller = true;
  return frame.status;
}

Status PreparedStep::Impl::StartOrdered(const RunOrder& order, RunEnd& end) {
  Lane* const lane = session.lanes.TryTake();
  if (lane == nullptr) {
    return ResourceExhausted(
        fmt::format("more runs at a time than the {} that were agreed on",
                    session.lanes.count()));
  }
  const auto begin = [&]() -> Status {
    SLUICE_ASSIGN_OR_RETURN(Frame * frame, FrameOf(*lane));
    SLUICE_RETURN_IF_ERROR(
        BeginRun(*lane, *frame, order.key, {}, {}, order, /*parts_here=*/0));
    frame->told = &end;
    frame->keeper = shared_from_this();
    StartParts(*frame, /*begin=*/0);
    return {};
  };
  Status begun = begin();
  if (!begun.ok()) session.lanes.Give(*lane);
  return begun;
}

}  // namespace sluice
