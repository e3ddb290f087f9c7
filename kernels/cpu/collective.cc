// Ops in which the steps of all workers meet.
#include "engine/runtime/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

void Copy(const void* from, size_t bytes, void* to) {
  if (bytes > 0 && from != to) std::memcpy(to, from, bytes);
}

Reduction HowOf(const KernelSpec& spec) {
  return spec.attrs.Bool("mean") ? Reduction::kMean : Reduction::kSum;
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

// Of what is reduced in place, at once or until the wait for it has returned.
using ReduceFn = Status (Collective::*)(std::string_view name, DType dtype,
                                        void* data, int64_t count,
                                        Reduction how);

template <ReduceFn kReduce>
Result<KernelPtr> MakeAllReduce(const KernelSpec& spec) {
  const TensorType type = spec.inputs[0];
  return KernelOf(
      [type, how = HowOf(spec), name = spec.origin,
       group = spec.attrs.String("group")](const KernelContext& c) -> Status {
        void* const result = c.output<char>(0);
        Copy(c.input<char>(0), type.bytes(), result);
        SLUICE_ASSIGN_OR_RETURN(Collective* const workers, WorkersOf(c, group));
        if (workers == nullptr) return {};
        return (workers->*kReduce)(name, type.dtype, result,
                                   type.shape.elements(), how);
      });
}

class AllReduceWait final : public Kernel {
 public:
  explicit AllReduceWait(std::string group) : group_(std::move(group)) {}

  Status Run(const KernelContext& c) override {
    SLUICE_ASSIGN_OR_RETURN(Collective* const workers, WorkersOf(c, group_));
    if (workers == nullptr) return {};
    return workers->WaitAllReduce(c.input<char>(0));
  }
  bool Ready(const KernelContext& c, Waker& waker) override {
    const Result<Collective*> workers = WorkersOf(c, group_);
    return !workers.ok() || *workers == nullptr ||
           (*workers)->AllReduced(c.input<char>(0), waker);
  }

 private:
  const std::string group_;
};

Result<KernelPtr> MakeAllReduceWait(const KernelSpec& spec) {
  return KernelPtr(std::make_unique<AllReduceWait>(spec.attrs.String("group")));
}

// What every verb below knows of its node: which collective it is, for the
// other workers, and how many of them its shapes are made for.
class Meeting {
 public:
  explicit Meeting(const KernelSpec& spec)
      : name_(fmt::format("{} {}{}", spec.origin, NameOf(spec.inputs[0].dtype),
                          spec.inputs[0].shape.ToString())),
        type_(spec.inputs[0]),
        group_(spec.attrs.String("group")),
        workers_(spec.attrs.Int("workers")) {
    if (spec.attrs.Has("root")) {
      name_ += fmt::format(" of rank {}", spec.attrs.Int("root"));
    }
  }

  const std::string& name() const { return name_; }
  const TensorType& x() const { return type_; }
  // Of x; the part of it that each worker has.
  size_t bytes() const { return type_.bytes(); }
  int64_t each() const { return static_cast<int64_t>(bytes()) / workers_; }

  // Null where there is one worker.
  Result<Collective*> Workers(const KernelContext& c) const {
    SLUICE_ASSIGN_OR_RETURN(Collective* const workers, WorkersOf(c, group_));
    const int64_t size = workers == nullptr ? 1 : workers->size();
    if (size == workers_) return workers;
    return FailedPrecondition(
        fmt::format("'{}' is made for {} workers, of which the step has {}",
                    name_, workers_, size));
  }

 private:
  std::string name_;
  TensorType type_;
  std::string group_;
  int64_t workers_;
};

// A kernel of `verb`, which is called with the workers and a Meeting where
// there are workers; where there are none x is the result.
template <typename Verb>
Result<KernelPtr> MakeVerb(const KernelSpec& spec, size_t workspace,
                           Verb verb) {
  return KernelOf(
      [meeting = Meeting(spec), verb](const KernelContext& c) -> Status {
        SLUICE_ASSIGN_OR_RETURN(Collective* const workers, meeting.Workers(c));
        if (workers != nullptr) return verb(*workers, meeting, c);
        Copy(c.input<char>(0), meeting.bytes(), c.output<char>(0));
        return {};
      },
      workspace);
}

Result<KernelPtr> MakeAllGather(const KernelSpec& spec) {
  return MakeVerb(
      spec, 0, [](Collective& workers, const Meeting& m, const auto& c) {
        return workers.AllGather(m.name(), c.template input<char>(0),
                                 static_cast<int64_t>(m.bytes()),
                                 c.template output<char>(0));
      });
}

// In the workspace, since the other workers' rows are lost on the way.
Result<KernelPtr> MakeReduceScatter(const KernelSpec& spec) {
  const int64_t row = std::max<int64_t>(
      spec.inputs[0].shape.elements(1, spec.inputs[0].shape.rank()), 1);
  return MakeVerb(
      spec, spec.inputs[0].bytes(),
      [row, how = HowOf(spec)](Collective& workers, const Meeting& m,
                               const KernelContext& c) -> Status {
        auto* const sum = static_cast<char*>(c.workspace());
        Copy(c.input<char>(0), m.bytes(), sum);
        SLUICE_RETURN_IF_ERROR(workers.ReduceScatter(
            m.name(), m.x().dtype, sum, m.x().shape.elements(), row, how));
        Copy(sum + workers.rank() * m.each(), static_cast<size_t>(m.each()),
             c.output<char>(0));
        return {};
      });
}

Result<KernelPtr> MakeAllToAll(const KernelSpec& spec) {
  return MakeVerb(
      spec, 0, [](Collective& workers, const Meeting& m, const auto& c) {
        return workers.AllToAll(m.name(), c.template input<char>(0), m.each(),
                                c.template output<char>(0));
      });
}

Result<KernelPtr> MakeBroadcast(const KernelSpec& spec) {
  const auto root = static_cast<int>(spec.attrs.Int("root"));
  return MakeVerb(
      spec, 0,
      [root](Collective& workers, const Meeting& m, const KernelContext& c) {
        char* const data = c.output<char>(0);
        if (workers.rank() == root) Copy(c.input<char>(0), m.bytes(), data);
        return workers.Broadcast(m.name(), data,
                                 static_cast<int64_t>(m.bytes()), root);
      });
}

// An all-reduce of which the others forget the result: along a ring, to have
// the sum in one place takes as many rounds as to have it everywhere.
Result<KernelPtr> MakeReduce(const KernelSpec& spec) {
  const auto root = static_cast<int>(spec.attrs.Int("root"));
  return MakeVerb(spec, 0,
                  [root](Collective& workers, const Meeting& m,
                         const KernelContext& c) -> Status {
                    char* const data = c.output<char>(0);
                    Copy(c.input<char>(0), m.bytes(), data);
                    SLUICE_RETURN_IF_ERROR(workers.AllReduce(
                        m.name(), m.x().dtype, data, m.x().shape.elements(),
                        Reduction::kSum));
                    if (workers.rank() != root && m.bytes() > 0) {
                      std::memset(data, 0, m.bytes());
                    }
                    return {};
                  });
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

}  // namespace

void RegisterCollectiveKernels(KernelTable& table) {
  table.Register({.op = "AllReduce",
                  .dtypes = kFloating,
                  .make = MakeAllReduce<&Collective::AllReduce>});
  table.Register({.op = "AllReduceStart",
                  .dtypes = kFloating,
                  .make = MakeAllReduce<&Collective::StartAllReduce>});
  table.Register(
      {.op = "AllReduceWait", .dtypes = kFloating, .make = MakeAllReduceWait});
  table.Register(
      {.op = "AllGather", .dtypes = kAnyType, .make = MakeAllGather});
  table.Register(
      {.op = "ReduceScatter", .dtypes = kSummed, .make = MakeReduceScatter});
  table.Register({.op = "AllToAll", .dtypes = kAnyType, .make = MakeAllToAll});
  table.Register(
      {.op = "Broadcast", .dtypes = kAnyType, .make = MakeBroadcast});
  table.Register({.op = "Reduce", .dtypes = kSummed, .make = MakeReduce});
  table.Register({.op = "NumWorkers", .make = MakeNumWorkers});
  table.Register({.op = "WorkerRank", .make = MakeWorkerRank});
}

}  // namespace sluice::cpu
