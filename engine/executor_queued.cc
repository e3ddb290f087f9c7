// Running a Plan on an accelerator: kernels are added to its compute queue in
// schedule order, the first time; then the queue is recorded and replayed.
#include <fmt/format.h>

#include "engine/executor.h"
#include "engine/tensor.h"

namespace sluice {
namespace {

// Why one of the plan's kernels cannot be captured; empty if all can.
std::string WhyNotCaptured(const Plan& plan) {
  for (const Instruction& instruction : plan.instructions) {
    const std::string_view why =
        plan.kernels[instruction.kernel]->why_not_captured();
    if (why.empty()) continue;
    const Plan::Label& label =
        plan.labels[&instruction - &plan.instructions[0]];
    return fmt::format("{} '{}': {}", label.op, label.node, why);
  }
  return "";
}

// What work of the plan's kernels finds wrong is an error of a later wait.
void WatchReports(const Plan& plan, Accelerator& accelerator) {
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const Kernel& kernel = *plan.kernels[plan.instructions[i].kernel];
    if (auto report = kernel.report()) {
      accelerator.Watch(
          fmt::format("{} '{}'", plan.labels[i].op, plan.labels[i].node),
          std::move(report));
    }
  }
}

}  // namespace

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
    why_not_captured_ = WhyNotCaptured(plan_);
    WatchReports(plan_, accelerator);
  }
  // What was captured has the old addresses.
  captured_.reset();
  ran_before_ = false;
  return {};
}

Status Executor::RunQueued(std::span<void* const> feeds,
                           std::span<void* const> fetches, StepStop& stop,
                           Observer* observer) {
  Accelerator& accelerator = *device_.accelerator();
  SLUICE_RETURN_IF_ERROR(accelerator.Use());
  step_.stream = accelerator.stream(Accelerator::kCompute);
  step_.device_key = staging_->key();
  SLUICE_RETURN_IF_ERROR(staging_->CopyIn(feeds, step_));
  if (observer != nullptr || !why_not_captured_.empty() || !ran_before_) {
    RunSerial<true>(observer, stop);
    ran_before_ = true;
  } else {
    if (captured_ == nullptr) SLUICE_RETURN_IF_ERROR(Capture(stop));
    if (captured_ != nullptr) {
      SLUICE_RETURN_IF_ERROR(captured_->Launch());
    } else {
      RunSerial<true>(observer, stop);
    }
  }
  if (stop.stopped()) {
    // Queued work goes on; it must not outlive this run's memory unnoticed.
    return accelerator.Synchronize();
  }
  return staging_->fetches_any() ? staging_->CopyOut(fetches) : Status();
}

// On success captured_ is set, or why_not_captured_ if the device refused.
Status Executor::Capture(StepStop& stop) {
  Accelerator& accelerator = *device_.accelerator();
  SLUICE_RETURN_IF_ERROR(accelerator.BeginCapture());
  RunSerial<false>(nullptr, stop);
  Result<std::unique_ptr<CapturedWork>> captured = accelerator.EndCapture();
  if (stop.stopped()) return stop.status();
  if (captured.ok()) {
    captured_ = *std::move(captured);
  } else {
    why_not_captured_ = captured.status().message();
  }
  return {};
}

// Tells the observer of an instruction that began at `begin_ns`. It reads
// results on the host.
Status Executor::Observe(uint32_t i, int64_t begin_ns, Observer& observer) {
  const Instruction& instruction = plan_.instructions[i];
  void* const* outputs =
      pointers_.data() + instruction.first_location + instruction.num_inputs;
  if (staging_ == nullptr) {
    return observer.AfterInstruction(plan_, i, begin_ns, SteadyNowNs(),
                                     outputs);
  }
  SLUICE_RETURN_IF_ERROR(device_.accelerator()->Synchronize());
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
  return observer.AfterInstruction(plan_, i, begin_ns, end_ns, copies.data());
}

}  // namespace sluice
