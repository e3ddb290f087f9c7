// What a caller may ask of a group: the checks of its arguments, the header
// that the others' must be the same as, and which way it goes.
#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "dist/collective/arguments.h"
#include "dist/collective/group.h"
#include "dist/collective/reduce.h"
#include "engine/caught.h"
#include "engine/runtime/subtrees.h"

namespace sluice::dist {
namespace {

// Of bytes without a dtype.
Frame BytesFrame(FrameKind kind, int64_t bytes) {
  Frame frame;
  frame.kind = kind;
  frame.count = frame.bytes = static_cast<uint64_t>(bytes);
  return frame;
}

}  // namespace

// A signature is the name and whatever else must be the same and has no place
// of its own in a frame.
template <typename Body>
Status Group::Collective(Frame frame, std::string_view signature, Body body) {
  SLUICE_RETURN_IF_ERROR(broken_);
  if (frame.bytes > kMaxPayload) {
    return InvalidArgument(
        fmt::format("{} bytes, of at most {}", frame.bytes, kMaxPayload));
  }
  frame.rank = rank_;
  frame.epoch = links_.epoch;
  frame.run = run_++;
  frame.key = Key(signature);
  frame_ = frame;
  if (size_ == 1) return {};
  links_.membership->Enters(frame.run + 1, signature);
  Status status = body();
  links_.membership->Returns();
  return status;
}

// What a body throws is an error of it.
template <typename Body>
Status Group::Attempt(std::string_view operation, std::string_view name,
                      Body body) {
  const CallQueue::Turn turn(queue_);
  Status status;
  try {
    status = body();
  } catch (...) {
    status = CaughtStatus();
  }
  return Break(operation, name, std::move(status));
}

Status Group::Check() {
  SLUICE_RETURN_IF_ERROR(broken_);
  return size_ == 1 ? Status() : Known(links_.membership->decision());
}

Status Group::Start(const CollectiveCall& call) {
  if (size_ == 1) return Do(call);
  Status status;
  try {
    // Beside() may be the first to ask for the threads that compute.
    status =
        queue_.Start(call, call.bytes() >= CallQueue::kBesideBytes && Beside());
  } catch (...) {
    status = CaughtStatus();
  }
  if (status.ok()) return status;
  queue_.Finish();
  return Break("start", call.name, std::move(status));
}

Status Group::Wait(const void* data) {
  return size_ == 1 ? Status() : queue_.Wait(data);
}

bool Group::IsOver(const void* data, Waker& waker) {
  return size_ == 1 || queue_.IsOver(data, waker);
}

// Of the rows in which the data is cut: those of a tensor, or elements.
Status Group::ReduceRows(FrameKind kind, std::string_view name, DType dtype,
                         void* data, int64_t count, int64_t row,
                         Reduction how) {
  const bool mean = how == Reduction::kMean;
  SLUICE_RETURN_IF_ERROR(CheckReduction(dtype, count, how));
  SLUICE_RETURN_IF_ERROR(CheckRows(count, row));
  const bool scattered = kind == FrameKind::kScatter;
  std::string signature = fmt::format("{}/{}", mean ? "mean" : "sum", name);
  if (scattered) signature = fmt::format("rows of {}/{}", row, signature);
  return Collective(FrameOf(kind, dtype, static_cast<uint64_t>(count)),
                    signature, [&] {
                      return Reduce(dtype, static_cast<std::byte*>(data),
                                    count / row, row, mean, scattered);
                    });
}

Status Group::AllReduce(std::string_view name, DType dtype, void* data,
                        int64_t count, Reduction how) {
  const FrameKind kind =
      how == Reduction::kMean ? FrameKind::kMean : FrameKind::kReduce;
  return Attempt("all-reduce", name, [&] {
    return ReduceRows(kind, name, dtype, data, count, 1, how);
  });
}

Status Group::ReduceScatter(std::string_view name, DType dtype, void* data,
                            int64_t count, int64_t row, Reduction how) {
  return Attempt("reduce-scatter", name, [&] {
    return ReduceRows(FrameKind::kScatter, name, dtype, data, count, row, how);
  });
}

Status Group::AllReduce(std::string_view name, Tensor* tensor, Reduction how) {
  return AllReduce(name, tensor->dtype(), tensor->raw(), tensor->elements(),
                   how);
}

Status Group::SumTree(std::string_view name, DType dtype, int64_t leaves,
                      std::span<const void* const> sums, void* result,
                      int64_t count) {
  const auto run = [&]() -> Status {
    SLUICE_RETURN_IF_ERROR(
        CheckTree(dtype, leaves, sums.size(), count, rank_, size_));
    if (size_ == 1 && sums[0] != result && count > 0) {
      std::memcpy(result, sums[0], static_cast<size_t>(count) * SizeOf(dtype));
    }
    const Frame frame =
        FrameOf(FrameKind::kTree, dtype, static_cast<uint64_t>(count));
    return Collective(frame, fmt::format("tree of {}/{}", leaves, name), [&] {
      return AddTree(dtype, leaves, sums, result, count);
    });
  };
  return Attempt("sum", name, run);
}

Status Group::Broadcast(std::string_view name, void* data, int64_t bytes,
                        int root) {
  const auto run = [&]() -> Status {
    SLUICE_RETURN_IF_ERROR(CheckRoot(bytes, root, size_));
    const Frame frame = BytesFrame(FrameKind::kBroadcast, bytes);
    return Collective(frame, fmt::format("{}/{}", root, name), [&] {
      return Spread(static_cast<std::byte*>(data), bytes, root);
    });
  };
  return Attempt("broadcast", name, run);
}

Status Group::AllGather(std::string_view name, const void* mine, int64_t each,
                        void* all) {
  const auto run = [&]() -> Status {
    SLUICE_RETURN_IF_ERROR(CheckEach(each));
    const Frame frame = BytesFrame(FrameKind::kGather, each);
    auto* const to = static_cast<std::byte*>(all);
    std::byte* const place = to + rank_ * each;
    if (each > 0 && place != mine) {
      std::memcpy(place, mine, static_cast<size_t>(each));
    }
    return Collective(frame, name, [&] { return Gather(each, to); });
  };
  return Attempt("all-gather", name, run);
}

Status Group::AllToAll(std::string_view name, const void* mine, int64_t each,
                       void* all) {
  const auto run = [&]() -> Status {
    SLUICE_RETURN_IF_ERROR(CheckEach(each));
    const auto* const from = static_cast<const std::byte*>(mine);
    auto* const to = static_cast<std::byte*>(all);
    const std::less<const std::byte*> before;
    if (each > 0 && before(from, to + size_ * each) &&
        before(to, from + size_ * each) && from != to) {
      return InvalidArgument("what is sent and what comes are in one place");
    }
    if (each > 0 && from != to) {
      std::memcpy(to + rank_ * each, from + rank_ * each,
                  static_cast<size_t>(each));
    }
    const Frame frame = BytesFrame(FrameKind::kAllToAll, each);
    return Collective(frame, name, [&] { return Deal(from, each, to); });
  };
  return Attempt("all-to-all", name, run);
}

Status Group::Barrier(std::string_view name) {
  return Attempt("barrier", name, [&] {
    return Collective(BytesFrame(FrameKind::kBarrier, 0), name,
                      [&] { return GreetAll(); });
  });
}

Result<int> Group::Follow() {
  int last = rank_;
  const auto run = [&]() -> Status {
    SLUICE_RETURN_IF_ERROR(broken_);
    if (size_ == 1) return {};
    SLUICE_ASSIGN_OR_RETURN(last, FollowToEnd());
    return {};
  };
  SLUICE_RETURN_IF_ERROR(Attempt("join", "zeros", run));
  return last;
}

}  // namespace sluice::dist
