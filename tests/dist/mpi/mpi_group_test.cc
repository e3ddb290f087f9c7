// Collectives through an MPI, of which tests/dist/mpi/thread_mpi.h is one:
// programs of all of them against plain loops, and one of them wrong.
#include "dist/mpi/mpi_group.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "dist/collective/pieces.h"
#include "engine/runtime/subtrees.h"
#include "engine/tensor.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/mpi/thread_mpi.h"
#include "tests/support/error_text.h"

namespace sluice::dist {
namespace {

using sluice::testing::Contains;
using testing::ThreadMpi;
using testing::Watchdog;

std::unique_ptr<MpiGroup> Joined() {
  return MpiGroup::Join(ThreadMpi::Calls(), {}).ValueOrThrow();
}

struct Act {
  enum Kind {
    kReduce,
    kScatter,
    kTree,
    kGather,
    kTrade,
    kSpread,
    kWait
  } kind = kReduce;
  std::string name;
  DType dtype = DType::kFloat32;
  Reduction how = Reduction::kSum;
  int64_t count = 0;  // elements of this dtype
  int64_t leaves = 8;
  int root = 0;
};

Act RandomAct(std::mt19937& random, int size) {
  const DType dtypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt32,
                          DType::kInt64,   DType::kFloat16, DType::kBFloat16};
  Act act;
  act.kind = static_cast<Act::Kind>(random() % 7);
  act.name = std::string(1, static_cast<char>('a' + random() % 3));
  act.dtype = dtypes[random() % 6];
  if (IsFloating(act.dtype) && random() % 2 == 0) act.how = Reduction::kMean;
  const int64_t counts[] = {0, 1, 7, 1000, 70'000};
  act.count = counts[random() % 5];
  act.leaves = random() % 2 == 0 ? 8 : 16;
  act.root = static_cast<int>(random() % static_cast<uint32_t>(size));
  return act;
}

// Element i of leaf or rank k: multiples of 1/4, so that sums of sixteen are
// exact in float32 and, up to 64, in half types.
double Given(int64_t k, int64_t i) {
  return static_cast<double>((i * 31 + k * 7) % 17 - 8) / 4;
}

Tensor Filled(const Act& act, int64_t k) {
  Tensor values(DType::kFloat64, {act.count});
  const bool whole = !IsFloating(act.dtype);
  for (int64_t i = 0; i < act.count; ++i) {
    values.data<double>()[i] = Given(k, i) * (whole ? 4 : 1);
  }
  return values.Cast(act.dtype);
}

void Do(const Act& act, MpiGroup& group) {
  const auto n = static_cast<int64_t>(group.size());
  Tensor mine = Filled(act, group.rank());
  switch (act.kind) {
    case Act::kReduce:
    case Act::kScatter: {
      Range own{0, act.count};
      if (act.kind == Act::kReduce) {
        REQUIRE(
            group.AllReduce(act.name, act.dtype, mine.raw(), act.count, act.how)
                .ok());
      } else {
        own = Part(act.count, n, group.rank());
        REQUIRE(group
                    .ReduceScatter(act.name, act.dtype, mine.raw(), act.count,
                                   1, act.how)
                    .ok());
      }
      std::vector<Tensor> all;
      for (int64_t k = 0; k < n; ++k) all.push_back(Filled(act, k));
      for (int64_t i = own.begin; i < own.begin + own.count; ++i) {
        double sum = 0;
        for (const Tensor& each : all) sum += each.At(i);
        if (act.how == Reduction::kMean) sum /= static_cast<double>(n);
        const double far = SizeOf(act.dtype) == 2 ? 0.1 : 1e-6;
        REQUIRE(std::abs(mine.At(i) - sum) <= far);
        if (i > 20) i += 997;  // of many some
      }
      break;
    }
    case Act::kTree: {
      const LeafRange leaves = LeavesOf(act.leaves, group.rank(), n);
      std::vector<Tensor> sums;
      std::vector<const void*> raw;
      const SubtreeRow trees = SubtreesOf(leaves);
      for (const Subtree& tree : trees.subtrees()) {
        Tensor sum = Tensor::Zeros(DType::kFloat64, {act.count});
        for (int64_t k = tree.begin; k < tree.begin + tree.leaves; ++k) {
          const Tensor leaf = Filled(act, k);
          for (int64_t i = 0; i < act.count; ++i) {
            sum.data<double>()[i] += leaf.At(i);
          }
        }
        sums.push_back(sum.Cast(act.dtype));
      }
      for (const Tensor& sum : sums) raw.push_back(sum.raw());
      Tensor whole(act.dtype, {act.count});
      REQUIRE(group
                  .SumTree(act.name, act.dtype, act.leaves, raw, whole.raw(),
                           act.count)
                  .ok());
      for (int64_t i = 0; i<act.count; i += i> 20 ? 997 : 1) {
        double sum = 0;
        for (int64_t k = 0; k < act.leaves; ++k) sum += Filled(act, k).At(i);
        REQUIRE(whole.At(i) == sum);
      }
      break;
    }
    case Act::kGather: {
      Tensor all(act.dtype, {n, act.count});
      REQUIRE(group
                  .AllGather(act.name, mine.raw(),
                             static_cast<int64_t>(mine.bytes()), all.raw())
                  .ok());
      for (int64_t k = 0; k < n; ++k) {
        CHECK(
            all.Rows(k, k + 1).Reshaped({act.count}).BitEqual(Filled(act, k)));
      }
      break;
    }
    case Act::kTrade: {
      Tensor mine_for_all(act.dtype, {n, act.count});
      Tensor all = act.root == 0 ? mine_for_all  // in place
                                 : Tensor(act.dtype, {n, act.count});
      const auto each = static_cast<int64_t>(mine.bytes());
      for (int64_t k = 0; k < n; ++k) {
        const Tensor one = Filled(act, group.rank() * n + k);
        std::memcpy(static_cast<char*>(mine_for_all.raw()) + k * each,
                    one.raw(), one.bytes());
      }
      REQUIRE(
          group.AllToAll(act.name, mine_for_all.raw(), each, all.raw()).ok());
      for (int64_t k = 0; k < n; ++k) {
        CHECK(all.Rows(k, k + 1)
                  .Reshaped({act.count})
                  .BitEqual(Filled(act, k * n + group.rank())));
      }
      break;
    }
    case Act::kSpread:
      REQUIRE(group
                  .Broadcast(act.name, mine.raw(),
                             static_cast<int64_t>(mine.bytes()), act.root)
                  .ok());
      CHECK(mine.BitEqual(Filled(act, act.root)));
      break;
    case Act::kWait:
      REQUIRE(group.Barrier(act.name).ok());
  }
}

TEST_CASE("programs of collectives through an MPI are plain loops") {
  std::mt19937 random(5);
  for (int job = 0; job < 12; ++job) {
    const Watchdog watchdog;
    const int size = 1 + job % 4;
    std::vector<Act> program;
    for (int i = 0; i < 12; ++i) program.push_back(RandomAct(random, size));
    ThreadMpi(size, size).Run([&](int) {
      const auto group = Joined();
      for (const Act& act : program) Do(act, *group);
    });
  }
}

// Not exact sums: the order is the tree's, whoever has the leaves.
TEST_CASE("sums of a tree have one order for any number of ranks") {
  constexpr int64_t kLeaves = 8, kCount = 70'000;  // more than a piece
  std::vector<std::vector<float>> leaves(kLeaves);
  std::mt19937 random(3);
  for (auto& leaf : leaves) {
    for (int64_t i = 0; i < kCount; ++i) {
      leaf.push_back(std::normal_distribution<float>()(random));
    }
  }
  const std::function<std::vector<float>(int64_t, int64_t)> sum =
      [&](int64_t begin, int64_t n) {
        if (n == 1) return leaves[static_cast<size_t>(begin)];
        std::vector<float> left = sum(begin, n / 2);
        const std::vector<float> right = sum(begin + n / 2, n / 2);
        for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
        return left;
      };
  const std::vector<float> wanted = sum(0, kLeaves);
  for (const int size : {1, 2, 3, 5, 8}) {
    const Watchdog watchdog;
    ThreadMpi(size, size).Run([&](int rank) {
      const auto group = Joined();
      std::vector<std::vector<float>> mine;
      const SubtreeRow trees = SubtreesOf(LeavesOf(kLeaves, rank, size));
      for (const Subtree& tree : trees.subtrees()) {
        mine.push_back(sum(tree.begin, tree.leaves));
      }
      std::vector<const void*> raw;
      for (const auto& each : mine) raw.push_back(each.data());
      std::vector<float> whole(kCount);
      REQUIRE(group
                  ->SumTree("t", DType::kFloat32, kLeaves, raw, whole.data(),
                            kCount)
                  .ok());
      CHECK(whole == wanted);
    });
  }
}

// How a rank goes astray at its step of a program.
enum class Astray { kName, kCount, kRoot, kWrong, kEnds, kLeaves };

TEST_CASE("a rank that does something else is named by all") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 60; ++trial) {
    const Watchdog watchdog;
    const int size = 2 + trial % 3;
    const int astray = static_cast<int>(random() % static_cast<uint32_t>(size));
    const auto at = static_cast<int64_t>(random() % 6);
    const auto how = static_cast<Astray>(trial % 6);
    CAPTURE(trial);
    std::atomic<int> failed{0};
    ThreadMpi(size, size).Run([&](int rank) {
      const auto group = Joined();
      Status status;
      for (int64_t step = 0; step < 8 && status.ok(); ++step) {
        Act act{.kind = Act::kSpread, .name = "b", .count = 3};
        if (rank == astray && step == at) {
          if (how == Astray::kEnds) return;
          if (how == Astray::kLeaves) {
            group->Leave(Status(Code::kInternal, "no space"));
            return;
          }
          if (how == Astray::kName) act.name = "c";
          if (how == Astray::kCount) act.count = 2;
          if (how == Astray::kRoot) act.root = 1;
          if (how == Astray::kWrong) act.root = size;
        }
        Tensor data = Filled(act, rank);
        status = group->Broadcast(act.name, data.raw(),
                                  static_cast<int64_t>(data.bytes()), act.root);
        CHECK(status.ok() == (step < at));
      }
      ++failed;
      const std::string text = status.message();
      const std::string name = "rank " + std::to_string(astray);
      if (how == Astray::kLeaves) {
        CHECK(Contains(
            text, name + " of " + std::to_string(size) + " failed: no space"));
      } else if (rank != astray || how != Astray::kWrong) {
        CHECK(Contains(text, how == Astray::kWrong || astray == 0 || size == 2
                                 ? "rank "
                                 : name));
      }
      // And from then on.
      CHECK(group->Check().message() == text);
      CHECK(group->Barrier("later").message() == text);
    });
    CHECK(failed == size - (how >= Astray::kEnds ? 1 : 0));
  }
}

// Rank 1's numbers of what it is at, as those of another version are others.
thread_local bool is_another_version = false;
const char* LargestOfVersions(int communicator, uint64_t* values, int count) {
  if (is_another_version && count == 3) {
    ++values[0];
    values[1] = ~values[0];
  }
  return ThreadMpi::Calls().largest(communicator, values, count);
}

TEST_CASE("ranks of different versions are not together") {
  const Watchdog watchdog;
  MpiCalls calls = ThreadMpi::Calls();
  calls.largest = &LargestOfVersions;
  ThreadMpi(2, 2).Run([&](int rank) {
    is_another_version = rank == 1;
    const auto group = MpiGroup::Join(calls, {});
    REQUIRE(!group.ok());
    CHECK(group.status().code() == Code::kFailedPrecondition);
    CHECK(Contains(group.status().message(),
                   "rank 0 of 2 at the start of Sluice "));
  });
}

TEST_CASE("what would go to other hosts in the clear is refused by all") {
  const Watchdog watchdog;
  ThreadMpi(4, 2).Run([](int) {
    const auto group = MpiGroup::Join(ThreadMpi::Calls(), {});
    REQUIRE(!group.ok());
    CHECK(Contains(group.status().message(), "--allow-plaintext"));
  });
  ThreadMpi(4, 2).Run([](int) {
    const auto group =
        MpiGroup::Join(ThreadMpi::Calls(), {.allow_plaintext = true});
    REQUIRE(group.ok());
    CHECK((*group)->local_size() == 2);
  });
}

}  // namespace
}  // namespace sluice::dist
