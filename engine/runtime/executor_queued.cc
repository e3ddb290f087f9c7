// Running a Plan on an accelerator: kernels are added to its compute queue in
// schedule order, the first time; then the queue is recorded and replayed.
#include <fmt/format.h>

#include "engine/caught.h"
#include "engine/runtime/collective.h"
#include "engine/runtime/executor.h"
#include "engine/tensor.h"

namespace sluice {
namespace {

// A thread that has nothing else to do than the part that waits.
class Sleeper final : public Waker {
 public:
  void Wake() override {
    MutexLock lock(mutex_);
    woken_ = true;
    changed_.NotifyAll();
  }
  void Sleep(std::chrono::steady_clock::time_point deadline) {
    MutexLock lock(mutex_);
    while (!woken_) {
      if (deadline == std::chrono::steady_clock::time_point::max()) {
        changed_.Wait(mutex_);
      } else if (!changed_.WaitUntil(mutex_, deadline)) {
        break;
      }
    }
    woken_ = false;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool woken_ GUARDED_BY(mutex_) = false;
};

}  // namespace

// What work of the plan's kernels finds wrong is an error of a later wait:
// whoever's that is, where there is one run at a time.
void Executor::WatchReports() {
  for (size_t i = 0; i < plan_.instructions.size(); ++i) {
    const Kernel& kernel = *plan_.kernels[plan_.instructions[i].kernel];
    auto report = kernel.report();
    if (report == nullptr) continue;
    if (shares_) {
      reports_.push_back({static_cast<uint32_t>(i), std::move(report)});
      continue;
    }
    device_.accelerator()->Watch(
        [label = plan_.labels[i]](const Status& found) {
          return label.Blame(found);
        },
        std::move(report));
  }
}

Status Executor::TakeReports() {
  Status first;
  for (const auto& [instruction, report] : reports_) {
    const Status found = report->Take();
    if (!first.ok() || found.ok()) continue;
    first = plan_.labels[instruction].Blame(found);
  }
  return first;
}

Status Executor::BindOnAccelerator() {
  Accelerator& accelerator = *device_.accelerator();
  SLUICE_RETURN_IF_ERROR(accelerator.Use());
  if (staging_ == nullptr) {
    Result<std::unique_ptr<Staging>> staging =
        Staging::Make(plan_, accelerator);
    if (!staging.ok()) {
      return staging.status().WithContext("feeds and fetches of one step");
    }
    staging_ = *std::move(staging);
    WatchReports();
  }
  // What was captured has the old addresses.
  MakeSegments();
  ran_before_ = false;
  return {};
}

// The longest there are.
void Executor::MakeSegments() {
  segments_.clear();
  recorded_[0] = recorded_[1] = 0;
  missed_ = 0;
  std::string first;
  for (uint32_t i = 0; i < plan_.instructions.size(); ++i) {
    const std::string_view why =
        plan_.kernels[plan_.instructions[i].kernel]->why_not_captured();
    if (!why.empty()) {
      if (!first.empty()) continue;
      first = fmt::format("{}: {}", plan_.labels[i].Who(), why);
    } else if (!segments_.empty() && segments_.back().end == i) {
      segments_.back().end = i + 1;
    } else {
      segments_.push_back({i, i + 1});
    }
  }
  MutexLock lock(why_mutex_);
  why_not_captured_ = std::move(first);
}

// Work under way uses what is freed here, and pinned memory without asking.
Executor::~Executor() {
  Drain();
}

void Executor::Drain() {
  if (staging_ == nullptr) return;
  Accelerator& accelerator = *device_.accelerator();
  const Accelerator::Turn turn(accelerator);
  if (accelerator.Use().ok()) accelerator.Drain();
}

Status Executor::BeginQueued(const StepBuffers& buffers) {
  Accelerator& accelerator = *device_.accelerator();
  SLUICE_RETURN_IF_ERROR(accelerator.Use());
  step_.accelerator = &accelerator;
  step_.stream = accelerator.stream(Accelerator::kCompute);
  step_.device_key = staging_->key();
  SLUICE_RETURN_IF_ERROR(staging_->CopyIn(buffers.slot, buffers.feeds, step_));
  if (observer_ == nullptr || observer_->reads_outputs()) return {};
  SLUICE_RETURN_IF_ERROR(MakeMarks());
  return accelerator.Record(marks_[0], Accelerator::kCompute);
}

bool Executor::RunQueued(Waker* waker) {
  Sleeper sleeper;
  while (!AddQueued(waker != nullptr ? waker : &sleeper)) {
    if (waker != nullptr) return false;
    sleeper.Sleep(stop_->deadline());
  }
  return true;
}

bool Executor::AddQueued(Waker* waker) {
  Accelerator& accelerator = *device_.accelerator();
  const Accelerator::Turn turn(accelerator);
  Status status = accelerator.Use();  // the thread may be another
  if (status.ok() && !stop_->stopped()) {
    const Result<bool> added = AddStep(waker);
    if (added.ok() && !*added) return false;
    status = added.status();
  }
  EndQueued(status);
  return true;
}

// All has been added, or as much as an error allowed.
void Executor::EndQueued(const Status& status) {
  if (!status.ok()) stop_->Stop(status);
  if (!stop_->stopped()) return;
  // The others' devices wait for what is not added any more, and their next
  // runs would meet what is left of this one.
  if (met_ && reached_ < bound_.size())
    step_.collective->Leave(stop_->status());
  Settle();
  // What was added goes on; it must not outlive this run's memory unnoticed.
  Accelerator& accelerator = *device_.accelerator();
  Status ended = accelerator.Use();
  if (ended.ok()) ended = accelerator.Synchronize();
  if (ended.ok()) ended = TakeReports();
  if (!ended.ok()) stop_->Stop(ended);
}

// Agrees with other workers on the run, before anything of it is added.
Status Executor::Meet() {
  if (plan_.exchanges.empty() || step_.collective == nullptr || met_) return {};
  DeviceMeeting* const meeting = step_.collective->on_device();
  if (meeting == nullptr) return {};
  uint64_t& recorded = recorded_[observer_ != nullptr ? 1 : 0];
  bool may_record =
      ran_before_ && (observer_ == nullptr || !observer_->reads_outputs());
  for (const Segment& segment : segments_) may_record &= !segment.refused;
  SLUICE_ASSIGN_OR_RETURN(
      way_, meeting->Agree({plan_.exchanges, recorded, may_record, missed_}));
  met_ = true;
  missed_ = way_ == DeviceRun::kAdd && may_record ? missed_ + 1 : 0;
  if (way_ != DeviceRun::kRecord) return {};
  bool all = true;
  for (Segment& segment : segments_) {
    SLUICE_RETURN_IF_ERROR(Capture(segment, observer_));
    all &= !segment.refused;
  }
  Passed(0, Call::kNone);  // recorded, not run
  SLUICE_ASSIGN_OR_RETURN(recorded, meeting->Recorded(all));
  way_ = recorded == 0 ? DeviceRun::kAdd : DeviceRun::kReplay;
  return {};
}

// Adds the rest of a step to the queues; false: as far as may be now.
Result<bool> Executor::AddStep(Waker* waker) {
  SLUICE_RETURN_IF_ERROR(Meet());
  bool all;
  if (observer_ != nullptr && observer_->reads_outputs()) {
    all = RunUpTo(static_cast<uint32_t>(bound_.size()), observer_, waker);
  } else {
    SLUICE_ASSIGN_OR_RETURN(all, Enqueue(observer_, waker));
    if (all && observer_ != nullptr && !stop_->stopped()) {
      SLUICE_RETURN_IF_ERROR(ReportTimes(*observer_));
    }
  }
  if (!all || stop_->stopped()) return all;
  SLUICE_RETURN_IF_ERROR(staging_->CopyOut(slot_));
  return true;
}

Status Executor::Collect(const StepBuffers& buffers) {
  if (staging_ == nullptr) return {};
  Accelerator& accelerator = *device_.accelerator();
  const Accelerator::Event& ended = staging_->ended(buffers.slot);
  SLUICE_RETURN_IF_ERROR(accelerator.Use());
  // Others may go on meanwhile.
  SLUICE_RETURN_IF_ERROR(shares_ ? ended->Wait()
                                 : accelerator.WaitOnHost(ended));
  SLUICE_RETURN_IF_ERROR(TakeReports());
  staging_->Collect(buffers.slot, buffers.fetches);
  return {};
}

// Adds the step's work to the compute queue, with marks for `timed`.
Result<bool> Executor::Enqueue(Observer* timed, Waker* waker) {
  for (; next_segment_ < segments_.size(); ++next_segment_) {
    Segment& segment = segments_[next_segment_];
    if (!RunUpTo(segment.begin, timed, waker)) return false;
    if (stop_->stopped()) return true;
    SLUICE_RETURN_IF_ERROR(EnqueueSegment(segment, *stop_, timed));
    if (stop_->stopped()) return true;
  }
  if (!RunUpTo(static_cast<uint32_t>(bound_.size()), timed, waker)) {
    return false;
  }
  // A run that ended early has not made every kernel ready for capture.
  if (!stop_->stopped()) ran_before_ = true;
  return true;
}

Status Executor::EnqueueSegment(Segment& segment, StepStop& stop,
                                Observer* timed) {
  std::unique_ptr<CapturedWork>& work =
      timed == nullptr ? segment.work : segment.timed;
  const bool as_agreed = met_ && way_ == DeviceRun::kAdd;
  if (!as_agreed && ran_before_ && work == nullptr && !segment.refused) {
    SLUICE_RETURN_IF_ERROR(Capture(segment, timed));
    Passed(segment.begin, Call::kNone);  // recorded, not run
    if (stop.stopped()) return {};       // cancelled meanwhile
  }
  if (as_agreed || work == nullptr) {
    RunSerial<true>(segment.begin, segment.end, timed, stop);
    return {};
  }
  SLUICE_RETURN_IF_ERROR(work->Launch());
  Passed(segment.end, Call::kNone);
  return {};
}

// On success there is captured work, or why_not_captured_: the device refused,
// or a kernel that did what cannot be captured. An error of another kind recurs
// when the step then runs without.
Status Executor::Capture(Segment& segment, Observer* timed) {
  Accelerator& accelerator = *device_.accelerator();
  SLUICE_RETURN_IF_ERROR(accelerator.BeginCapture(Accelerator::kAlone));
  StepStop failed;  // the capture, not the step
  RunSerial<true>(segment.begin, segment.end, timed, failed);
  Status status = failed.stopped() ? failed.status() : Status();
  Result<std::unique_ptr<CapturedWork>> captured = accelerator.EndCapture();
  if (status.ok()) status = captured.status();
  if (status.ok()) {
    (timed == nullptr ? segment.work : segment.timed) = *std::move(captured);
  } else {
    segment.refused = true;
    MutexLock lock(why_mutex_);
    why_not_captured_ = status.message();
  }
  return {};
}

Status Executor::MakeMarks() {
  while (marks_.size() <= plan_.instructions.size()) {
    SLUICE_ASSIGN_OR_RETURN(Accelerator::Event mark,
                            device_.accelerator()->MakeEvent());
    marks_.push_back(std::move(mark));
  }
  return {};
}

// The observer may be a user's: what it throws is the instruction's error.
Status Executor::Tell(uint32_t i, int64_t begin_ns, int64_t end_ns,
                      void* const* outputs, Observer& observer) {
  try {
    return observer.AfterInstruction({.device = plan_.device,
                                      .position = i,
                                      .label = plan_.labels[i],
                                      .begin_ns = begin_ns,
                                      .end_ns = end_ns,
                                      .outputs = outputs});
  } catch (...) {
    return plan_.labels[i].Blame(CaughtStatus());
  }
}

// Waits for the step.
Status Executor::ReportTimes(Observer& observer) {
  Accelerator& accelerator = *device_.accelerator();
  SLUICE_RETURN_IF_ERROR(accelerator.Synchronize());
  const int64_t end_ns = SteadyNowNs();
  const auto time_of = [&](uint32_t mark) -> Result<int64_t> {
    SLUICE_ASSIGN_OR_RETURN(
        const double seconds,
        accelerator.SecondsBetween(marks_[mark], marks_.back()));
    return end_ns - static_cast<int64_t>(seconds * 1e9);
  };
  if (plan_.instructions.empty()) return {};
  SLUICE_ASSIGN_OR_RETURN(int64_t begin, time_of(0));
  for (uint32_t i = 0; i < plan_.instructions.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t end, time_of(i + 1));
    SLUICE_RETURN_IF_ERROR(Tell(i, begin, end, nullptr, observer));
    begin = end;
  }
  return {};
}

// Tells the observer of an instruction that began at `begin_ns`; if it is one
// of times on the device, later.
Status Executor::Observe(uint32_t i, int64_t begin_ns, Observer& observer) {
  const Instruction& instruction = plan_.instructions[i];
  void* const* outputs =
      pointers_.data() + instruction.first_location + instruction.num_inputs;
  if (staging_ == nullptr) {
    return Tell(i, begin_ns, SteadyNowNs(), outputs, observer);
  }
  Accelerator& accelerator = *device_.accelerator();
  if (!observer.reads_outputs()) {
    return accelerator.Record(marks_[i + 1], Accelerator::kCompute);
  }
  SLUICE_RETURN_IF_ERROR(accelerator.Synchronize());
  const int64_t end_ns = SteadyNowNs();
  std::vector<Tensor> values;
  std::vector<void*> copies;
  const std::vector<TensorType>& types = plan_.labels[i].outputs;
  for (size_t o = 0; o < types.size(); ++o) {
    const Tensor there(types[o].dtype, types[o].shape, nullptr, outputs[o]);
    SLUICE_ASSIGN_OR_RETURN(Tensor value, device_.memory().Download(there));
    values.push_back(std::move(value));
    copies.push_back(values.back().raw());
  }
  return Tell(i, begin_ns, end_ns, copies.data(), observer);
}

}  // namespace sluice
