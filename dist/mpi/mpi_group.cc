#include "dist/mpi/mpi_group.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "dist/collective/arguments.h"
#include "dist/collective/reduce.h"
#include "dist/mpi/gathered_trees.h"
#include "dist/net/frame.h"
#include "engine/caught.h"
#include "engine/module.h"

namespace sluice::dist {
namespace {

constexpr char kFile[] = "libsluice_mpi.so";

// Begins what a rank says that cannot go on.
constexpr char kFailed[] = "failed: ";

// Of what a function returns or throws.
template <typename Function>
Status Caught(const Function& fn) {
  try {
    return fn();
  } catch (...) {
    return CaughtStatus();
  }
}

Status Said(const char* wrong) {
  if (wrong == nullptr) return {};
  return Unavailable(fmt::format("MPI: {}", wrong));
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

MpiGroup::MpiGroup(const MpiCalls& calls, const MpiPlace& place)
    : calls_(calls), place_(place) {}

Result<std::unique_ptr<MpiGroup>> MpiGroup::Join(const MpiCalls& calls,
                                                 const Options& options) {
  MpiPlace place;
  SLUICE_RETURN_IF_ERROR(Said(calls.begin(&AddHalves, &place)));
  std::unique_ptr<MpiGroup> group(new MpiGroup(calls, place));
  // Of all ranks, so that none waits for one that was refused.
  uint64_t fewest_beside = static_cast<uint64_t>(place.size) -
                           static_cast<uint64_t>(place.local_size);
  if (options.allow_plaintext) fewest_beside = 0;
  SLUICE_RETURN_IF_ERROR(Said(calls.largest(&fewest_beside, 1)));
  if (fewest_beside > 0) {
    return FailedPrecondition(
        "MPI sends what goes to other hosts in the clear; --allow-plaintext "
        "says that it may");
  }
  return group;
}

Result<std::unique_ptr<MpiGroup>> MpiGroup::Join(const Options& options) {
  SLUICE_ASSIGN_OR_RETURN(const MpiCalls* const calls, LoadCalls());
  return Join(*calls, options);
}

MpiGroup::~MpiGroup() {
  MutexLock lock(mutex_);
  // Else MPI would wait here for those who wait there.
  if (broken_.ok()) (void)Agree("its end").ok();
  (void)calls_.end();
}

// A rank that cannot go on says so in place of what it was to do.
template <typename Signature, typename Prepare, typename Body>
Status MpiGroup::Collective(Signature signature, Prepare prepare, Body body) {
  MutexLock lock(mutex_);
  if (!broken_.ok()) return broken_;
  const auto begin = std::chrono::steady_clock::now();
  std::string what;
  const Status ready = Caught([&]() -> Status {
    what = signature();
    return prepare();
  });
  broken_ = Agree(ready.ok() ? what : kFailed + ready.message());
  if (!ready.ok()) broken_ = ready;
  if (broken_.ok()) broken_ = Caught(body);
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - begin;
  seconds_ += taken.count();
  return broken_;
}

// That all have called it makes it a barrier, too.
Status MpiGroup::Agree(const std::string& signature) {
  if (place_.size == 1) return {};
  const uint64_t key = Key(signature);
  uint64_t largest[] = {key, ~key};
  SLUICE_RETURN_IF_ERROR(Said(calls_.largest(largest, 2)));
  if (largest[0] == ~largest[1]) return {};
  return Caught([&] { return Difference(signature); });
}

// What they are at, once it is known that they differ.
Status MpiGroup::Difference(const std::string& signature) const {
  constexpr size_t kLongest = 240;
  std::string all(kLongest * static_cast<size_t>(place_.size), '\0');
  std::string mine = signature.substr(0, kLongest);
  mine.resize(kLongest);
  SLUICE_RETURN_IF_ERROR(
      Said(calls_.all_gather(mine.data(), kLongest, all.data())));
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < static_cast<size_t>(place_.size); ++rank) {
    const char* const text = &all[kLongest * rank];
    texts.emplace_back(text, strnlen(text, kLongest));
    if (texts.back().starts_with(kFailed)) {
      return Unavailable(
          fmt::format("rank {} of {} {}", rank, place_.size, texts.back()));
    }
  }
  const auto other =
      std::find_if(texts.begin() + 1, texts.end() - 1,
                   [&](const std::string& text) { return text != texts[0]; });
  return FailedPrecondition(fmt::format(
      "ranks are at different collectives: rank 0 of {} at {}, rank {} at {}",
      place_.size, texts[0], other - texts.begin(), *other));
}

void MpiGroup::Leave(const Status& failure) {
  MutexLock lock(mutex_);
  if (!broken_.ok()) return;
  (void)Agree(kFailed + failure.message()).ok();
  broken_ = failure;
}

Status MpiGroup::Reduce(DType dtype, void* data, int64_t count, Reduction how) {
  const bool mean = how == Reduction::kMean;
  const bool halves =
      SizeOf(dtype) == 2;  // whose sum may be beyond their range
  if (mean && halves) DivideBy(dtype, data, count, place_.size);
  if (place_.size > 1) {
    SLUICE_RETURN_IF_ERROR(Said(calls_.sum(ElementOf(dtype), data, count)));
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
      [&] { return Reduce(dtype, data, count, how); });
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
          SLUICE_RETURN_IF_ERROR(Said(
              calls_.all_gather(trees->Mine(0), trees->each(), trees->all())));
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
        return Said(calls_.broadcast(data, bytes, root));
      });
}

Status MpiGroup::AllGather(std::string_view name, const void* mine,
                           int64_t each, void* all) {
  return Collective(
      [&] { return fmt::format("gather of '{}', {} bytes each", name, each); },
      [&] { return CheckEach(each); },
      [&]() -> Status {
        if (each == 0) return {};
        return Said(calls_.all_gather(mine, each, all));
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
        return Said(
            calls_.all_to_all(mine == all ? apart.data() : mine, each, all));
      });
}

Status MpiGroup::Barrier(std::string_view name) {
  const auto nothing = []() -> Status { return {}; };
  return Collective([&] { return fmt::format("barrier '{}'", name); }, nothing,
                    nothing);
}

Status MpiGroup::Check() {
  MutexLock lock(mutex_);
  return broken_;
}

double MpiGroup::seconds() const {
  MutexLock lock(mutex_);
  return seconds_;
}

}  // namespace sluice::dist
