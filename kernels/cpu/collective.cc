// Ops in which the steps of all workers meet.
#include "engine/runtime/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

using Verb = CollectiveCall::Verb;

void Copy(const void* from, size_t bytes, void* to) {
  if (bytes > 0 && from != to) std::memcpy(to, from, bytes);
}

Reduction HowOf(const Attributes& attrs) {
  return attrs.Bool("mean") ? Reduction::kMean : Reduction::kSum;
}

const std::string& GroupOf(const KernelSpec& spec) {
  return spec.attrs.String("group");
}

// Whom a node meets: null where there is one worker.
Result<Collective*> WorkersOf(const KernelContext& c,
                              const std::string& group) {
  Collective* const all = c.step().collective;
  if (all == nullptr || group.empty()) return all;
  Collective* const part = all->Subgroup(group);
  if (part != nullptr) return part;
  return FailedPrecondition(
      fmt::format("this worker is in no group '{}'", group));
}

// What the kernels of a collective know of their node: which one it is, for the
// other workers, and how many of these its shapes are made for.
class Meeting {
 public:
  Meeting(const KernelSpec& spec, Verb verb)
      : name_(spec.origin), x_(spec.inputs[0]), group_(GroupOf(spec)) {
    const Attributes& attrs = spec.attrs;
    call_.verb = verb;
    call_.dtype = x_.dtype;
    call_.count = x_.shape.elements();
    if (attrs.Has("mean")) call_.how = HowOf(attrs);
    if (attrs.Has("root")) call_.root = static_cast<int>(attrs.Int("root"));
    // Of as many bytes, but another shape, it is another collective. And so it
    // is in a step with more of them: a worker whose step has fewer would end
    // it, with sums of other things, before any worker could tell.
    name_ += fmt::format(" {}", x_.ToString());
    if (attrs.Has("root")) name_ += fmt::format(" of rank {}", call_.root);
    if (attrs.Has("in_step")) {
      name_ += fmt::format(", one of {} in its step", attrs.Int("in_step"));
    }
    if (verb == Verb::kAllReduce) return;
    workers_ = attrs.Int("workers");
    if (verb == Verb::kAllGather) call_.count *= workers_;
    if (verb == Verb::kReduceScatter) {
      call_.row = std::max<int64_t>(x_.shape.elements(1, x_.shape.rank()), 1);
    }
  }

  // Null where there is one worker.
  Result<Collective*> Workers(const KernelContext& c) const {
    SLUICE_ASSIGN_OR_RETURN(Collective* const workers, WorkersOf(c, group_));
    const int64_t size = workers == nullptr ? 1 : workers->size();
    if (workers_ == kAnyNumber || size == workers_) return workers;
    return FailedPrecondition(
        fmt::format("'{}' is made for {} workers, of which the step has {}",
                    name_, workers_, size));
  }

  // What is to be done with `data`, in which x is where it belongs.
  CollectiveCall With(const KernelContext& c, const Collective* workers,
                      char* data) const {
    char* place = data;
    if (workers != nullptr && call_.verb == Verb::kAllGather) {
      place += static_cast<size_t>(workers->rank()) * x_.bytes();
    }
    const bool brings = workers == nullptr || call_.verb != Verb::kBroadcast ||
                        workers->rank() == call_.root;
    if (brings) Copy(c.input<char>(0), x_.bytes(), place);
    CollectiveCall call = call_;
    call.name = name_;
    call.data = data;
    return call;
  }

 private:
  static constexpr int64_t kAnyNumber = -1;

  std::string name_;
  TensorType x_;
  std::string group_;
  int64_t workers_ = kAnyNumber;
  CollectiveCall call_;
};

// A worker's own rows of what was reduced and scattered.
const char* OwnRows(const char* data, size_t bytes, const Collective* workers) {
  return workers == nullptr
             ? data
             : data + static_cast<size_t>(workers->rank()) * bytes;
}

// All of it at once. Other workers' rows of what is scattered are lost on the
// way, and so in a workspace.
template <Verb kVerb>
Result<KernelPtr> Make(const KernelSpec& spec) {
  constexpr bool kScatters = kVerb == Verb::kReduceScatter;
  return KernelOf(
      [meeting = Meeting(spec, kVerb),
       bytes = spec.outputs[0].bytes()](const KernelContext& c) -> Status {
        SLUICE_ASSIGN_OR_RETURN(Collective* const workers, meeting.Workers(c));
        char* const data =
            kScatters ? static_cast<char*>(c.workspace()) : c.output<char>(0);
        const CollectiveCall call = meeting.With(c, workers, data);
        if (workers != nullptr) SLUICE_RETURN_IF_ERROR(workers->Do(call));
        if (kScatters) {
          Copy(OwnRows(data, bytes, workers), bytes, c.output<char>(0));
        }
        return {};
      },
      kScatters ? spec.inputs[0].bytes() : 0);
}

template <Verb kVerb>
Result<KernelPtr> MakeStart(const KernelSpec& spec) {
  return KernelOf(
      [meeting = Meeting(spec, kVerb)](const KernelContext& c) -> Status {
        SLUICE_ASSIGN_OR_RETURN(Collective* const workers, meeting.Workers(c));
        const CollectiveCall call = meeting.With(c, workers, c.output<char>(0));
        return workers == nullptr ? Status() : workers->Start(call);
      });
}

class Wait final : public Kernel {
 public:
  // `scatters`: the result is this worker's rows of what it waits for, else
  // that.
  Wait(const KernelSpec& spec, bool scatters)
      : group_(GroupOf(spec)),
        scattered_bytes_(scatters ? spec.outputs[0].bytes() : 0) {}

  Status Run(const KernelContext& c) override {
    SLUICE_ASSIGN_OR_RETURN(Collective* const workers, WorkersOf(c, group_));
    const char* const data = c.input<char>(0);
    if (workers != nullptr) SLUICE_RETURN_IF_ERROR(workers->Wait(data));
    Copy(OwnRows(data, scattered_bytes_, workers), scattered_bytes_,
         c.output<char>(0));
    return {};
  }
  bool Ready(const KernelContext& c, Waker& waker) override {
    const Result<Collective*> workers = WorkersOf(c, group_);
    return !workers.ok() || *workers == nullptr ||
           (*workers)->IsOver(c.input<char>(0), waker);
  }

 private:
  const std::string group_;
  const size_t scattered_bytes_;
};

template <bool kScatters>
Result<KernelPtr> MakeWait(const KernelSpec& spec) {
  return KernelPtr(std::make_unique<Wait>(spec, kScatters));
}

Result<KernelPtr> MakeNumWorkers(const KernelSpec& spec) {
  const int64_t workers = spec.attrs.Int("workers");
  if (workers == 0) return FailedPrecondition("nobody has counted the workers");
  return KernelOf(
      [workers](const KernelContext& c) { *c.output<int64_t>(0) = workers; });
}

Result<KernelPtr> MakeWorkerRank(const KernelSpec& spec) {
  const int64_t rank = spec.attrs.Int("rank");
  if (rank < 0) return FailedPrecondition("nobody has said which worker it is");
  return KernelOf(
      [rank](const KernelContext& c) { *c.output<int64_t>(0) = rank; });
}

constexpr DTypeSet kSummed = kFloating | kIndex;

// Whole, and begun.
template <Verb kVerb>
void AddVerb(const std::string& op, DTypeSet dtypes, KernelTable& table) {
  table.Register({.op = op, .dtypes = dtypes, .make = Make<kVerb>});
  table.Register(
      {.op = op + "Start", .dtypes = dtypes, .make = MakeStart<kVerb>});
}

}  // namespace

void RegisterCollectiveKernels(KernelTable& table) {
  AddVerb<Verb::kAllReduce>("AllReduce", kSummed, table);
  AddVerb<Verb::kAllGather>("AllGather", kAnyType, table);
  AddVerb<Verb::kReduceScatter>("ReduceScatter", kSummed, table);
  AddVerb<Verb::kAllToAll>("AllToAll", kAnyType, table);
  AddVerb<Verb::kBroadcast>("Broadcast", kAnyType, table);
  AddVerb<Verb::kReduce>("Reduce", kSummed, table);
  table.Register({.op = "CollectiveWait", .make = MakeWait<false>});
  table.Register(
      {.op = "ReduceScatterWait", .dtypes = kSummed, .make = MakeWait<true>});
  table.Register({.op = "NumWorkers", .make = MakeNumWorkers});
  table.Register({.op = "WorkerRank", .make = MakeWorkerRank});
}

}  // namespace sluice::cpu
