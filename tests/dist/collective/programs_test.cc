// Programs of all collectives, one after another, and one of them wrong.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dist/collective/group.h"
#include "dist/collective/pieces.h"
#include "engine/dtype.h"
#include "engine/tensor.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/collective/sums.h"

namespace sluice::dist {
namespace {

using namespace testing;  // NOLINT: of the job's test double

// A collective of a program, which every rank can do and check by itself.
struct Act {
  enum Kind { kReduce, kScatter, kTrade, kGather, kSpread, kWait } kind;
  std::string name;
  DType dtype;
  int64_t count;  // of a rank's elements, or bytes for each
};

Act RandomAct(std::mt19937& random) {
  Act act;
  act.kind = static_cast<Act::Kind>(random() % 6);
  act.name = std::string(1, static_cast<char>('a' + random() % 3));
  act.dtype = random() % 2 == 0 ? DType::kInt32 : DType::kInt64;
  act.count = static_cast<int64_t>(random() % (random() % 3 == 0 ? 90'000 : 9));
  return act;
}

// Element i of a rank: integers, whose sums are exact.
int64_t Given(int rank, int64_t i) {
  return (i * 31 + rank * 7) % 100;
}

Status Reduced(const Act& act, Group& group) {
  Tensor data(DType::kInt64, {act.count});
  for (int64_t i = 0; i < act.count; ++i) {
    data.data<int64_t>()[i] = Given(group.rank(), i);
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
      wanted += static_cast<double>(Given(rank, i));
    }
    if (sum.At(i) != wanted) return Internal("a wrong sum");
  }
  return {};
}

Status Moved(const Act& act, Group& group) {
  const auto each = static_cast<size_t>(act.count);
  const size_t n = At(group.size());
  // To one of all: who sends it, and whom it is for.
  const auto bytes = [&](size_t from, size_t to) {
    return std::string(each, static_cast<char>('A' + from * 6 + to));
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

Status Do(const Act& act, Group& group) {
  if (act.kind == Act::kWait) return group.Barrier(act.name);
  return act.kind <= Act::kScatter ? Reduced(act, group) : Moved(act, group);
}

// Another act in this one's place.
Act Changed(Act act, std::mt19937& random) {
  const Act before = act;
  switch (random() % 4) {
    case 0:
      act.name += 'x';
      break;
    case 1:
      act.count += 1 + static_cast<int64_t>(random() % 90'000);
      break;
    case 2:
      act.dtype = act.dtype == DType::kInt32 ? DType::kInt64 : DType::kInt32;
      break;
    default:
      act.kind = static_cast<Act::Kind>((act.kind + 1 + random() % 5) % 6);
  }
  // Where that says nothing: a barrier has no count, bytes have no dtype.
  const bool sums = before.kind <= Act::kScatter;
  if (act.kind == before.kind && act.name == before.name &&
      (before.kind == Act::kWait || (!sums && act.count == before.count))) {
    act.name += 'x';
  }
  return act;
}

}  // namespace

TEST_CASE("programs of all collectives, each begun as soon as it can be") {
  std::mt19937 random(13);
  for (int job = 0; job < 40; ++job) {
    const int size = 1 + job % 5;
    const Watchdog watchdog;
    std::vector<Act> program;
    for (int i = 0; i < 20; ++i) program.push_back(RandomAct(random));
    Groups groups = JoinAll(size, WiresOf(At(job) / 5));
    CheckOk(OnAll(groups, [&](Group& group) -> Status {
      for (const Act& act : program) {
        SLUICE_RETURN_IF_ERROR(Do(act, group));
      }
      return {};
    }));
  }
}

TEST_CASE("a changed, missing or swapped collective is everyone's error") {
  std::mt19937 random(14);
  for (int job = 0; job < 150; ++job) {
    const int size = 2 + job % 4;
    const Watchdog watchdog;
    std::vector<Act> program;
    // Each has a name of its own, so that two are never the same.
    for (int i = 0; i < 6; ++i) {
      program.push_back(RandomAct(random));
      program.back().name += std::to_string(i);
    }
    program.push_back({Act::kWait, "end", DType::kInt32, 0});
    std::vector<Act> other = program;
    const auto at = static_cast<std::ptrdiff_t>(random() % 6);
    switch (job / 4 % 3) {
      case 0:
        other[static_cast<size_t>(at)] =
            Changed(other[static_cast<size_t>(at)], random);
        break;
      case 1:
        other.erase(other.begin() + at);
        break;
      default:
        std::swap(other[static_cast<size_t>(at)],
                  other[static_cast<size_t>(at) + 1]);
    }
    const int odd = static_cast<int>(random() % At(size));
    CAPTURE(size);
    CAPTURE(odd);
    CAPTURE(job);
    Groups groups = JoinAll(size, WiresOf(random()));
    CheckMismatch(groups, [&](Group& group) -> Status {
      for (const Act& act : group.rank() == odd ? other : program) {
        SLUICE_RETURN_IF_ERROR(Do(act, group));
      }
      return {};
    });
  }
}

}  // namespace sluice::dist
