// Collectives that every rank of a group can do and check by itself.
#ifndef SLUICE_TESTS_DIST_COLLECTIVE_ACTS_H_
#define SLUICE_TESTS_DIST_COLLECTIVE_ACTS_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "dist/collective/group.h"
#include "dist/collective/pieces.h"
#include "engine/dtype.h"
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

inline Status Reduced(const Act& act, Group& group) {
  Tensor data(DType::kInt64, {act.count});
  for (int64_t i = 0; i < act.count; ++i) {
    data.data<int64_t>()[i] = Given(act, group.rank(), i);
  }
  Tensor sum = data.Cast(act.dtype);
  Range own{0, act.count};
  if (act.kind == Act::kReduce) {
    SLUICE_RETURN_IF_ERROR(group.AllReduce(act.name, &sum, Reduction::kSum));
  } else {
    own = Part(act.count, group.size(), group.rank());
    SLUICE_RETURN_IF_ERROR(group.ReduceScatter(act.name, act.dtype, sum.raw(),
                                               act.count, 1, Reduction::kSum));
  }
  for (int64_t i = own.begin; i < own.begin + own.count; ++i) {
    double wanted = 0;
    for (int rank = 0; rank < group.size(); ++rank) {
      wanted += static_cast<double>(Given(act, rank, i));
    }
    if (sum.At(i) != wanted) return Internal("a wrong sum");
  }
  return {};
}

inline Status Moved(const Act& act, Group& group) {
  const auto each = static_cast<size_t>(act.count);
  const size_t n = At(group.size());
  // To one of all: who sends it, and whom it is for.
  const auto bytes = [&](size_t from, size_t to) {
    return std::string(each,
                       static_cast<char>('A' + from * 6 + to + At(act.salt)));
  };
  const size_t mine = At(group.rank());
  std::string out, in(each * n, '\0'), wanted;
  for (size_t i = 0; i < n; ++i) {
    out += bytes(mine, i);
    wanted += act.kind == Act::kTrade ? bytes(i, mine) : bytes(i, 0);
  }
  if (act.kind == Act::kSpread) {
    in = out;
    wanted.clear();
    for (size_t i = 0; i < n; ++i) wanted += bytes(n - 1, i);
    SLUICE_RETURN_IF_ERROR(group.Broadcast(act.name, in.data(),
                                           static_cast<int64_t>(in.size()),
                                           group.size() - 1));
  } else {
    SLUICE_RETURN_IF_ERROR(
        act.kind == Act::kTrade
            ? group.AllToAll(act.name, out.data(), act.count, in.data())
            : group.AllGather(act.name, out.data(), act.count, in.data()));
  }
  return in == wanted ? Status() : Internal("wrong bytes");
}

inline Status Do(const Act& act, Group& group) {
  if (act.kind == Act::kWait) return group.Barrier(act.name);
  return act.kind <= Act::kScatter ? Reduced(act, group) : Moved(act, group);
}

inline Status DoAll(const std::vector<Act>& program, Group& group) {
  for (const Act& act : program) SLUICE_RETURN_IF_ERROR(Do(act, group));
  return {};
}

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_COLLECTIVE_ACTS_H_
