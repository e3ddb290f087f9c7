#include "engine/runtime/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/pause.h"
#include "engine/threads.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void StepStop::Begin(Rendezvous* rendezvous, const RunKey& run,
                     Clock::time_point deadline) {
  MutexLock lock(mutex_);
  status_ = {};
  rendezvous_ = rendezvous;
  run_ = run;
  deadline_ = deadline;
  stopped_.store(false, std::memory_order_release);
}

void StepStop::Stop(const Status& status) {
  MutexLock lock(mutex_);
  StopNow(status);
}

void StepStop::Stop(const RunKey& run, const Status& status) {
  MutexLock lock(mutex_);
  if (rendezvous_ != nullptr && run_ == run) StopNow(status);
}

void StepStop::StopNow(const Status& status) {
  if (stopped_.load()) return;
  status_ = status;
  stopped_.store(true);
  if (rendezvous_ != nullptr) rendezvous_->Abort(run_, status);
}

void StepStop::End() {
  MutexLock lock(mutex_);
  rendezvous_ = nullptr;
}

Status StepStop::status() const {
  MutexLock lock(mutex_);
  return status_;
}

Executor::Executor(const Plan& plan, Device& device, Arena& arena)
    : plan_(plan),
      device_(device),
      arena_(arena),
      pointers_(plan.locations.size()),
      bound_(plan.instructions.size()) {
  using Kind = Location::Kind;
  // On an accelerator feeds and fetches stay where they are.
  const bool patched = device.accelerator() == nullptr;
  for (uint32_t i = 0; patched && i < plan.locations.size(); ++i) {
    const Location& location = plan.locations[i];
    if (location.kind == Kind::kFeed) feeds_.push_back({i, location.index});
    if (location.kind == Kind::kFetch) fetches_.push_back({i, location.index});
  }
  const size_t n = plan.instructions.size();
  for (uint32_t i = 0; i < n; ++i) {
    if (plan.instructions[i].dependencies == 0) sources_.push_back(i);
  }
  if (plan.dataflow) {
    pending_ = std::make_unique<std::atomic<uint32_t>[]>(n);
    ready_ = std::make_unique<std::atomic<int32_t>[]>(n);
  }
  for (const Plan::Pending& pending : plan.pending) {
    waits_.push_back(pending.wait);
  }
  std::sort(waits_.begin(), waits_.end());
  if (plan.checked) checked_ = std::make_unique<CheckedRun>(plan);
  // On an accelerator the queue keeps instructions apart.
  shares_ = device.accelerator() != nullptr && device.variables().shared();
  if (device.variables().shared() && !shares_ && !plan.variables.empty()) {
    locks_ = std::make_unique<VariableLocks>(plan);
  }
}

Status Executor::Bind() {
  SLUICE_RETURN_IF_ERROR(arena_.Reserve(plan_.arena_bytes));
  if (generation_ == arena_.generation()) return {};
  if (device_.accelerator() != nullptr) {
    SLUICE_RETURN_IF_ERROR(BindOnAccelerator());
  }
  generation_ = arena_.generation();
  for (size_t i = 0; i < pointers_.size(); ++i) {
    const Location& location = plan_.locations[i];
    switch (location.kind) {
      case Location::Kind::kArena:
        pointers_[i] = arena_.data() + location.offset;
        break;
      case Location::Kind::kConstant:
        pointers_[i] = const_cast<void*>(plan_.constants[location.index].raw());
        break;
      case Location::Kind::kVariable:
        pointers_[i] = plan_.variables[location.index]->value.raw();
        break;
      case Location::Kind::kFeed:
        pointers_[i] = staging_ ? staging_->feed(location.index) : nullptr;
        break;
      case Location::Kind::kFetch:
        pointers_[i] = staging_ ? staging_->fetch(location.index) : nullptr;
        break;
      case Location::Kind::kNone:
        pointers_[i] = nullptr;
        break;
    }
  }
  for (size_t i = 0; i < bound_.size(); ++i) {
    const Instruction& instruction = plan_.instructions[i];
    void** operands = pointers_.data() + instruction.first_location;
    void** outputs = operands + instruction.num_inputs;
    bound_[i] = {plan_.kernels[instruction.kernel].get(),
                 KernelContext(operands, outputs,
                               outputs[instruction.num_outputs], &step_)};
  }
  return {};
}

Status Executor::Run(const StepBuffers& buffers, const StepContext& step,
                     StepStop& stop, Observer* observer) {
  Begin(buffers, step, stop, observer);
  Resume(/*waker=*/nullptr);
  return stop.stopped() ? stop.status() : Status();
}

void Executor::Begin(const StepBuffers& buffers, const StepContext& step,
                     StepStop& stop, Observer* observer) {
  step_ = step;
  stop_ = &stop;
  observer_ = observer;
  slot_ = buffers.slot;
  reached_ = next_wait_ = next_segment_ = 0;
  failed_ = kNoInstruction;
  met_ = false;
  std::optional<Accelerator::Turn> turn;
  if (device_.accelerator() != nullptr) turn.emplace(*device_.accelerator());
  if (const Status status = Prepare(buffers); !status.ok()) stop.Stop(status);
}

Status Executor::CheckVariables() const {
  for (uint32_t i : plan_.reads) {
    const Variable& variable = *plan_.variables[i];
    if (variable.initialized) continue;
    return FailedPrecondition(fmt::format(
        "variable '{}' is not initialised; call Session::Initialize or "
        "restore a checkpoint first",
        variable.name));
  }
  return {};
}

Status Executor::Prepare(const StepBuffers& buffers) {
  SLUICE_RETURN_IF_ERROR(CheckVariables());
  SLUICE_RETURN_IF_ERROR(Bind());
  if (staging_ != nullptr) return BeginQueued(buffers);
  for (const Patch& p : feeds_) {
    pointers_[p.location] = buffers.feeds[p.index];
  }
  for (const Patch& p : fetches_) {
    pointers_[p.location] = buffers.fetches[p.index];
  }
  if (checked_ != nullptr) checked_->Begin(arena_.data(), pointers_.data());
  return {};
}

bool Executor::Resume(Waker* waker) {
  if (!(staging_ != nullptr ? RunQueued(waker) : RunOnHost(waker))) {
    return false;
  }
  if (!stop_->stopped()) MarkInitialized();
  return true;
}

void Executor::MarkInitialized() {
  for (uint32_t i : plan_.initializes) plan_.variables[i]->initialized = true;
}

bool Executor::RunOnHost(Waker* waker) {
  const ScopedFlushDenormals flush;
  if (plan_.dataflow) {
    if (!stop_->stopped()) RunDataflow(observer_, *stop_);
  } else if (!RunUpTo(static_cast<uint32_t>(bound_.size()), observer_, waker)) {
    return false;
  }
  if (stop_->stopped()) Settle();
  return true;
}

// In order to `end`, or, false, to a wait whose time has not come.
bool Executor::RunUpTo(uint32_t end, Observer* observer, Waker* waker) {
  while (waker != nullptr && next_wait_ < waits_.size() &&
         waits_[next_wait_] < end) {
    RunInOrder(waits_[next_wait_], observer);
    if (stop_->stopped()) return true;
    if (!Ready(waits_[next_wait_], *waker)) return false;
    ++next_wait_;
  }
  RunInOrder(end, observer);
  return true;
}

void Executor::RunInOrder(uint32_t end, Observer* observer) {
  if (checked_ != nullptr) {
    RunChecked(end, observer, *stop_);
  } else if (observer != nullptr || stop_->has_deadline() ||
             locks_ != nullptr || staging_ != nullptr) {
    RunSerial<true>(reached_, end, observer, *stop_);
  } else {
    RunSerial<false>(reached_, end, nullptr, *stop_);
  }
}

// The kernel may be a user's: what it throws here it throws when it is run.
bool Executor::Ready(uint32_t wait, Waker& waker) {
  if (stop_->has_deadline() && stop_->past_deadline()) return true;
  const Bound& bound = bound_[wait];
  try {
    return bound.kernel->Ready(bound.context, waker);
  } catch (...) {
    return true;
  }
}

void Executor::Passed(uint32_t i, Call call) {
  reached_ = call == Call::kNone ? i : i + 1;
  failed_ = call == Call::kFailed ? i : kNoInstruction;
}

// What a run that ended early has started may still use its buffers.
void Executor::Settle() {
  for (const Plan::Pending& pending : plan_.pending) {
    if (pending.start >= reached_ || pending.start == failed_ ||
        pending.wait < reached_) {
      continue;
    }
    const Bound& wait = bound_[pending.wait];
    (void)RunKernel(*wait.kernel, wait.context).ok();  // the step has an error
  }
}

template <bool kWatched>
void Executor::RunSerial(uint32_t begin, uint32_t end, Observer* observer,
                         StepStop& stop) {
  for (uint32_t i = begin; i < end; ++i) {
    if (stop.stopped()) return;
    if constexpr (kWatched) {
      Call call = Call::kNone;
      const Status status = RunOne(i, observer, stop, &call);
      Passed(i, call);
      if (!status.ok()) return;
    } else {
      Bound& bound = bound_[i];
      if (Status status = RunKernel(*bound.kernel, bound.context);
          !status.ok()) {
        Passed(i, Call::kFailed);
        stop.Stop(plan_.labels[i].Blame(status));
        return;
      }
      reached_ = i + 1;
    }
  }
}

void Executor::RunChecked(uint32_t end, Observer* observer, StepStop& stop) {
  for (uint32_t i = reached_; i < end && !stop.stopped(); ++i) {
    const VariableLocks::Scope held(locks_.get(), i);
    checked_->Before(i);
    Call call = Call::kNone;
    const Status ran = RunHeld(i, observer, stop, &call);
    Passed(i, call);
    if (!ran.ok()) return;
    const Status status = checked_->After(i);
    if (!status.ok()) stop.Stop(plan_.labels[i].Blame(status));
  }
}

template void Executor::RunSerial<false>(uint32_t begin, uint32_t end,
                                         Observer* observer, StepStop& stop);
template void Executor::RunSerial<true>(uint32_t begin, uint32_t end,
                                        Observer* observer, StepStop& stop);

// One instruction with everything that may surround it.
Status Executor::RunOne(uint32_t i, Observer* observer, StepStop& stop,
                        Call* call) {
  const VariableLocks::Scope held(locks_.get(), i);
  return RunHeld(i, observer, stop, call);
}

Status Executor::RunHeld(uint32_t i, Observer* observer, StepStop& stop,
                         Call* call) {
  Bound& bound = bound_[i];
  Status status;
  if (stop.has_deadline() && stop.past_deadline()) {
    status = DeadlineExceeded("the step's deadline passed");
  }
  const int64_t begin = observer ? SteadyNowNs() : 0;
  if (status.ok()) {
    status = RunKernel(*bound.kernel, bound.context);
    *call = status.ok() ? Call::kDone : Call::kFailed;
  }
  if (!status.ok()) {
    status = plan_.labels[i].Blame(status);
  } else if (observer != nullptr) {
    status = Observe(i, begin, *observer);
  }
  if (!status.ok()) stop.Stop(status);
  return status;
}

void Executor::RunDataflow(Observer* observer, StepStop& stop) {
  const uint32_t n = static_cast<uint32_t>(bound_.size());
  for (uint32_t i = 0; i < n; ++i) {
    pending_[i].store(plan_.instructions[i].dependencies,
                      std::memory_order_relaxed);
    ready_[i].store(-1, std::memory_order_relaxed);
  }
  for (uint32_t i = 0; i < sources_.size(); ++i) {
    ready_[i].store(static_cast<int32_t>(sources_[i]),
                    std::memory_order_relaxed);
  }
  head_.store(0, std::memory_order_relaxed);
  tail_.store(static_cast<uint32_t>(sources_.size()),
              std::memory_order_relaxed);
  remaining_.store(n, std::memory_order_relaxed);
  ParallelFor(ComputeThreads().threads(), 1,
              [&](int64_t, int64_t) { Work(observer, stop); });
}

void Executor::Work(Observer* observer, StepStop& stop) {
  const uint32_t n = static_cast<uint32_t>(bound_.size());
  const bool watched =
      observer != nullptr || stop.has_deadline() || locks_ != nullptr;
  while (true) {
    const uint32_t ticket = head_.fetch_add(1, std::memory_order_relaxed);
    if (ticket >= n) return;
    int32_t next;
    while ((next = ready_[ticket].load(std::memory_order_acquire)) < 0) {
      if (stop.stopped() || remaining_.load(std::memory_order_acquire) == 0) {
        return;
      }
      Pause();
    }
    // The first successor that becomes ready is run next, without the queue.
    uint32_t finished = 0;
    while (next >= 0) {
      const uint32_t i = static_cast<uint32_t>(next);
      next = -1;
      if (stop.stopped()) return;
      if (watched) {
        Call ignored = Call::kNone;
        if (!RunOne(i, observer, stop, &ignored).ok()) return;
      } else if (Status status =
                     RunKernel(*bound_[i].kernel, bound_[i].context);
                 !status.ok()) {
        stop.Stop(plan_.labels[i].Blame(status));
        return;
      }
      ++finished;
      const Instruction& instruction = plan_.instructions[i];
      const uint32_t* successor =
          plan_.successors.data() + instruction.first_successor;
      for (uint32_t s = 0; s < instruction.num_successors; ++s) {
        const uint32_t user = successor[s];
        // Release our results, acquire those of the others.
        if (plan_.instructions[user].dependencies > 1 &&
            pending_[user].fetch_sub(1, std::memory_order_acq_rel) > 1) {
          continue;
        }
        if (next < 0) {
          next = static_cast<int32_t>(user);
        } else {
          const uint32_t place = tail_.fetch_add(1, std::memory_order_relaxed);
          ready_[place].store(static_cast<int32_t>(user),
                              std::memory_order_release);
        }
      }
    }
    if (remaining_.fetch_sub(finished, std::memory_order_acq_rel) == finished) {
      return;
    }
  }
}

}  // namespace sluice
