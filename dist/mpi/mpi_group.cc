#include "dist/mpi/mpi_group.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "dist/collective/arguments.h"
#include "dist/collective/reduce.h"
#include "dist/membership/rank_name.h"
#include "dist/mpi/gathered_trees.h"
#include "dist/other_launchers.h"
#include "dist/own_cores.h"
#include "engine/caught.h"
#include "engine/module.h"
#include "engine/threads.h"

namespace sluice::dist {
namespace {

constexpr char kFile[] = "libsluice_mpi.so";

// Of what a function returns or throws.
template <typename Function>
Status Caught(const Function& fn) {
  try {
    return fn();
  } catch (...) {
    return CaughtStatus();
  }
}

MpiElement ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return MpiElement::kFloat64;
    case DType::kInt32:
      return MpiElement::kInt32;
    case DType::kInt64:
      return MpiElement::kInt64;
    case DType::kFloat16:
      return MpiElement::kFloat16;
    case DType::kBFloat16:
      return MpiElement::kBFloat16;
    default:
      return MpiElement::kFloat32;
  }
}

void AddHalves(MpiElement element, void* sum, const void* addend,
               int64_t count) {
  AddTo(element == MpiElement::kFloat16 ? DType::kFloat16 : DType::kBFloat16,
        sum, addend, count);
}

Result<const MpiCalls*> LoadCalls() {
  SLUICE_ASSIGN_OR_RETURN(
      void* const module,
      OpenModule(kFile,
                 "it is neither beside the program nor installed; it is built "
                 "where CMake finds an MPI"));
  const auto entry = reinterpret_cast<MpiEntry>(dlsym(module, kMpiEntry));
  const MpiCalls* const calls = entry == nullptr ? nullptr : entry();
  if (calls == nullptr || calls->version != kMpiVersion) {
    return Unavailable(
        fmt::format("cannot use {}: it is of another version", kFile));
  }
  return calls;
}

}  // namespace

Status MpiGroup::Said(const char* wrong) {
  if (wrong == nullptr) return {};
  return Unavailable(fmt::format("MPI: {}", wrong));
}

MpiGroup::MpiGroup(const MpiCalls& calls, const MpiPlace& place, Owner owner,
                   Options options)
    : calls_(calls),
      place_(place),
      owner_(std::move(owner)),
      options_(std::move(options)),
      waits_(options_.stalled == nullptr || place.rank > 1 || place.size == 1
                 ? nullptr
                 : std::make_unique<LongWaits>(
                       (owner_.part.empty() ? "" : owner_.part + ": ") +
                           RankName(place.rank, place.size),
                       options_.stall_note, options_.stalled)),
      accounts_(static_cast<size_t>(place.size)),
      queue_([this](const CollectiveCall& call) { return Do(call); }) {}

Result<std::unique_ptr<MpiGroup>> MpiGroup::Join(const MpiCalls& calls,
                                                 const Options& options) {
  MpiPlace place;
  SLUICE_RETURN_IF_ERROR(Said(calls.begin(&AddHalves, &place)));
  std::unique_ptr<MpiGroup> group(
      new MpiGroup(calls, place,
                   {place.rank, place.size,
                    OwnCores(/*pinned=*/false, place.local_size), ""},
                   options));
  // Of all ranks, so that none waits for one that was refused.
  uint64_t fewest_beside = static_cast<uint64_t>(place.size) -
                           static_cast<uint64_t>(place.local_size);
  if (options.allow_plaintext) fewest_beside = 0;
  SLUICE_RETURN_IF_ERROR(
      Said(calls.largest(place.communicator, &fewest_beside, 1)));
  if (fewest_beside > 0) {
    return FailedPrecondition(
        "MPI sends what goes to other hosts in the clear; --allow-plaintext, "
        "or SLUICE_ALLOW_PLAINTEXT=1, says that it may");
  }
  // Another may have other steps of the same graph.
  {
    MutexLock lock(group->mutex_);
    SLUICE_RETURN_IF_ERROR(
        group->Agree("the start of Sluice " SLUICE_VERSION, std::nullopt));
  }
  return group;
}

Result<std::unique_ptr<MpiGroup>> MpiGroup::Join(const Options& options) {
  for (const char* name : {"SLUICE_RANK", "SLUICE_SERVER"}) {
    if (std::getenv(name) == nullptr) continue;
    return InvalidArgument(
        "MPI is for processes that mpirun or srun starts; sluicerun's are "
        "connected otherwise");
  }
  SLUICE_ASSIGN_OR_RETURN(const bool plaintext, PlaintextAllowed());
  SLUICE_ASSIGN_OR_RETURN(const MpiCalls* const calls, LoadCalls());
  Options own = options;
  own.allow_plaintext = own.allow_plaintext || plaintext;
  return Join(*calls, own);
}

MpiGroup::~MpiGroup() {
  if (!owner_.part.empty()) return;  // the job's has ended it
  // Else MPI would wait here for those who wait there.
  End({});
  (void)calls_.end();
}

// A rank that cannot go on says so in place of what it was to do.
template <typename Signature, typename Prepare, typename Body>
Status MpiGroup::Collective(Signature signature, Prepare prepare, Body body,
                            const std::optional<Sum>& sum) {
  const CallQueue::Turn turn(queue_);
  MutexLock lock(mutex_);
  if (!broken_.ok()) return broken_;
  std::string what;
  const Status ready = Caught([&]() -> Status {
    what = signature();
    return prepare();
  });
  const LongWaits::Wait wait(waits_.get(), what);
  if (Begin(ready, what, sum).ok()) broken_ = Known(Caught(body));
  return broken_;
}

Status MpiGroup::Begin(const Status& ready, const std::string& signature,
                       const std::optional<Sum>& sum) {
  ++run_;
  try {
    broken_ = Agree(
        ready.ok() ? signature : std::string(kFailed) + ready.message(), sum);
  } catch (...) {
    broken_ = CaughtStatus();
  }
  if (!ready.ok()) broken_ = ready;
  broken_ = Known(std::move(broken_));
  return broken_;
}

Status MpiGroup::Start(const CollectiveCall& call) {
  if (place_.size == 1) return Do(call);
  Status status = Caught([&] {
    return queue_.Start(call,
                        call.bytes() >= CallQueue::kBesideBytes && Beside());
  });
  if (!status.ok()) Leave(status);
  return status;
}

Status MpiGroup::Wait(const void* data) {
  return place_.size == 1 ? Status() : queue_.Wait(data);
}

bool MpiGroup::IsOver(const void* data, Waker& waker) {
  return place_.size == 1 || queue_.IsOver(data, waker);
}

bool MpiGroup::Beside() const {
  if (options_.overlap != Overlap::kAuto) {
    return options_.overlap == Overlap::kOn;
  }
  return owner_.cores > ComputeThreads().threads();
}

// At once, since some wait for this rank here, and others in a part.
void MpiGroup::End(const Status& failure) {
  std::vector<std::thread> beside;
  for (const auto& part : parts_) {
    MpiGroup* const group = part.second.get();
    try {
      beside.emplace_back([group, &failure] { group->End(failure); });
    } catch (...) {
      group->End(failure);
    }
  }
  {
    // Behind the parts, where others may wait for this rank that have what was
    // started here still before them.
    const CallQueue::Turn turn(queue_);
    MutexLock lock(mutex_);
    if (broken_.ok()) {
      (void)Begin(failure, "its end").ok();
      broken_ = Known(Caught([&] {
        const std::string who = RankName(place_.rank, place_.size);
        return failure.ok()
                   ? FailedPrecondition(who + " has ended")
                   : Status(failure.code(), fmt::format("{} failed: {}", who,
                                                        failure.message()));
      }));
    }
  }
  for (std::thread& thread : beside) thread.join();
}

void MpiGroup::Leave(const Status& failure) {
  End(failure);
}

Status MpiGroup::Reduce(DType dtype, void* data, int64_t count, Reduction how) {
  const bool mean = how == Reduction::kMean;
  const bool halves =
      SizeOf(dtype) == 2;  // whose sum may be beyond their range
  if (mean && halves) DivideBy(dtype, data, count, place_.size);
  if (place_.size > 1) {
    SLUICE_RETURN_IF_ERROR(
        Said(calls_.sum(place_.communicator, ElementOf(dtype), data, count)));
  }
  if (mean && !halves) DivideBy(dtype, data, count, place_.size);
  return {};
}

Status MpiGroup::AllReduce(std::string_view name, DType dtype, void* data,
                           int64_t count, Reduction how) {
  return Collective(
      [&] {
        return fmt::format("{} of '{}', {} {}",
                           how == Reduction::kMean ? "mean" : "sum", name,
                           count, NameOf(dtype));
      },
      [&] { return CheckReduction(dtype, count, how); },
      [&] { return Reduce(dtype, data, count, how); }, Sum{dtype, count, how});
}

Status MpiGroup::ReduceScatter(std::string_view name, DType dtype, void* data,
                               int64_t count, int64_t row, Reduction how) {
  return Collective(
      [&] {
        return fmt::format("rows of {} of a {} of '{}', {} {}", row,
                           how == Reduction::kMean ? "mean" : "sum", name,
                           count, NameOf(dtype));
      },
      [&]() -> Status {
        SLUICE_RETURN_IF_ERROR(CheckReduction(dtype, count, how));
        return CheckRows(count, row);
      },
      [&] { return Reduce(dtype, data, count, how); });
}

Status MpiGroup::SumTree(std::string_view name, DType dtype, int64_t leaves,
                         std::span<const void* const> sums, void* result,
                         int64_t count) {
  std::optional<GatheredTrees> trees;
  return Collective(
      [&] {
        return fmt::format("tree of {} leaves of '{}', {} {}", leaves, name,
                           count, NameOf(dtype));
      },
      [&]() -> Status {
        SLUICE_RETURN_IF_ERROR(CheckTree(dtype, leaves, sums.size(), count,
                                         place_.rank, place_.size));
        trees.emplace(dtype, leaves, place_.rank, place_.size);
        return {};
      },
      [&]() -> Status {
        const size_t whole = static_cast<size_t>(count) * SizeOf(dtype);
        for (size_t begin = 0; begin < whole;
             begin += GatheredTrees::kPieceBytes) {
          const size_t bytes =
              std::min(GatheredTrees::kPieceBytes, whole - begin);
          for (size_t i = 0; i < sums.size(); ++i) {
            std::memcpy(trees->Mine(i),
                        static_cast<const std::byte*>(sums[i]) + begin, bytes);
          }
          SLUICE_RETURN_IF_ERROR(
              Said(calls_.all_gather(place_.communicator, trees->Mine(0),
                                     trees->each(), trees->all())));
          std::memcpy(static_cast<std::byte*>(result) + begin,
                      trees->Added(bytes), bytes);
        }
        return {};
      });
}

Status MpiGroup::Broadcast(std::string_view name, void* data, int64_t bytes,
                           int root) {
  return Collective(
      [&] {
        return fmt::format("broadcast of '{}' by rank {}, {} bytes", name, root,
                           bytes);
      },
      [&] { return CheckRoot(bytes, root, place_.size); },
      [&]() -> Status {
        if (place_.size == 1) return {};
        return Said(calls_.broadcast(place_.communicator, data, bytes, root));
      });
}

Status MpiGroup::AllGather(std::string_view name, const void* mine,
                           int64_t each, void* all) {
  return Collective(
      [&] { return fmt::format("gather of '{}', {} bytes each", name, each); },
      [&] { return CheckEach(each); },
      [&]() -> Status {
        if (each == 0) return {};
        return Said(calls_.all_gather(place_.communicator, mine, each, all));
      });
}

Status MpiGroup::AllToAll(std::string_view name, const void* mine, int64_t each,
                          void* all) {
  std::vector<std::byte> apart;  // as MPI wants them
  return Collective(
      [&] { return fmt::format("trade of '{}', {} bytes each", name, each); },
      [&]() -> Status {
        SLUICE_RETURN_IF_ERROR(CheckEach(each));
        if (mine != all) return {};
        const auto* const sent = static_cast<const std::byte*>(mine);
        apart.assign(sent, sent + each * place_.size);
        return {};
      },
      [&]() -> Status {
        if (each == 0) return {};
        return Said(calls_.all_to_all(
            place_.communicator, mine == all ? apart.data() : mine, each, all));
      });
}

Status MpiGroup::Barrier(std::string_view name) {
  const auto nothing = []() -> Status { return {}; };
  return Collective([&] { return fmt::format("barrier '{}'", name); }, nothing,
                    nothing);
}

Status MpiGroup::Check() {
  if (!mutex_.TryLock()) return {};  // who is in a collective hears
  Status broken = broken_;
  mutex_.Unlock();
  return broken;
}

}  // namespace sluice::dist
