// Sums in a tree's order: the bits of one process that has all leaves.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "dist/collective/group.h"
#include "dist/collective/reduce.h"
#include "engine/runtime/subtrees.h"
#include "engine/tensor.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/error_text.h"
#include "tests/support/sanitizers.h"

namespace sluice::dist {
namespace {

using sluice::testing::Contains;
using sluice::testing::Rounds;
using testing::Groups;
using testing::JoinAll;
using testing::OnAll;
using testing::Watchdog;
using testing::WiresOf;

// Of leaves [begin, end), which are a subtree: by its definition.
Tensor SumOf(const std::vector<Tensor>& leaves, int64_t begin, int64_t end) {
  if (end - begin == 1) return leaves[static_cast<size_t>(begin)].Clone();
  const int64_t middle = begin + (end - begin) / 2;
  Tensor left = SumOf(leaves, begin, middle);
  const Tensor right = SumOf(leaves, middle, end);
  AddTo(left.dtype(), left.raw(), right.raw(), left.elements());
  return left;
}

// What a rank brings.
std::vector<Tensor> SumsOf(const std::vector<Tensor>& leaves, int rank,
                           int size) {
  const auto range = LeavesOf(static_cast<int64_t>(leaves.size()), rank, size);
  std::vector<Tensor> sums;
  const SubtreeRow row = SubtreesOf(range);
  for (const Subtree& subtree : row.subtrees()) {
    sums.push_back(
        SumOf(leaves, subtree.begin, subtree.begin + subtree.leaves));
  }
  return sums;
}

// Of any size, so that each order of additions has other bits.
std::vector<Tensor> RandomLeaves(DType dtype, int64_t count, int64_t leaves,
                                 std::mt19937& random) {
  std::uniform_real_distribution<double> exponent(-6, 10);
  std::uniform_real_distribution<double> mantissa(-1, 1);
  std::vector<Tensor> all;
  for (int64_t leaf = 0; leaf < leaves; ++leaf) {
    Tensor wide(DType::kFloat64, {count});
    for (double& x : wide.values<double>()) {
      x = std::ldexp(mantissa(random), static_cast<int>(exponent(random)));
    }
    all.push_back(wide.Cast(dtype));
  }
  return all;
}

TEST_CASE("leaves are the subtrees of no two siblings, as few as may be") {
  for (int64_t leaves = 1; leaves <= 64; leaves *= 2) {
    for (int64_t begin = 0; begin < leaves; ++begin) {
      for (int64_t end = begin; end <= leaves; ++end) {
        const SubtreeRow row = SubtreesOf({begin, end});
        int64_t next = begin;
        for (const Subtree& subtree : row.subtrees()) {
          CHECK(subtree.begin == next);
          CHECK(std::has_single_bit(static_cast<uint64_t>(subtree.leaves)));
          CHECK(subtree.begin % subtree.leaves == 0);
          // Its parent is not of these leaves alone.
          const int64_t parent = 2 * subtree.leaves;
          const int64_t from = subtree.begin / parent * parent;
          CHECK((from < begin || from + parent > end));
          next = subtree.begin + subtree.leaves;
        }
        CHECK(next == end);
        if (begin > 0) continue;
        CHECK(row.size() == std::popcount(static_cast<uint64_t>(end)));
      }
    }
  }
}

TEST_CASE("each leaf is one rank's, and each rank has one") {
  for (int64_t leaves = 1; leaves <= 64; leaves *= 2) {
    for (int64_t size = 1; size <= leaves; ++size) {
      int64_t next = 0;
      for (int64_t rank = 0; rank < size; ++rank) {
        const LeafRange range = LeavesOf(leaves, rank, size);
        CHECK(range.begin == next);
        CHECK(range.size() >= leaves / size);
        CHECK(range.size() <= leaves / size + 1);
        next = range.end;
      }
      CHECK(next == leaves);
    }
  }
}

TEST_CASE("a tree's sum has the bits of one process") {
  std::mt19937 random(1);
  const DType dtypes[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                          DType::kBFloat16, DType::kInt32,   DType::kInt64};
  int order_matters = 0;
  for (size_t job = 0; job < 20; ++job) {
    const int size = 1 + static_cast<int>(job / 3);
    const Watchdog watchdog;
    Groups groups = JoinAll(size, WiresOf(job));
    for (int run = 0; run < Rounds(12); ++run) {
      const int64_t leaves = std::bit_ceil(static_cast<uint64_t>(size))
                             << random() % 3;
      const DType dtype = dtypes[random() % 6];
      const uint64_t most = run % 3 == 0 ? 2 : run % 3 == 1 ? 5000 : 400'000;
      const auto count = static_cast<int64_t>(random() % (most + 1));
      const bool in_place = random() % 2 == 0;
      CAPTURE(size);
      CAPTURE(leaves);
      CAPTURE(NameOf(dtype));
      CAPTURE(count);
      const auto all = RandomLeaves(dtype, count, leaves, random);
      const Tensor wanted = SumOf(all, 0, leaves);
      Tensor in_turn = all[0].Clone();
      for (size_t leaf = 1; leaf < all.size(); ++leaf) {
        AddTo(dtype, in_turn.raw(), all[leaf].raw(), count);
      }
      order_matters += !in_turn.BitEqual(wanted);
      std::vector<Tensor> results(static_cast<size_t>(size));
      const auto statuses = OnAll(groups, [&](Group& group) {
        std::vector<Tensor> sums = SumsOf(all, group.rank(), size);
        Tensor result = in_place ? sums[0] : Tensor(dtype, {count});
        const std::vector<Tensor> before = [&] {
          std::vector<Tensor> copies;
          for (const Tensor& sum : sums) copies.push_back(sum.Clone());
          return copies;
        }();
        std::vector<const void*> pointers;
        for (const Tensor& sum : sums) pointers.push_back(sum.raw());
        Status status =
            group.SumTree("x", dtype, leaves, pointers, result.raw(), count);
        // What it was given it leaves as it was.
        for (size_t i = in_place ? 1 : 0; i < sums.size(); ++i) {
          if (!sums[i].BitEqual(before[i])) return Internal("a sum changed");
        }
        results[static_cast<size_t>(group.rank())] = result;
        return status;
      });
      for (const Status& status : statuses) CHECK(status.ToString() == "ok");
      for (const Tensor& result : results) CHECK(result.BitEqual(wanted));
    }
  }
  CHECK(order_matters > Rounds(20));
}

// 2 KiB of headers apart: of each rank but the last as many sums as there are
// subtrees of the leaves up to it, and the whole but from the last but one.
TEST_CASE("a tree's sum sends what it says") {
  constexpr int64_t kCount = 1'000'000;
  for (const int size : {2, 3, 4}) {
    const Watchdog watchdog;
    Groups groups = JoinAll(size);
    const int64_t leaves = std::bit_ceil(static_cast<uint64_t>(size));
    std::vector<Tensor> all(static_cast<size_t>(leaves));
    for (Tensor& leaf : all) leaf = Tensor::Full(DType::kFloat32, {kCount}, 1);
    for (const Status& status : OnAll(groups, [&](Group& group) {
           const auto sums = SumsOf(all, group.rank(), size);
           std::vector<const void*> pointers;
           for (const Tensor& sum : sums) pointers.push_back(sum.raw());
           Tensor result(DType::kFloat32, {kCount});
           return group.SumTree("x", DType::kFloat32, leaves, pointers,
                                result.raw(), kCount);
         })) {
      CHECK(status.ToString() == "ok");
    }
    for (int rank = 0; rank < size; ++rank) {
      const auto upto = static_cast<uint64_t>(LeavesOf(leaves, rank, size).end);
      const int64_t sums = rank == size - 1 ? 0 : std::popcount(upto);
      const int64_t wholes = rank == size - 2 ? 0 : 1;
      const int64_t sent = groups[static_cast<size_t>(rank)]->bytes_sent();
      CAPTURE(size);
      CAPTURE(rank);
      CHECK(sent >= 4 * kCount * (sums + wholes));
      CHECK(sent <= 4 * kCount * (sums + wholes) + 2048);
    }
  }
}

TEST_CASE("a tree's sum: what is wrong is an error of all") {
  struct Call {
    std::string name = "x";
    DType dtype = DType::kFloat32;
    int64_t leaves = 4;
    int64_t count = 100;
  };
  const auto errors = [](const Call& others, const Call& one,
                         const std::string& wanted) {
    const Watchdog watchdog;
    Groups groups = JoinAll(3);
    const auto statuses = OnAll(groups, [&](Group& group) {
      const Call& call = group.rank() == 1 ? one : others;
      Tensor data = Tensor::Zeros(DType::kFloat64, {200});
      const std::vector<const void*> sums(
          SubtreesOf(LeavesOf(call.leaves, group.rank(), 3)).size(),
          data.raw());
      Tensor result(DType::kFloat64, {200});
      return group.SumTree(call.name, call.dtype, call.leaves, sums,
                           result.raw(), call.count);
    });
    for (const Status& status : statuses) {
      CAPTURE(status.ToString());
      CHECK(!status.ok());
      CHECK(Contains(status.message(), wanted));
    }
  };
  errors({}, {.name = "y"}, "");
  errors({}, {.leaves = 8}, "");
  errors({}, {.count = 99}, "99");
  errors({}, {.count = 0}, "0");
  errors({.count = 0}, {.name = "y", .count = 0}, "");
  errors({}, {.dtype = DType::kInt32}, "int32");
  errors({}, {.leaves = 2}, "2 leaves: wanted a power of two, at least 3");
  errors({}, {.leaves = 6}, "6 leaves");
  errors({}, {.dtype = DType::kBool}, "bool has no sum");
}

}  // namespace
}  // namespace sluice::dist
