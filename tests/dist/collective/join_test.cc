// Ranks that have run out of data, at random points of random programs.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/collective/group.h"
#include "engine/dtype.h"
#include "engine/runtime/subtrees.h"
#include "engine/tensor.h"
#include "tests/dist/collective/hosts.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/collective/sums.h"
#include "tests/support/sanitizers.h"

namespace sluice::dist {
namespace {

using namespace testing;  // NOLINT: of the job's test double

// An all-reduce: what each rank has, and what those that took part got.
struct Step {
  Reduction how;
  std::vector<Tensor> given, got;
};

// A number of them, and how many each rank has data for.
struct Phase {
  std::vector<Step> steps;
  std::vector<int> data;
};

Phase RandomPhase(int size, std::mt19937& random) {
  constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64,
                               DType::kFloat16, DType::kBFloat16,
                               DType::kInt32,   DType::kInt64};
  Phase phase;
  const int most = static_cast<int>(random() % 9);
  for (int rank = 0; rank < size; ++rank) {
    // Often at the same moment.
    const bool late = random() % 3 == 0;
    phase.data.push_back(
        late ? most
             : static_cast<int>(random() % static_cast<size_t>(most + 1)));
  }
  for (int i = 0; i < most; ++i) {
    Step step;
    const DType dtype = kDTypes[random() % 6];
    step.how = IsFloating(dtype) && random() % 2 == 0 ? Reduction::kMean
                                                      : Reduction::kSum;
    const size_t counts[] = {1, 9, 5000, 100'000};
    const auto count = static_cast<int64_t>(random() % counts[random() % 4]);
    step.given = RandomTensors(dtype, count, size, random);
    for (int rank = 0; rank < size; ++rank) {
      step.got.push_back(step.given[At(rank)].Clone());
      if (phase.data[At(rank)] <= i) {
        step.given[At(rank)] = Tensor::Zeros(dtype, {count});
      }
    }
    phase.steps.push_back(std::move(step));
  }
  return phase;
}

// With one or two started before they are waited for.
Status Reduce(Group& group, std::vector<Step>& steps, int data) {
  const size_t rank = At(group.rank());
  for (int i = 0; i < data; i += 2) {
    Step* const pair[] = {&steps[At(i)],
                          i + 1 < data ? &steps[At(i + 1)] : nullptr};
    for (Step* const step : pair) {
      if (step == nullptr) continue;
      Tensor& tensor = step->got[rank];
      SLUICE_RETURN_IF_ERROR(group.Start({.name = "x",
                                          .dtype = tensor.dtype(),
                                          .data = tensor.raw(),
                                          .count = tensor.elements(),
                                          .how = step->how}));
    }
    for (Step* const step : pair) {
      if (step == nullptr) continue;
      SLUICE_RETURN_IF_ERROR(group.Wait(step->got[rank].raw()));
    }
  }
  return {};
}

void Check(const Phase& phase) {
  for (size_t i = 0; i < phase.steps.size(); ++i) {
    const Step& step = phase.steps[i];
    const Tensor* first = nullptr;
    for (size_t rank = 0; rank < phase.data.size(); ++rank) {
      if (phase.data[rank] <= static_cast<int>(i)) continue;
      CHECK(Wrong(step.got[rank], step.given, step.how) == 0);
      if (first == nullptr) first = &step.got[rank];
      CHECK(step.got[rank].BitEqual(*first));
    }
  }
}

// Of those with the most data the highest rank.
int LastOf(const Phase& phase) {
  int last = 0;
  for (size_t rank = 0; rank < phase.data.size(); ++rank) {
    if (phase.data[rank] >= phase.data[At(last)]) last = static_cast<int>(rank);
  }
  return last;
}

}  // namespace

TEST_CASE("who has no more data gives zeros until all have none") {
  std::mt19937 random(21);
  for (int job = 0; job < 84; ++job) {
    const int size = 1 + job % 7;
    const Watchdog watchdog;
    GroupOptions options;
    options.overlap = job % 2 == 0 ? Overlap::kOn : Overlap::kOff;
    Groups groups = JoinOn(RandomHosts(size, random), kAllAlgorithms[job % 4],
                           WiresOf(At(job) / 6), options);
    std::vector<Phase> phases;
    for (int i = 0; i < 4; ++i) phases.push_back(RandomPhase(size, random));
    std::vector<std::vector<int>> last(At(size));
    const auto seed = static_cast<unsigned>(random());
    CheckOk(OnAll(groups, [&](Group& group) -> Status {
      std::mt19937 own(seed + static_cast<unsigned>(group.rank()));
      for (Phase& phase : phases) {
        const int data = phase.data[At(group.rank())];
        std::this_thread::sleep_for(
            std::chrono::microseconds(own() % 4 == 0 ? own() % 2000 : 0));
        SLUICE_RETURN_IF_ERROR(Reduce(group, phase.steps, data));
        SLUICE_ASSIGN_OR_RETURN(const int was, group.Follow());
        last[At(group.rank())].push_back(was);
        // Now and then they follow once more at once.
        if (phase.steps.size() % 2 == 0) continue;
        int64_t mine = group.rank();
        std::vector<int64_t> all(At(size));
        SLUICE_RETURN_IF_ERROR(
            group.AllGather("all", &mine, sizeof mine, all.data()));
        for (int rank = 0; rank < size; ++rank) CHECK(all[At(rank)] == rank);
      }
      return {};
    }));
    for (size_t i = 0; i < phases.size(); ++i) {
      CAPTURE(size);
      Check(phases[i]);
      for (const auto& of_rank : last) CHECK(of_rank[i] == LastOf(phases[i]));
    }
  }
}

TEST_CASE("whoever has joined takes part in all-reduces alone") {
  std::mt19937 random(22);
  for (int job = 0; job < 60; ++job) {
    const int size = 2 + job % 4;
    const int what = job / 4 % 7;
    const int odd = static_cast<int>(random() % At(size));
    const Watchdog watchdog;
    CAPTURE(size);
    CAPTURE(what);
    Groups groups = JoinAll(size, WiresOf(random()));
    CheckMismatch(groups, [&](Group& group) -> Status {
      std::vector<float> data(64, 1.F), more(64);
      const auto reduce = [&] {
        return group.AllReduce("x", DType::kFloat32, data.data(), 8,
                               Reduction::kMean);
      };
      SLUICE_RETURN_IF_ERROR(reduce());
      if (group.rank() == odd) return group.Follow().status();
      SLUICE_RETURN_IF_ERROR(reduce());
      std::vector<const void*> sums(16, data.data());
      sums.resize(SubtreesOf(LeavesOf(16, group.rank(), size)).size());
      switch (what) {
        case 0:
          return group.Barrier("y");
        case 1:
          return group.Broadcast("y", data.data(), 8, 0);
        case 2:
          return group.AllGather("y", data.data(), 4, more.data());
        case 3:
          return group.AllToAll("y", data.data(), 4, more.data());
        case 4:
          return group.ReduceScatter("y", DType::kFloat32, data.data(), 8, 1,
                                     Reduction::kSum);
        case 5:
          return group.SumTree("y", DType::kFloat32, 16, sums, more.data(), 8);
        default:
          // All-reduces that differ, with who has joined in between or not.
          data.resize(100'000);
          if (size == 2) return group.Barrier("y");
          return group.AllReduce(group.rank() == (odd + 1) % size ? "y" : "z",
                                 DType::kFloat32, data.data(), 70'000,
                                 Reduction::kSum);
      }
    });
  }
}

TEST_CASE("a rank that ends while others have joined is named by all") {
  std::mt19937 random(23);
  for (int run = 0; run < 40; ++run) {
    const Watchdog watchdog;
    const int size = 2 + run % 4;
    const int dies = static_cast<int>(random() % At(size));
    std::vector<int> data;
    for (int rank = 0; rank < size; ++rank) {
      data.push_back(static_cast<int>(random() % 6));
    }
    Groups groups = JoinAll(size, WiresOf(random()));
    const auto statuses = OnAll(groups, [&](Group& group) -> Status {
      const int rank = group.rank();
      std::vector<float> values(run % 2 == 0 ? 10 : 200'000, 1.F);
      for (int i = 0; i < data[At(rank)]; ++i) {
        SLUICE_RETURN_IF_ERROR(group.AllReduce(
            "x", DType::kFloat32, values.data(),
            static_cast<int64_t>(values.size()), Reduction::kSum));
      }
      if (rank == dies) {
        groups[At(rank)].reset();
        return {};
      }
      return group.Follow().status();
    });
    CheckAllName(statuses, dies);
  }
}

// The thread sanitizer has memory for each byte that a call is given.
#ifndef SLUICE_THREAD_SANITIZER
// The rank with data has none: where it is said to be nobody may read.
TEST_CASE("zeros take no memory that nothing has come for") {
  const Watchdog watchdog;
  constexpr size_t kBytes = size_t{6} << 30;
  void* const nowhere =
      mmap(nullptr, kBytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(nowhere != MAP_FAILED);
  const auto most = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;  // KiB
  };
  GroupOptions options;
  options.overlap = Overlap::kOff;
  options.all_reduce = Algorithm::kRing;
  Groups groups = JoinAll(2, Wires::kTcp, options);
  const auto before = most();
  const auto statuses = OnAll(groups, [&](Group& group) -> Status {
    if (group.rank() == 1) return group.Follow().status();
    return group.AllReduce("x", DType::kInt64, nowhere, kBytes / 8,
                           Reduction::kSum);
  });
  CHECK_FALSE(statuses[0].ok());
  CHECK_FALSE(statuses[1].ok());
  CHECK(most() - before < 1 << 20);
  munmap(nowhere, kBytes);
}
#endif

}  // namespace sluice::dist
