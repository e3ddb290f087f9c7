// What a rank does that has run out of data while others have not.
//
// It does not know what the others will do, and need not: their headers, which
// go from rank to rank, say all of it (kind, dtype, count), and it passes them
// on as they are, so that what differs is still found, and named, by the next
// rank with data. To these it makes no difference, but for frames of kJoin
// before a header, by which ranks count how many follow:
//
// A rank that follows says to the next how many do without a gap, it being the
// last of them: one more than the rank before has said, size at the most, and
// again whenever that becomes more. Nobody takes back what it has said before
// all follow. So one that comes to `size` knows that all do; that there is
// nobody left to send a header; and, since the number goes on round, that all
// will know. Each says `size` once, after which it sends nothing more of this,
// and is done when it has heard it: then nothing is left on the way to it. As
// for how long that takes: it ends, since what is said grows by one at each
// rank that it passes.
//
// With the number goes who came last, by the number of collectives that it had
// begun (`run`) and then by rank (`key`): the greatest of those that are
// counted, which for `size` is everyone's. It is a matter of the programs alone
// and not of chance.
//
// A rank sends no more of these than there are ranks, 48 bytes each, and only
// as an answer to what it hears: a cycle of ranks that cannot send would have
// heard less than they were sent.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <tuple>
#include <utility>

#include "dist/collective/group.h"
#include "dist/collective/reduce.h"

namespace sluice::dist {

Status Group::NoteJoined(const Frame& frame, int most) {
  if (frame.epoch != links_.epoch) {
    return FailedPrecondition(fmt::format("{} joins in epoch {}, not {}",
                                          RankName(ring().previous, size_),
                                          frame.epoch, links_.epoch));
  }
  const auto size = static_cast<uint64_t>(size_);
  if (frame.count <= static_cast<uint64_t>(before_.count) ||
      frame.count > static_cast<uint64_t>(most) || frame.key >= size) {
    return DataLoss(fmt::format("{} says that {} have joined, after {} of {}",
                                RankName(ring().previous, size_), frame.count,
                                before_.count, most));
  }
  before_ = {static_cast<int>(frame.count), frame.run,
             static_cast<int>(frame.key)};
  return {};
}

Status Group::SayJoined(const Following& following) {
  Frame frame;
  frame.kind = FrameKind::kJoin;
  frame.rank = rank_;
  frame.epoch = links_.epoch;
  frame.run = following.run;
  frame.key = static_cast<uint64_t>(following.rank);
  frame.count = static_cast<uint64_t>(following.count);
  std::array<std::byte, kFrameBytes> header;
  Encode(frame, header);
  const Bytes out(header);
  return Move({&out, 1}, {});
}

Status Group::GiveZeros(const Frame& frame) {
  Frame expected = frame;
  expected.rank = rank_;
  expected.epoch = links_.epoch;
  expected.run = run_;
  const std::string whose = RankName(frame.rank, size_);
  SLUICE_RETURN_IF_ERROR(CheckSame(expected, frame, whose));
  const bool mean = frame.kind == FrameKind::kMean;
  if (!mean && frame.kind != FrameKind::kReduce) {
    return FailedPrecondition(
        fmt::format("{} begins a {}, {} has joined: it takes part in "
                    "all-reduces alone",
                    whose, NameOf(frame.kind), RankName(rank_, size_)));
  }
  if (!frame.dtype || !kReducible.Contains(*frame.dtype) ||
      (mean && !IsFloating(*frame.dtype))) {
    return DataLoss(fmt::format("{} begins a {} of {}", whose,
                                NameOf(frame.kind),
                                frame.dtype ? NameOf(*frame.dtype) : "bytes"));
  }
  // The system gives memory for those parts that sums come to: what a header
  // says is not believed before.
  const std::unique_ptr<std::byte[], decltype(&std::free)> zeros(
      static_cast<std::byte*>(std::calloc(std::max<size_t>(frame.bytes, 1), 1)),
      &std::free);
  if (zeros == nullptr) {
    return ResourceExhausted(
        fmt::format("no memory for {} bytes of zeros", frame.bytes));
  }
  frame_ = frame;
  ++run_;
  greeted_ = true;
  return Reduce(*frame.dtype, zeros.get(), static_cast<int64_t>(frame.count), 1,
                mean, false);
}

Result<int> Group::FollowToEnd() {
  const Following own = {1, run_, rank_};
  int said = 0;
  while (before_.count < size_ || said < size_) {
    Following all = own;
    if (before_.count > 0) {
      all.count = std::min(before_.count + 1, size_);
      std::tie(all.run, all.rank) = std::max(
          std::pair(own.run, own.rank), std::pair(before_.run, before_.rank));
    }
    if (all.count > said) {
      said = all.count;
      SLUICE_RETURN_IF_ERROR(SayJoined(all));
      continue;
    }
    // To whom it may concern, it waits.
    links_.membership->Enters(run_ + 1, "join");
    SLUICE_ASSIGN_OR_RETURN(const Frame frame, Hear({}));
    SLUICE_RETURN_IF_ERROR(frame.kind == FrameKind::kJoin
                               ? NoteJoined(frame, size_)
                               : GiveZeros(frame));
  }
  links_.membership->Returns();
  return std::exchange(before_, {}).rank;
}

}  // namespace sluice::dist
