// The collectives against sums of their own, and what errors tell.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "dist/collective/group.h"
#include "engine/dtype.h"
#include "engine/tensor.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/collective/sums.h"
#include "tests/support/sanitizers.h"

namespace sluice::dist {
namespace {

using sluice::testing::Rounds;
using testing::AllWires;
using testing::At;
using testing::CheckAllName;
using testing::CheckMismatch;
using testing::CheckOk;
using testing::Groups;
using testing::JoinAll;
using testing::OnAll;
using testing::RandomTensors;
using testing::Watchdog;
using testing::Wires;
using testing::WiresOf;
using testing::Wrong;

GroupOptions AsRing() {
  GroupOptions options;
  options.all_reduce = Algorithm::kRing;
  return options;
}

}  // namespace

TEST_CASE("all-reduce as a ring is the sum or mean, the same bits everywhere") {
  std::mt19937 random(1);
  const DType dtypes[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                          DType::kBFloat16, DType::kInt32,   DType::kInt64};
  for (int job = 0; job < 18; ++job) {
    const int size = 1 + job / 3;
    const Watchdog watchdog;
    Groups groups = JoinAll(size, WiresOf(job), AsRing());
    for (int run = 0; run < Rounds(24); ++run) {
      const DType dtype = dtypes[random() % 6];
      // Small ones, which go with their header, and larger than a piece.
      const uint64_t most = run % 3 == 0 ? 8 : run % 3 == 1 ? 5000 : 100'000;
      const auto count = static_cast<int64_t>(random() % (most + 1));
      const Reduction how = IsFloating(dtype) && random() % 2 == 0
                                ? Reduction::kMean
                                : Reduction::kSum;
      const auto inputs = RandomTensors(dtype, count, size, random);
      std::vector<Tensor> results;
      for (const Tensor& input : inputs) results.push_back(input.Clone());
      CAPTURE(size);
      CAPTURE(NameOf(dtype));
      CAPTURE(count);
      CheckOk(OnAll(groups, [&](Group& group) {
        return group.AllReduce("x", &results[At(group.rank())], how);
      }));
      CHECK(Wrong(results[0], inputs, how) == 0);
      for (const Tensor& result : results) {
        CHECK(result.BitEqual(results[0]));
      }
    }
  }
}

TEST_CASE("all-reduce: integers wrap, a mean of halves stays in range") {
  const Watchdog watchdog;
  Groups groups = JoinAll(3);
  std::vector<int64_t> most(3, std::numeric_limits<int64_t>::max());
  std::vector<Half> large(3, Half(60000.f));
  CheckOk(OnAll(groups, [&](Group& group) {
    const size_t i = At(group.rank());
    SLUICE_RETURN_IF_ERROR(
        group.AllReduce("i", DType::kInt64, &most[i], 1, Reduction::kSum));
    return group.AllReduce("h", DType::kFloat16, &large[i], 1,
                           Reduction::kMean);
  }));
  for (const int64_t x : most) {
    CHECK(x == std::numeric_limits<int64_t>::max() - 2);
  }
  for (const Half x : large) CHECK(float(x) == doctest::Approx(60000));
}

TEST_CASE("as a ring it sends 2 (n-1) / n of the data, and a header") {
  for (int size = 1; size <= 5; ++size) {
    for (const int64_t count : {0, 1, 7, 1000, 300'000}) {
      const Watchdog watchdog;
      Groups groups = JoinAll(size, WiresOf(At(size)), AsRing());
      std::vector<std::vector<float>> data(
          At(size), std::vector<float>(static_cast<size_t>(count), 1.f));
      CheckOk(OnAll(groups, [&](Group& group) {
        return group.AllReduce("x", DType::kFloat32,
                               data[At(group.rank())].data(), count,
                               Reduction::kSum);
      }));
      int64_t sent = 0;
      for (const auto& group : groups) {
        sent += group->bytes_sent();
        // Chunks differ by an element at most.
        const int64_t fair = size == 1 ? 0 : 2 * (size - 1) * count * 4 / size;
        const int64_t headers = 48 * (size == 1    ? 0
                                      : count == 0 ? size - 1
                                                   : 1);
        CHECK(std::abs(group->bytes_sent() - headers - fair) <= 8 * size);
      }
      const int64_t headers = 48 * (size == 1    ? 0
                                    : count == 0 ? size * (size - 1)
                                                 : size);
      CHECK(sent == 2 * (size - 1) * count * 4 + headers);
    }
  }
}

TEST_CASE("broadcast, all-gather and barrier, in random order") {
  std::mt19937 random(2);
  for (int job = 0; job < 18; ++job) {
    const int size = 1 + job / 3;
    const Watchdog watchdog;
    Groups groups = JoinAll(size, WiresOf(job));
    for (int run = 0; run < Rounds(12); ++run) {
      const size_t bytes = random() % (run % 2 == 0 ? 10 : 900'000);
      const auto signed_bytes = static_cast<int64_t>(bytes);
      std::vector<std::string> mine(At(size));
      std::string all;
      for (std::string& text : mine) {
        for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(random());
        all += text;
      }
      if (run % 3 == 0) {
        std::vector<std::string> got(At(size), std::string(all.size(), '\0'));
        CheckOk(OnAll(groups, [&](Group& group) {
          const size_t i = At(group.rank());
          char* const to = got[i].data();
          const char* from = mine[i].data();
          if (run % 2 == 0) {  // in place
            std::memcpy(to + i * bytes, from, bytes);
            from = to + i * bytes;
          }
          return group.AllGather("g", from, signed_bytes, to);
        }));
        for (const std::string& text : got) CHECK((text == all));
      } else if (run % 3 == 1) {
        const int root = static_cast<int>(random() % At(size));
        const std::string want = mine[At(root)];
        CheckOk(OnAll(groups, [&](Group& group) {
          return group.Broadcast("b", mine[At(group.rank())].data(),
                                 signed_bytes, root);
        }));
        for (const std::string& text : mine) CHECK((text == want));
      } else {
        std::atomic<int> came = 0;
        std::vector<int> seen(At(size));
        CheckOk(OnAll(groups, [&](Group& group) {
          ++came;
          Status status = group.Barrier("wait");
          seen[At(group.rank())] = came;
          return status;
        }));
        for (const int n : seen) CHECK(n == size);
      }
    }
  }
}

TEST_CASE("another name, count, dtype, order or root is everyone's error") {
  for (int size = 2; size <= 5; ++size) {
    for (int odd = 0; odd < size; ++odd) {
      for (int what = 0; what < 8; ++what) {
        CAPTURE(size);
        CAPTURE(odd);
        CAPTURE(what);
        const Watchdog watchdog;
        Groups groups = JoinAll(size, WiresOf(At(what + odd)));
        const int64_t count = (what + odd) % 2 == 0 ? 5 : 500'000;
        CheckMismatch(groups, [&](Group& group) -> Status {
          std::vector<double> data(static_cast<size_t>(count) + 1, 1.0);
          const bool other = group.rank() == odd;
          const auto reduce = [&](const char* name, DType dtype, int64_t n,
                                  Reduction how) {
            return group.AllReduce(name, dtype, data.data(), n, how);
          };
          const DType f32 = DType::kFloat32;
          if (!other && what < 6) {
            SLUICE_RETURN_IF_ERROR(reduce("a", f32, count, Reduction::kSum));
            return reduce("b", f32, count, Reduction::kSum);
          }
          switch (what) {
            case 0:
              return reduce("c", f32, count, Reduction::kSum);
            case 1:
              return reduce("a", f32, count + 1, Reduction::kSum);
            case 2:
              return reduce("a", DType::kInt32, count, Reduction::kSum);
            case 3:  // the second first
              return reduce("b", f32, count, Reduction::kSum);
            case 4:
              return reduce("a", f32, count, Reduction::kMean);
            case 5:
              return reduce("a", f32, 0, Reduction::kSum);
            case 6:
              return group.Broadcast("a", data.data(), count,
                                     other ? 0 : size - 1);
            default:
              return other ? group.Barrier("a")
                           : reduce("a", f32, count, Reduction::kSum);
          }
        });
      }
    }
  }
}

TEST_CASE("what can never work breaks the group for all") {
  const Watchdog watchdog;
  Groups groups = JoinAll(3);
  const auto statuses = OnAll(groups, [&](Group& group) {
    float data = 1;
    if (group.rank() == 1) {
      return group.AllReduce("x", DType::kBool, &data, 1, Reduction::kSum);
    }
    return group.AllReduce("x", DType::kFloat32, &data, 1, Reduction::kSum);
  });
  for (const Status& status : statuses) {
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message() == "rank 1 of 3 in all-reduce 'x': bool has no sum");
  }
}

TEST_CASE("a rank that ends is everyone's error, and is named") {
  std::mt19937 random(3);
  for (int run = 0; run < Rounds(60); ++run) {
    const Watchdog watchdog;
    const int size = 2 + run % 5;
    const int dies = static_cast<int>(random() % At(size));
    const int after = static_cast<int>(random() % 4);
    const auto count = static_cast<int64_t>(random() % 400'000);
    Groups groups = JoinAll(size, WiresOf(At(run) / 5));
    const auto statuses = OnAll(groups, [&](Group& group) -> Status {
      const int rank = group.rank();
      std::vector<float> data(static_cast<size_t>(count), 1.f);
      for (int i = 0; i < 6; ++i) {
        if (rank == dies && i == after) {
          groups[At(rank)].reset();
          return {};
        }
        SLUICE_RETURN_IF_ERROR(group.AllReduce(
            "x", DType::kFloat32, data.data(), count, Reduction::kSum));
      }
      return {};
    });
    CheckAllName(statuses, dies);
  }
}

TEST_CASE("a rank that leaves tells all others why") {
  for (int run = 0; run < Rounds(12); ++run) {
    const Watchdog watchdog;
    const int size = 2 + run % 4;
    const int leaves = run % size;
    Groups groups = JoinAll(size, WiresOf(At(run)));
    const auto statuses = OnAll(groups, [&](Group& group) -> Status {
      float data = 1;
      SLUICE_RETURN_IF_ERROR(group.Barrier("before"));
      if (group.rank() == leaves) {
        group.Leave(DataLoss("no file 'x'"));
        group.Leave(DataLoss("later"));
        return group.status();
      }
      return group.AllReduce("x", DType::kFloat32, &data, 1, Reduction::kSum);
    });
    for (const Status& status : statuses) {
      CAPTURE(size);
      CHECK(status.code() == Code::kDataLoss);
      CHECK(status.message() ==
            RankName(leaves, size) + " failed: no file 'x'");
    }
  }
}

// Again and again, and whatever the others were in the middle of.
TEST_CASE("a group that is broken can be joined again") {
  std::mt19937 random(8);
  for (int run = 0; run < Rounds(12); ++run) {
    const Watchdog watchdog;
    const int size = 2 + run % 4;
    CAPTURE(size);
    GroupOptions options;
    options.may_join_again = true;
    options.overlap = Overlap::kOn;
    Groups groups = JoinAll(size, WiresOf(At(run)), options);
    for (int again = 0; again < 3; ++again) {
      const auto leaves = static_cast<int>(random() % At(size));
      const auto after = static_cast<int>(random() % 20);
      const auto statuses = OnAll(groups, [&](Group& group) -> Status {
        std::vector<float> begun(1 << 16, 1.F), data(5000, 1.F);
        for (int i = 0;; ++i) {
          if (group.rank() == leaves && i == after) {
            group.Leave(Cancelled("enough"));
            return group.Check();
          }
          // What is started is not waited for, as in a step that has failed.
          SLUICE_RETURN_IF_ERROR(group.Start(
              {.name = "begun", .data = begun.data(), .count = 1 << 16}));
          Status status = group.AllReduce("x", DType::kFloat32, data.data(),
                                          5000, Reduction::kMean);
          if (!status.ok()) return status;
          SLUICE_RETURN_IF_ERROR(group.Wait(begun.data()));
        }
      });
      for (const Status& status : statuses) {
        CAPTURE(status.message());
        CHECK(status.code() == Code::kCancelled);
      }
      CheckOk(OnAll(groups, [](Group& group) { return group.JoinAgain(0); }));
      CheckOk(OnAll(groups, [&](Group& group) -> Status {
        SLUICE_RETURN_IF_ERROR(group.Check());
        auto sum = static_cast<float>(group.rank());
        SLUICE_RETURN_IF_ERROR(
            group.AllReduce("sum", DType::kFloat32, &sum, 1, Reduction::kSum));
        const int wanted = size * (size - 1) / 2;
        return sum == static_cast<float>(wanted) ? Status()
                                                 : Internal("a wrong sum");
      }));
    }
  }
  Groups groups = JoinAll(2);
  groups[0]->Leave(Cancelled("enough"));
  CHECK(groups[0]->JoinAgain(0).code() == Code::kUnimplemented);
  CHECK_FALSE(groups[0]->Check().ok());
}

// Whose connections are whole, and show that it lives, until there are others.
TEST_CASE("who only looks, and calls nothing, joins again, too") {
  for (int run = 0; run < Rounds(12); ++run) {
    const Watchdog watchdog;
    const int size = 2 + run % 4;
    CAPTURE(size);
    GroupOptions options;
    options.may_join_again = true;
    Groups groups = JoinAll(size, WiresOf(At(run)), options);
    for (int again = 0; again < 3; ++again) {
      const int leaves = (run + again) % size;
      const auto statuses = OnAll(groups, [&](Group& group) -> Status {
        if (group.rank() == leaves) group.Leave(Cancelled("enough"));
        while (true) {
          SLUICE_RETURN_IF_ERROR(group.Check());
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      });
      for (const Status& status : statuses) {
        CAPTURE(status.message());
        CHECK(status.code() == Code::kCancelled);
      }
      CheckOk(OnAll(groups, [&](Group& group) -> Status {
        SLUICE_RETURN_IF_ERROR(group.JoinAgain(0));
        auto sum = static_cast<float>(group.rank());
        SLUICE_RETURN_IF_ERROR(
            group.AllReduce("sum", DType::kFloat32, &sum, 1, Reduction::kSum));
        const int wanted = size * (size - 1) / 2;
        return sum == static_cast<float>(wanted) ? Status()
                                                 : Internal("a wrong sum");
      }));
    }
  }
}

// One that is stopped is not: processes_test.
TEST_CASE("a rank that is long about something else is waited for") {
  for (const Wires wires : AllWires()) {
    const Watchdog watchdog;
    GroupOptions options;
    options.peer_timeout = std::chrono::milliseconds(20);
    Groups groups = JoinAll(3, wires, options);
    std::vector<float> sums(3, 1.F);
    CheckOk(OnAll(groups, [&](Group& group) -> Status {
      if (group.rank() == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      }
      return group.AllReduce("x", DType::kFloat32, &sums[At(group.rank())], 1,
                             Reduction::kSum);
    }));
    CHECK(sums == std::vector<float>(3, 3.F));
  }
}

}  // namespace sluice::dist
