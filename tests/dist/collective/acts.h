// Collectives that every rank of a group can do and check by itself.
#ifndef SLUICE_TESTS_DIST_COLLECTIVE_ACTS_H_
#define SLUICE_TESTS_DIST_COLLECTIVE_ACTS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dist/collective/group.h"
#include "dist/collective/pieces.h"
#include "engine/dtype.h"
#include "engine/runtime/collective.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "tests/dist/collective/sums.h"

namespace sluice::dist::testing {

// A collective of a program, which every rank can do and check by itself.
struct Act {
  enum Kind { kReduce, kScatter, kTrade, kGather, kSpread, kWait } kind;
  std::string name;
  DType dtype;
  int64_t count;  // of a rank's elements, or bytes for each
  int salt = 0;   // of a group: another's data differ
};

inline Act RandomAct(std::mt19937& random) {
  Act act;
  act.kind = static_cast<Act::Kind>(random() % 6);
  act.name = std::string(1, static_cast<char>('a' + random() % 3));
  act.dtype = random() % 2 == 0 ? DType::kInt32 : DType::kInt64;
  act.count = static_cast<int64_t>(random() % (random() % 3 == 0 ? 90'000 : 9));
  return act;
}

// Element i of a rank: integers, whose sums are exact.
inline int64_t Given(const Act& act, int rank, int64_t i) {
  return (i * 31 + rank * 7 + act.salt) % 100;
}

// To rank `to`: who sends it, and whom it is for.
inline char Mark(const Act& act, int from, int to) {
  return static_cast<char>('A' + from * 6 + to + act.salt);
}

// What a rank has before, in place: all of it, but of a gather its part.
inline Tensor DataOf(const Act& act, const Group& group) {
  if (act.kind <= Act::kScatter) {
    Tensor data(DType::kInt64, {act.count});
    for (int64_t i = 0; i < act.count; ++i) {
      data.data<int64_t>()[i] = Given(act, group.rank(), i);
    }
    return data.Cast(act.dtype);
  }
  Tensor data = Tensor::Zeros(DType::kUInt8, {act.count * group.size()});
  for (int to = 0; to < group.size(); ++to) {
    if (act.kind == Act::kGather && to != group.rank()) continue;
    std::memset(static_cast<char*>(data.raw()) + to * act.count,
                Mark(act, group.rank(), act.kind == Act::kGather ? 0 : to),
                static_cast<size_t>(act.count));
  }
  return data;
}

// Of what became of it.
inline Status CheckData(const Act& act, const Group& group,
                        const Tensor& data) {
  if (act.kind <= Act::kScatter) {
    const Range own = act.kind == Act::kReduce
                          ? Range{0, act.count}
                          : Part(act.count, group.size(), group.rank());
    for (int64_t i = own.begin; i < own.begin + own.count; ++i) {
      double wanted = 0;
      for (int rank = 0; rank < group.size(); ++rank) {
        wanted += static_cast<double>(Given(act, rank, i));
      }
      if (data.At(i) != wanted) return Internal("a wrong sum");
    }
    return {};
  }
  for (int from = 0; from < group.size(); ++from) {
    const char wanted = act.kind == Act::kTrade ? Mark(act, from, group.rank())
                        : act.kind == Act::kSpread
                            ? Mark(act, group.size() - 1, from)
                            : Mark(act, from, 0);
    for (int64_t i = 0; i < act.count; ++i) {
      if (static_cast<const char*>(data.raw())[from * act.count + i] !=
          wanted) {
        return Internal("wrong bytes");
      }
    }
  }
  return {};
}

// Of this data, in place.
inline CollectiveCall CallOf(const Act& act, const Group& group, Tensor& data) {
  using Verb = CollectiveCall::Verb;
  constexpr Verb kVerbs[] = {Verb::kAllReduce, Verb::kReduceScatter,
                             Verb::kAllToAll, Verb::kAllGather,
                             Verb::kBroadcast};
  return {.verb = kVerbs[act.kind],
          .name = act.name,
          .dtype = data.dtype(),
          .data = data.raw(),
          .count = data.elements(),
          .root = group.size() - 1};
}

// What is moved may have come from elsewhere.
inline Status Do(const Act& act, Group& group) {
  if (act.kind == Act::kWait) return group.Barrier(act.name);
  Tensor data = DataOf(act, group);
  if (act.kind == Act::kTrade && act.count % 2 == 0) {
    Tensor dealt = Tensor::Zeros(data.dtype(), data.shape());
    SLUICE_RETURN_IF_ERROR(
        group.AllToAll(act.name, data.raw(), act.count, dealt.raw()));
    return CheckData(act, group, dealt);
  }
  if (act.kind == Act::kGather && act.count % 2 == 0) {
    const Tensor mine =
        data.Rows(group.rank() * act.count, (group.rank() + 1) * act.count)
            .Clone();
    Tensor all = Tensor::Zeros(data.dtype(), data.shape());
    SLUICE_RETURN_IF_ERROR(
        group.AllGather(act.name, mine.raw(), act.count, all.raw()));
    return CheckData(act, group, all);
  }
  SLUICE_RETURN_IF_ERROR(group.Do(CallOf(act, group, data)));
  return CheckData(act, group, data);
}

// Begun and waited for as a rank likes.
class UnderWay {
 public:
  explicit UnderWay(Group& group) : group_(group) {}
  ~UnderWay() {
    for (const auto& [act, data] : begun_) (void)group_.Wait(data.raw()).ok();
  }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

  size_t size() const { return begun_.size(); }
  // The act lives on.
  Status Start(const Act& act) {
    Tensor data = DataOf(act, group_);
    SLUICE_RETURN_IF_ERROR(group_.Start(CallOf(act, group_, data)));
    begun_.emplace_back(&act, std::move(data));
    return {};
  }
  Status Wait(size_t i) {
    const auto [act, data] = begun_[i];
    begun_.erase(begun_.begin() + static_cast<std::ptrdiff_t>(i));
    SLUICE_RETURN_IF_ERROR(group_.Wait(data.raw()));
    return CheckData(*act, group_, data);
  }

 private:
  Group& group_;
  std::vector<std::pair<const Act*, Tensor>> begun_;
};

// Some are begun, and waited for later, in any order.
inline Status DoAllLate(const std::vector<Act>& program, Group& group,
                        uint32_t seed) {
  std::mt19937 random(seed);
  UnderWay under_way(group);
  for (const Act& act : program) {
    // Without elements they are in one place, which has an order.
    const bool empty = act.count == 0;
    SLUICE_RETURN_IF_ERROR(act.kind == Act::kWait || empty || random() % 3 == 0
                               ? Do(act, group)
                               : under_way.Start(act));
    while (under_way.size() > 0 && random() % 3 == 0) {
      SLUICE_RETURN_IF_ERROR(under_way.Wait(random() % under_way.size()));
    }
  }
  while (under_way.size() > 0) {
    SLUICE_RETURN_IF_ERROR(under_way.Wait(random() % under_way.size()));
  }
  return {};
}

inline Status DoAll(const std::vector<Act>& program, Group& group) {
  for (const Act& act : program) SLUICE_RETURN_IF_ERROR(Do(act, group));
  return {};
}

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_COLLECTIVE_ACTS_H_
