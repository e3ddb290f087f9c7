#include "dist/collective/group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "dist/collective/forming.h"
#include "dist/collective/reduce.h"
#include "engine/runtime/subtrees.h"
#include "engine/threads.h"

namespace sluice::dist {
namespace {

// What takes less time than to wake a thread is left for the wait, or for the
// next that is larger.
constexpr int64_t kBesideBytes = 64 << 10;

Status CheckInfo(const LaunchInfo& info) {
  if (info.size < 1 || info.rank < 0 || info.rank >= info.size) {
    return InvalidArgument(
        fmt::format("there is no rank {} of {}", info.rank, info.size));
  }
  if (info.local_size < 1 || info.local_size > info.size) {
    return InvalidArgument(fmt::format("{} processes of {} on this host",
                                       info.local_size, info.size));
  }
  return {};
}

// Of bytes without a dtype.
Frame BytesFrame(FrameKind kind, int64_t bytes) {
  Frame frame;
  frame.kind = kind;
  frame.count = frame.bytes = static_cast<uint64_t>(bytes);
  return frame;
}

}  // namespace

class Group::Timer {
 public:
  explicit Timer(Group& group) : group_(group) {}
  ~Timer() {
    const std::chrono::duration<double> taken = Clock::now() - begin_;
    group_.seconds_ += taken.count();
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  Group& group_;
  const Clock::time_point begin_ = Clock::now();
};

Group::Group(const LaunchInfo& info, const GroupOptions& options, Links links)
    : rank_(info.rank),
      size_(info.size),
      local_rank_(info.local_rank),
      local_size_(info.local_size),
      cores_(info.pinned ? AvailableCores()
                         : AvailableCores() / info.local_size),
      peer_timeout_(options.peer_timeout),
      overlap_(options.overlap),
      links_(std::move(links)),
      queue_([this](const ReduceQueue::Item& i) {
        return AllReduceNow(i.name, i.dtype, i.data, i.count, i.how);
      }) {
  if (size_ > 1) pulse_.emplace(links_.next_pulse, links_.previous_pulse);
}

Group::~Group() = default;

std::unique_ptr<Group> Group::Alone() {
  return std::unique_ptr<Group>(new Group(LaunchInfo(), GroupOptions(), {}));
}

Result<std::unique_ptr<Group>> Group::Join(const LaunchInfo& info,
                                           const GroupOptions& options) {
  SLUICE_RETURN_IF_ERROR(CheckInfo(info));
  Links links;
  if (info.size > 1) {
    SLUICE_ASSIGN_OR_RETURN(links, FormRing(info, options));
  } else if (info.listen_fd >= 0) {
    close(info.listen_fd);
  }
  std::unique_ptr<Group> group(new Group(info, options, std::move(links)));
  // Not before the others are in too.
  SLUICE_RETURN_IF_ERROR(group->Barrier("join"));
  group->bytes_sent_ = 0;
  return group;
}

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

// The first error; what the others are told of it says which rank it is from.
Status Group::Break(std::string_view operation, std::string_view name,
                    Status error) {
  if (error.ok() || !broken_.ok()) return error;
  pulse_.reset();
  broken_ = links_.Fail(
      rank_, size_,
      error.WithContext(fmt::format("{} in {} '{}'", RankName(rank_, size_),
                                    operation, name)));
  return broken_;
}

void Group::Leave(const Status& failure) {
  queue_.Finish();
  if (!broken_.ok() || size_ == 1) return;
  broken_ = Status(
      failure.code(),
      fmt::format("{} failed: {}", RankName(rank_, size_), failure.message()));
  pulse_.reset();
  links_.Leave(broken_);
}

Status Group::AllReduce(std::string_view name, DType dtype, void* data,
                        int64_t count, Reduction how) {
  const Timer timer(*this);
  queue_.Finish();
  return AllReduceNow(name, dtype, data, count, how);
}

Status Group::StartAllReduce(std::string_view name, DType dtype, void* data,
                             int64_t count, Reduction how) {
  if (size_ == 1) return AllReduceNow(name, dtype, data, count, how);
  const auto bytes = count * static_cast<int64_t>(SizeOf(dtype));
  return queue_.Start({name, dtype, data, count, how},
                      bytes >= kBesideBytes && Beside());
}

Status Group::WaitAllReduce(const void* data) {
  if (size_ == 1) return {};
  const Timer timer(*this);
  return queue_.Wait(data);
}

// Between processes of one host it is cores that move the bytes, and a thread
// without one of its own only takes turns with those that compute.
bool Group::Beside() const {
  if (overlap_ != Overlap::kAuto) return overlap_ == Overlap::kOn;
  return local_size_ < size_ || cores_ > ComputeThreads().threads();
}

bool Group::AllReduced(const void* data, Waker& waker) {
  return size_ == 1 || queue_.Ready(data, waker);
}

Status Group::AllReduceNow(std::string_view name, DType dtype, void* data,
                           int64_t count, Reduction how) {
  const bool mean = how == Reduction::kMean;
  const auto run = [&]() -> Status {
    if (!kReducible.Contains(dtype) || (mean && !IsFloating(dtype))) {
      return InvalidArgument(
          fmt::format("{} has no {}", NameOf(dtype), mean ? "mean" : "sum"));
    }
    if (count < 0) return InvalidArgument(fmt::format("{} elements", count));
    return Collective(
        FrameOf(FrameKind::kReduce, dtype, static_cast<uint64_t>(count)),
        fmt::format("{}/{}", mean ? "mean" : "sum", name), [&] {
          return Reduce(dtype, static_cast<std::byte*>(data), count, mean);
        });
  };
  return Break("all-reduce", name, run());
}

Status Group::AllReduce(std::string_view name, Tensor* tensor, Reduction how) {
  return AllReduce(name, tensor->dtype(), tensor->raw(), tensor->elements(),
                   how);
}

Status Group::SumTree(std::string_view name, DType dtype, int64_t leaves,
                      std::span<const void* const> sums, void* result,
                      int64_t count) {
  const Timer timer(*this);
  queue_.Finish();
  const auto run = [&]() -> Status {
    if (!kReducible.Contains(dtype)) {
      return InvalidArgument(fmt::format("{} has no sum", NameOf(dtype)));
    }
    if (leaves < size_ || !std::has_single_bit(static_cast<uint64_t>(leaves))) {
      return InvalidArgument(fmt::format(
          "{} leaves: wanted a power of two, at least {}", leaves, size_));
    }
    const size_t wanted = SubtreesOf(LeavesOf(leaves, rank_, size_)).size();
    if (count < 0 || sums.size() != wanted) {
      return InvalidArgument(fmt::format("{} sums of {} elements, wanted {}",
                                         sums.size(), count, wanted));
    }
    if (size_ == 1 && sums[0] != result && count > 0) {
      std::memcpy(result, sums[0], static_cast<size_t>(count) * SizeOf(dtype));
    }
    const Frame frame =
        FrameOf(FrameKind::kReduce, dtype, static_cast<uint64_t>(count));
    return Collective(frame, fmt::format("tree of {}/{}", leaves, name), [&] {
      return AddTree(dtype, leaves, sums, result, count);
    });
  };
  return Break("sum", name, run());
}

Status Group::Broadcast(std::string_view name, void* data, int64_t bytes,
                        int root) {
  const Timer timer(*this);
  queue_.Finish();
  const auto run = [&]() -> Status {
    if (bytes < 0 || root < 0 || root >= size_) {
      return InvalidArgument(
          fmt::format("{} bytes from rank {} of {}", bytes, root, size_));
    }
    const Frame frame = BytesFrame(FrameKind::kBroadcast, bytes);
    return Collective(frame, fmt::format("{}/{}", root, name), [&] {
      return Spread(static_cast<std::byte*>(data), bytes, root);
    });
  };
  return Break("broadcast", name, run());
}

Status Group::AllGather(std::string_view name, const void* mine, int64_t each,
                        void* all) {
  const Timer timer(*this);
  queue_.Finish();
  const auto run = [&]() -> Status {
    if (each < 0) return InvalidArgument(fmt::format("{} bytes each", each));
    const Frame frame = BytesFrame(FrameKind::kGather, each);
    auto* const to = static_cast<std::byte*>(all);
    std::byte* const place = to + rank_ * each;
    if (each > 0 && place != mine) {
      std::memcpy(place, mine, static_cast<size_t>(each));
    }
    return Collective(frame, name, [&] { return Gather(each, to); });
  };
  return Break("all-gather", name, run());
}

Status Group::Barrier(std::string_view name) {
  const Timer timer(*this);
  queue_.Finish();
  return Break("barrier", name,
               Collective(BytesFrame(FrameKind::kBarrier, 0), name,
                          [&] { return GreetAll(); }));
}

}  // namespace sluice::dist
