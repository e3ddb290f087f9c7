// What goes wrong between GPUs that meet through an emulated NCCL, at random
// exchanges: deaths, errors that NCCL finds by itself, calls that fail, GPUs
// that do not end, steps that differ. Every rank ends with an error that says
// whose it was, and none waits for ever.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "graph/builder.h"
#include "tests/kernels/cuda/emulation/nccl_job.h"
#include "tests/support/error_text.h"

namespace sluice::testing {
namespace {

using cuda::emulation::NcclFault;
using cuda::emulation::SetNcclDelays;
using cuda::emulation::SetNcclFault;
using dist::NcclGroup;
using std::chrono::milliseconds;

// Runs a step of three exchanges until it fails, or so many times. The error.
std::string RunUntil(int rank, const std::shared_ptr<Collective>& group,
                     int runs) {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {4});
  const std::vector<Output> results = {AllReduce(x + x, Reduction::kSum),
                                       AllReduce(x * x, Reduction::kSum),
                                       AllGather(x)};
  SessionOptions options;
  options.devices = {fmt::format("/gpu:{}", rank)};
  options.collective = group;
  Session session(graph, options);
  const Tensor fed = Tensor::Array<float>({4}, {1, 2, 3, 4});
  return ErrorOf([&] {
    for (int run = 0; run < runs; ++run) {
      const std::vector<Tensor> got = session.Run({{x, fed}}, results);
      for (const int64_t i : {0, 3}) {
        // A sum that is not whole must have been an error.
        const double wanted = 2.0 * static_cast<double>(i + 1) * group->size();
        if (got[0].At(i) != wanted) throw Error(Code::kInternal, "wrong");
      }
    }
  });
}

void CheckNamed(const std::vector<std::string>& errors, int culprit) {
  const auto size = static_cast<int>(errors.size());
  for (const std::string& error : errors) {
    CHECK(Contains(error, fmt::format("rank {} of {}", culprit, size)));
  }
}

TEST_CASE("a rank that dies at any exchange is named by all, and none hangs") {
  if (OnRealGpu()) return;
  std::mt19937 random(3);
  for (int i = 0; i < 24; ++i) {
    CAPTURE(i);
    const int size = 2 + static_cast<int>(random() % 3);
    const int dies = static_cast<int>(random() % static_cast<unsigned>(size));
    DeathVerdict verdict;
    SetNcclDelays(i % 2);
    SetNcclFault({.kind = NcclFault::kHangs,
                  .rank = dies,
                  .after = static_cast<int64_t>(random() % 12),
                  .then = [&] {
                    verdict.Decide(Unavailable(
                        fmt::format("rank {} of {} has ended", dies, size)));
                  }});
    std::vector<std::unique_ptr<DeathWatch>> watches;
    for (int rank = 0; rank < size; ++rank) {
      watches.push_back(std::make_unique<DeathWatch>(verdict, rank, size));
    }
    std::vector<std::string> errors(static_cast<size_t>(size));
    OnEachGpu(
        size,
        [&](int rank, std::shared_ptr<NcclGroup> group) {
          errors[static_cast<size_t>(rank)] = RunUntil(rank, group, 100);
        },
        [&](int rank) {
          return NcclGroup::Options{
              .watch = watches[static_cast<size_t>(rank)].get()};
        });
    CheckNamed(errors, dies);
  }
  SetNcclDelays(0);
}

// By the groups' own ways: the rank tells the others, which is all they hear.
TEST_CASE(
    "what NCCL finds wrong on one rank, and a call that fails, are named "
    "by all") {
  if (OnRealGpu()) return;
  std::mt19937 random(4);
  for (int i = 0; i < 16; ++i) {
    CAPTURE(i);
    const int size = 2 + static_cast<int>(random() % 3);
    const int culprit =
        static_cast<int>(random() % static_cast<unsigned>(size));
    const bool refuses = i % 2 == 1;
    // Calls are made for the first run and the recording alone.
    SetNcclFault(
        {.kind = refuses ? NcclFault::kRefuses : NcclFault::kFails,
         .rank = culprit,
         .after = static_cast<int64_t>(random() % (refuses ? 3 : 12))});
    std::vector<std::string> errors(static_cast<size_t>(size));
    OnEachGpu(
        size,
        [&](int rank, std::shared_ptr<NcclGroup> group) {
          errors[static_cast<size_t>(rank)] = RunUntil(rank, group, 100);
        },
        [&](int) { return NcclGroup::Options{.naming = milliseconds(100)}; });
    if (!refuses) {
      CheckNamed(errors, culprit);
      for (const std::string& error : errors) CHECK(Contains(error, "NCCL"));
      // Whether it is lost is asked of the rank's GPU.
      CHECK(cuda::emulation::QueriedDevice() == culprit);
      continue;
    }
    for (int rank = 0; rank < size; ++rank) {
      const std::string& error = errors[static_cast<size_t>(rank)];
      CHECK(Contains(error, "NCCL, all-"));
      if (rank == culprit) continue;
      CHECK(Contains(error, fmt::format("rank {} of {}", culprit, size)));
    }
  }
}

TEST_CASE("a process whose GPU does not end what it is told to gives up") {
  if (OnRealGpu()) return;
  DeathVerdict verdict;
  std::vector<std::unique_ptr<DeathWatch>> watches;
  for (int rank = 0; rank < 2; ++rank) {
    watches.push_back(std::make_unique<DeathWatch>(verdict, rank, 2));
  }
  SetNcclFault({.kind = NcclFault::kStays, .rank = 1, .after = 4, .then = [&] {
                  verdict.Decide(Unavailable("rank 0 of 2 has ended"));
                }});
  std::string line;
  OnEachGpu(
      2,
      [&](int rank, std::shared_ptr<NcclGroup> group) {
        const std::string error = RunUntil(rank, group, 100);
        CHECK(Contains(error, "rank 0 of 2 has ended"));
      },
      [&](int rank) {
        NcclGroup::Options options;
        options.watch = watches[static_cast<size_t>(rank)].get();
        // The other's GPU ends what it is told to, though it may take a while.
        if (rank == 0) return options;
        options.abort_timeout = milliseconds(200);
        options.give_up = [&line](std::string_view said) {
          line = said;
          cuda::emulation::EndNcclFault();  // in place of the process's end
        };
        return options;
      });
  CHECK(line ==
        "rank 1 of 2: the GPU has not ended what NCCL was told to abort 200 ms "
        "ago; this process ends");
}

TEST_CASE("ranks at different steps are named before anything is exchanged") {
  if (OnRealGpu()) return;
  std::vector<std::string> errors(3);
  const auto before = cuda::emulation::NcclExchanges();
  OnEachGpu(3, [&](int rank, std::shared_ptr<NcclGroup> group) {
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {4});
    const Output first = AllReduce(x, Reduction::kSum, "first");
    const Output second = AllReduce(
        x + x, rank == 2 ? Reduction::kSum : Reduction::kMean, "second");
    SessionOptions options;
    options.devices = {fmt::format("/gpu:{}", rank)};
    options.collective = std::move(group);
    Session session(graph, options);
    errors[static_cast<size_t>(rank)] = ErrorOf([&] {
      session.Run({{x, Tensor::Array<float>({4}, {1, 2, 3, 4})}},
                  std::vector<Output>{first, second});
    });
  });
  for (const std::string& error : errors) {
    CHECK(Contains(error,
                   "ranks are at different steps: rank 0 of 3 at "
                   "AllReduceStart 'second' of float32[4], the mean, rank 2 at "
                   "AllReduceStart 'second' of float32[4]"));
  }
  CHECK(cuda::emulation::NcclExchanges().done == before.done);
}

// What each of two ranks says that cannot join.
std::vector<std::string> JoinErrors(
    const std::function<const DeviceGroups*(int rank)>& by,
    const std::function<void(int rank, NcclGroup::Options* options)>& change) {
  const Gpus gpus(kAllPeers, 2);
  const dist::testing::Watchdog watchdog;
  dist::testing::Groups hosts = dist::testing::JoinAll(2);
  std::vector<std::string> errors(2);
  dist::testing::InThreads(2, [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    NcclGroup::Options options = {.device = rank, .local_size = 2};
    change(rank, &options);
    const auto joined =
        NcclGroup::Join(std::move(hosts[i]), *by(rank), options);
    errors[i] = joined.ok() ? "(no error)" : joined.status().message();
  });
  return errors;
}

TEST_CASE("ranks that wait for each other for ever join") {
  if (OnRealGpu()) return;
  for (const std::string& error :
       JoinErrors([](int) { return &cuda::emulation::EmulatedNccl(); },
                  [](int, NcclGroup::Options* options) {
                    options->join_timeout = milliseconds::max();
                  })) {
    CHECK(error == "(no error)");
  }
}

TEST_CASE("all ranks say why one cannot join") {
  if (OnRealGpu()) return;
  const DeviceGroups& nccl = cuda::emulation::EmulatedNccl();
  const auto emulated = [&](int) { return &nccl; };
  static DeviceGroups without;
  without = nccl;
  without.check = [] {
    return Unavailable("libnccl.so.2 cannot be loaded: it is absent");
  };
  for (const std::string& error :
       JoinErrors([&](int rank) { return rank == 1 ? &without : &nccl; },
                  [](int, NcclGroup::Options*) {})) {
    CHECK(error ==
          "--transport nccl: rank 1 of 2: libnccl.so.2 cannot be loaded: it is "
          "absent");
  }
  for (const std::string& error :
       JoinErrors(emulated, [](int rank, NcclGroup::Options*options) {
         options->local_size = 1;
         options->allow_plaintext = rank == 0;
       })) {
    CHECK(Contains(error, "--allow-plaintext"));
  }
  // NCCL refuses two ranks on one GPU.
  for (const std::string& error : JoinErrors(
           emulated,
           [](int, NcclGroup::Options* options) { options->device = 0; })) {
    CHECK(Contains(error, "NCCL, joining: invalid usage"));
  }
  // One that does not come.
  static DeviceGroups fails;
  fails = nccl;
  fails.join = [](const DevicePlace&) -> Result<std::unique_ptr<DeviceGroup>> {
    return Unavailable("no memory on the GPU");
  };
  for (const std::string& error :
       JoinErrors([&](int rank) { return rank == 1 ? &fails : &nccl; },
                  [](int, NcclGroup::Options*) {})) {
    CHECK(Contains(error, "rank 1 of 2"));
    CHECK(Contains(error, "no memory on the GPU"));
  }
}

}  // namespace
}  // namespace sluice::testing
