// Ops in which the steps of all workers meet, on the workers' own queues
// (engine/runtime/device_meeting.h). Where they meet on the host instead these
// ops are the CPU's (passes::MeetOnCpu).
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "engine/runtime/collective.h"
#include "engine/runtime/device_meeting.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/kernels.h"
#include "kernels/cuda/runtime/memory.h"

namespace sluice::cuda {
namespace {

// What became of an exchange that Run has only added.
class Outcome final : public WorkReport {
 public:
  void Of(DeviceMeeting* meeting) {
    meeting_.store(meeting, std::memory_order_release);
  }
  Status Take() override {
    DeviceMeeting* const meeting = meeting_.load(std::memory_order_acquire);
    return meeting == nullptr ? Status() : meeting->Outcome();
  }

 private:
  std::atomic<DeviceMeeting*> meeting_{nullptr};
};

// Null where there is one worker.
Result<DeviceMeeting*> MeetingOf(const KernelContext& c) {
  if (c.step().collective == nullptr) return nullptr;
  DeviceMeeting* const meeting = c.step().collective->on_device();
  if (meeting != nullptr) return meeting;
  return FailedPrecondition(
      "the workers do not meet on their GPUs, and there is no CPU to meet on");
}

// An exchange as the op says, but for its operands.
struct Form {
  DeviceExchange exchange;
  size_t bytes = 0;     // of x
  size_t part = 0;      // the bytes of a worker's in what has one of each
  int64_t workers = 0;  // that the node is made for; 0: any
};

Form FormOf(DeviceExchange::Verb verb, const KernelSpec& spec) {
  const TensorType& x = spec.inputs[0];
  Form form;
  form.exchange.verb = verb;
  form.exchange.dtype = x.dtype;
  form.bytes = x.bytes();
  if (spec.attrs.Has("workers")) form.workers = spec.attrs.Int("workers");
  if (spec.attrs.Has("root")) {
    form.exchange.root = static_cast<int>(spec.attrs.Int("root"));
  }
  if (spec.attrs.Has("mean") && spec.attrs.Bool("mean")) {
    form.exchange.how = Reduction::kMean;
  }
  const int64_t parts = std::max<int64_t>(form.workers, 1);
  switch (verb) {
    case DeviceExchange::kAllReduce:
    case DeviceExchange::kReduce:
      form.exchange.count = x.shape.elements();
      break;
    case DeviceExchange::kReduceScatter:
      form.exchange.count = x.shape.elements() / parts;
      form.part = x.bytes() / static_cast<size_t>(parts);
      break;
    case DeviceExchange::kAllToAll:
      form.exchange.count = static_cast<int64_t>(x.bytes()) / parts;
      break;
    case DeviceExchange::kAllGather:
    case DeviceExchange::kBroadcast:
      form.exchange.count = static_cast<int64_t>(x.bytes());
      form.part = x.bytes();
      break;
  }
  return form;
}

// Where this worker's part begins in what has one of each.
size_t PartAt(const Form& form, const KernelContext& c) {
  return static_cast<size_t>(c.step().collective->rank()) * form.part;
}

enum class Way : uint8_t {
  kWhole,    // the op itself: begun, and waited for
  kStart,    // of which there is a wait
  kInPlace,  // of which y is as large as x, and the part is where it was
};

class Start final : public Kernel {
 public:
  Start(const Form& form, Way way) : form_(form), way_(way) {}

  Status Run(const KernelContext& c) override {
    if (form_.exchange.count == 0) return {};
    SLUICE_ASSIGN_OR_RETURN(DeviceMeeting* const meeting, MeetingOf(c));
    if (meeting == nullptr) {
      return Copy(c.output<void>(0), c.input<void>(0), c);
    }
    SLUICE_RETURN_IF_ERROR(CheckWorkers(c));
    outcome_->Of(meeting);
    DeviceExchange exchange = form_.exchange;
    exchange.in = c.input<void>(0);
    exchange.out =
        c.output<char>(0) + (way_ == Way::kInPlace ? PartAt(form_, c) : 0);
    if (way_ != Way::kWhole || exchange.in == exchange.out) {
      SLUICE_ASSIGN_OR_RETURN(exchange.in, Kept(c));
    }
    DeviceGroup& group = meeting->group();
    const Status started = group.Start(exchange, c.step().stream);
    if (!started.ok()) {
      // Which may be because of another.
      const Status outcome = meeting->Outcome();
      return outcome.ok() ? started : outcome;
    }
    if (way_ != Way::kWhole) return {};
    return group.Wait(exchange.out, c.step().stream);
  }
  std::shared_ptr<WorkReport> report() const override { return outcome_; }

 private:
  Status CheckWorkers(const KernelContext& c) const {
    const int size = c.step().collective->size();
    if (form_.workers == 0 || form_.workers == size) return {};
    return FailedPrecondition(
        fmt::format("it is made for {} workers, of which the step has {}",
                    form_.workers, size));
  }
  Status Copy(void* to, const void* from, const KernelContext& c) const {
    if (to == from) return {};
    return Check(
        cudaMemcpyAsync(to, from, form_.bytes, cudaMemcpyDefault, StreamOf(c)),
        "copy");
  }
  // x where it stays until the wait, as only y does: in it, as NCCL has it for
  // exchanges in place, of which there is no all-to-all.
  Result<const void*> Kept(const KernelContext& c) {
    char* to = c.output<char>(0);
    if (form_.exchange.verb == DeviceExchange::kAllGather) {
      to += PartAt(form_, c);
    } else if (form_.exchange.verb == DeviceExchange::kAllToAll) {
      if (aside_ == nullptr) {
        SLUICE_ASSIGN_OR_RETURN(aside_, AllocateOnDevice(form_.bytes));
      }
      to = static_cast<char*>(aside_.get());
    }
    SLUICE_RETURN_IF_ERROR(Copy(to, c.input<void>(0), c));
    return static_cast<const void*>(to);
  }

  const Form form_;
  const Way way_;
  const std::shared_ptr<Outcome> outcome_ = std::make_shared<Outcome>();
  std::shared_ptr<void> aside_;
};

Result<KernelPtr> MakeWait(const KernelSpec& spec) {
  return KernelOf(
      [empty = spec.inputs[0].bytes() == 0](const KernelContext& c) -> Status {
        if (empty) return {};
        SLUICE_ASSIGN_OR_RETURN(DeviceMeeting* const meeting, MeetingOf(c));
        if (meeting == nullptr) return {};
        return meeting->group().Wait(c.input<void>(0), c.step().stream);
      });
}

Result<KernelPtr> MakeScatterWait(const KernelSpec& spec) {
  return KernelOf([form = FormOf(DeviceExchange::kReduceScatter, spec)](
                      const KernelContext& c) -> Status {
    if (form.exchange.count == 0) return {};
    SLUICE_ASSIGN_OR_RETURN(DeviceMeeting* const meeting, MeetingOf(c));
    const char* part = c.input<char>(0);
    if (meeting != nullptr) {
      part += PartAt(form, c);
      SLUICE_RETURN_IF_ERROR(meeting->group().Wait(part, c.step().stream));
    }
    return Check(cudaMemcpyAsync(c.output<void>(0), part, form.part,
                                 cudaMemcpyDefault, StreamOf(c)),
                 "copy");
  });
}

}  // namespace

void RegisterCollectiveKernels(KernelTable& table) {
  constexpr DTypeSet kSummed = kFloating | kIndex;
  struct Row {
    const char* op;
    DeviceExchange::Verb verb;
    DTypeSet dtypes;
  };
  constexpr Row kRows[] = {
      {"AllReduce", DeviceExchange::kAllReduce, kSummed},
      {"AllGather", DeviceExchange::kAllGather, kAnyType},
      {"ReduceScatter", DeviceExchange::kReduceScatter, kSummed},
      {"AllToAll", DeviceExchange::kAllToAll, kAnyType},
      {"Broadcast", DeviceExchange::kBroadcast, kAnyType},
      {"Reduce", DeviceExchange::kReduce, kSummed},
  };
  for (const Row& row : kRows) {
    const auto add = [&](const std::string& op, Way way) {
      RegisterOwn(
          table, op, row.dtypes,
          [verb = row.verb, way](const KernelSpec& spec) -> Result<KernelPtr> {
            return KernelPtr(std::make_unique<Start>(FormOf(verb, spec), way));
          });
    };
    add(row.op, Way::kWhole);
    add(std::string(row.op) + "Start",
        row.verb == DeviceExchange::kReduceScatter ? Way::kInPlace
                                                   : Way::kStart);
  }
  RegisterOwn(table, "CollectiveWait", kAnyType, MakeWait);
  RegisterOwn(table, "ReduceScatterWait", kSummed, MakeScatterWait);
}

}  // namespace sluice::cuda
