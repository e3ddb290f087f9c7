// Whether all ranks are at the same collective, before it begins.
//
// Each has a number of what it is at, the hash of a text, and all learn the
// largest of these and of their complements, which are complements only where
// all are the same. A rank that has joined (Follow) gives 0 for both, so that
// it changes neither, and a third number that says so. Where the first two
// differ, or some have joined, all tell each other what they are at. Those that
// have joined then need memory for what they take part with, so all learn
// whether one of them has none before any sums.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "dist/membership/rank_name.h"
#include "dist/mpi/mpi_group.h"
#include "dist/net/frame.h"
#include "engine/catch_errors.h"
#include "engine/caught.h"

namespace sluice::dist {

std::string_view MpiGroup::Account::what() const {
  return {text, strnlen(text, kLongest)};
}

MpiGroup::Sum MpiGroup::Account::sum() const {
  return {static_cast<DType>(dtype), count, static_cast<Reduction>(how)};
}

Status MpiGroup::Account::Compare(const std::vector<Account>& all,
                                  bool differ) {
  const auto size = static_cast<int>(all.size());
  const auto what = [&](int rank) {
    return all[static_cast<size_t>(rank)].what();
  };
  // The first that is at something, the next that is at something else, or the
  // last of those that seem to be at the same, and the first that has joined.
  int at = -1, other = -1, joined = -1;
  for (int rank = 0; rank < size; ++rank) {
    if (what(rank).starts_with(kFailed)) {
      return Unavailable(
          fmt::format("{} {}", RankName(rank, size), what(rank)));
    }
    if (all[static_cast<size_t>(rank)].joined == 1) {
      if (joined < 0) joined = rank;
    } else if (at < 0) {
      at = rank;
    } else if (other < 0 || what(other) == what(at)) {
      other = rank;
    }
  }
  if (differ) {
    return FailedPrecondition(
        fmt::format("ranks are at different collectives: {} at {}, rank {} at "
                    "{}",
                    RankName(at, size), what(at), other, what(other)));
  }
  if (all[static_cast<size_t>(at)].reduces == 1) return {};
  return FailedPrecondition(fmt::format(
      "{} is at {}, {} has joined: it takes part in all-reduces alone",
      RankName(at, size), what(at), RankName(joined, size)));
}

Status MpiGroup::Exchange(const Account& own) {
  return Said(calls_.all_gather(place_.communicator, &own, sizeof(Account),
                                accounts_.data()));
}

// That all have called it makes it a barrier, too.
Status MpiGroup::Agree(const std::string& signature,
                       const std::optional<Sum>& sum) {
  if (place_.size == 1) return {};
  const uint64_t key = Key(signature);
  uint64_t largest[] = {key, ~key, 0};
  SLUICE_RETURN_IF_ERROR(Said(calls_.largest(place_.communicator, largest, 3)));
  const bool differ = largest[0] != ~largest[1];
  if (!differ && largest[2] == 0) return {};
  Account own;
  if (sum) {
    own.reduces = 1;
    own.dtype = static_cast<int64_t>(sum->dtype);
    own.how = static_cast<int64_t>(sum->how);
    own.count = sum->count;
  }
  signature.copy(own.text, Account::kLongest);
  SLUICE_RETURN_IF_ERROR(Exchange(own));
  SLUICE_RETURN_IF_ERROR(Account::Compare(accounts_, differ));
  return AgreeOnRoom(Status());
}

// Of several that have none the last is named.
Status MpiGroup::AgreeOnRoom(const Status& mine) const {
  uint64_t without = mine.ok() ? 0 : static_cast<uint64_t>(place_.rank) + 1;
  SLUICE_RETURN_IF_ERROR(
      Said(calls_.largest(place_.communicator, &without, 1)));
  if (without == 0 || !mine.ok()) return mine;
  return Unavailable(
      fmt::format("{} failed: it has joined and has no memory for the sum",
                  RankName(static_cast<int>(without) - 1, place_.size)));
}

Result<std::optional<MpiGroup::Sum>> MpiGroup::HearNext() {
  uint64_t largest[] = {0, 0, 1};
  SLUICE_RETURN_IF_ERROR(Said(calls_.largest(place_.communicator, largest, 3)));
  if (largest[0] == 0 && largest[1] == 0) return std::optional<Sum>();
  Account own;
  own.joined = 1;
  SLUICE_RETURN_IF_ERROR(Exchange(own));
  SLUICE_RETURN_IF_ERROR(
      Account::Compare(accounts_, largest[0] != ~largest[1]));
  const auto other =
      std::find_if(accounts_.begin(), accounts_.end(),
                   [](const Account& one) { return one.joined == 0; });
  return std::optional(other->sum());
}

Result<int> MpiGroup::FollowToEnd() {
  const uint64_t own = run_;
  std::vector<std::byte> zeros;  // the sums land in them
  for (;;) {
    SLUICE_ASSIGN_OR_RETURN(const std::optional<Sum> next, HearNext());
    if (!next) break;
    ++run_;
    const size_t bytes = static_cast<size_t>(next->count) * SizeOf(next->dtype);
    SLUICE_RETURN_IF_ERROR(
        AgreeOnRoom(CatchErrors([&] { zeros.assign(bytes, std::byte{0}); })));
    SLUICE_RETURN_IF_ERROR(
        Reduce(next->dtype, zeros.data(), next->count, next->how));
  }
  std::vector<uint64_t> runs(static_cast<size_t>(place_.size));
  SLUICE_RETURN_IF_ERROR(Said(
      calls_.all_gather(place_.communicator, &own, sizeof(own), runs.data())));
  // Of those with the most the highest.
  const auto last = std::max_element(runs.rbegin(), runs.rend());
  return static_cast<int>(runs.rend() - last) - 1;
}

Result<int> MpiGroup::Follow() {
  const CallQueue::Turn turn(queue_);
  MutexLock lock(mutex_);
  if (!broken_.ok()) return broken_;
  try {
    Result<int> last = FollowToEnd();
    if (last.ok()) return last;
    broken_ = Known(last.status());
  } catch (...) {
    broken_ = Known(CaughtStatus());
  }
  return broken_;
}

}  // namespace sluice::dist
