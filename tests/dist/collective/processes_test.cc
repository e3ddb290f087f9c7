// Ranks that are processes of their own: what memory they share, and what the
// others are told of one that is killed or stopped.
#include <doctest/doctest.h>

#include <bit>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dist/collective/group.h"
#include "engine/dtype.h"
#include "tests/dist/collective/processes.h"
#include "tests/dist/collective/ranks.h"

namespace sluice::dist {
namespace {

using testing::AllWires;
using testing::Process;
using testing::Processes;
using testing::Start;
using testing::Watchdog;
using testing::Wires;

size_t At(int rank) {
  return static_cast<size_t>(rank);
}

// Sums of many sizes; says the bits.
Status Sum(Group& group, const Process::Say& say) {
  uint64_t hash = 0;
  for (int64_t run = 0; run < 12; ++run) {
    const int64_t count = run * run * run * 1009 % 300'007;
    std::vector<float> data(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      data[static_cast<size_t>(i)] =
          1.F / static_cast<float>(1 + i % 1000 + group.rank());
    }
    SLUICE_RETURN_IF_ERROR(group.AllReduce("x", DType::kFloat32, data.data(),
                                           count, Reduction::kMean));
    for (const float x : data) hash = hash * 31 + std::bit_cast<uint32_t>(x);
  }
  say(std::to_string(hash));
  return {};
}

// Reduces on and on, and says so once it has begun.
Status Forever(Group& group, const Process::Say& say) {
  std::vector<float> data(500'000, 1.F);
  for (int run = 0;; ++run) {
    SLUICE_RETURN_IF_ERROR(group.AllReduce("x", DType::kFloat32, data.data(),
                                           static_cast<int64_t>(data.size()),
                                           Reduction::kMean));
    if (run == 3) say("begun");
  }
}

TEST_CASE("processes get the same bits whatever their data goes through") {
  const Watchdog watchdog(std::chrono::minutes(2));
  for (int size = 2; size <= 4; ++size) {
    std::string want;
    for (const Wires wires : AllWires()) {
      const Processes processes =
          Start(size, wires, std::chrono::seconds(50), Sum);
      for (const auto& process : processes) {
        const std::string line = process->Line();
        CHECK(process->Line() == "ok");
        if (want.empty()) want = line;
        CHECK(line == want);
      }
    }
  }
}

// A job that has begun, of which a rank is lost by a signal somewhere within a
// collective.
struct Job {
  Job(int size, Wires wires, int the_lost, std::chrono::milliseconds timeout)
      : lost(the_lost), processes(Start(size, wires, timeout, Forever)) {
    for (const auto& process : processes) REQUIRE(process->Line() == "begun");
    std::this_thread::sleep_for(std::chrono::milliseconds(size + 2 * lost));
  }
  void Lose(int signal) const { kill(processes[At(lost)]->pid(), signal); }
  // Waits for what the others say.
  void CheckNamed(Code code) const {
    const std::string name = RankName(lost, static_cast<int>(processes.size()));
    for (size_t rank = 0; rank < processes.size(); ++rank) {
      if (rank == At(lost)) continue;
      const std::string line = processes[rank]->Line();
      CAPTURE(line);
      CHECK(line.find(CodeName(code)) != std::string::npos);
      CHECK(line.find(name) != std::string::npos);
    }
  }

  const int lost;
  const Processes processes;
};

TEST_CASE("a process that is killed is named by all others") {
  const Watchdog watchdog(std::chrono::minutes(2));
  for (const Wires wires : AllWires()) {
    for (int size = 2; size <= 4; ++size) {
      for (int lost = 0; lost < size; ++lost) {
        const Job job(size, wires, lost, std::chrono::seconds(50));
        job.Lose(SIGKILL);
        job.CheckNamed(Code::kUnavailable);
      }
    }
  }
}

TEST_CASE("a process that is stopped is named by all others") {
  const Watchdog watchdog(std::chrono::minutes(2));
  std::vector<std::unique_ptr<Job>> jobs;
  for (const Wires wires : AllWires()) {
    for (int size = 2; size <= 3; ++size) {
      jobs.push_back(std::make_unique<Job>(size, wires, size / 2,
                                           std::chrono::milliseconds(100)));
      jobs.back()->Lose(SIGSTOP);
    }
  }
  for (const auto& job : jobs) job->CheckNamed(Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace sluice::dist
