// What can happen to a rank of a job, scripted: at which step, and what it is
// about then.
#ifndef SLUICE_TESTS_DIST_COLLECTIVE_FAULTS_H_
#define SLUICE_TESTS_DIST_COLLECTIVE_FAULTS_H_

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "dist/collective/algorithms.h"
#include "dist/collective/group.h"
#include "engine/runtime/subtrees.h"
#include "tests/dist/collective/processes.h"

namespace sluice::dist::testing {

enum class Harm {
  kKill,  // SIGKILL
  kStop,  // SIGSTOP
  kSay    // none: says that it is there
};
enum class Phase {
  kBeforeStep,
  kAlone,
  kInReduction,
  kInTree,  // of virtual workers
  kInScatter,
  kInBroadcast,
  kInBarrier,
  kInJoin
};

struct Fault {
  int size, lost, step;
  Harm harm;
  Phase phase;
  Wires wires;
  Algorithm all_reduce;
  int after_us;  // within a collective: since its begin

  std::string Text() const {
    constexpr const char* kHarms[] = {"kill", "stop", "say"};
    constexpr const char* kPhases[] = {"before step",
                                       "alone in step",
                                       "in a reduction of step",
                                       "in a tree of step",
                                       "in a reduce-scatter of step",
                                       "in a broadcast of step",
                                       "in a barrier of step",
                                       "in a join of step"};
    return fmt::format("{} rank {} of {} {} {}, wires {}, by {}, {} us after",
                       kHarms[static_cast<int>(harm)], lost, size,
                       kPhases[static_cast<int>(phase)], step,
                       static_cast<int>(wires), NameOf(all_reduce), after_us);
  }
};

inline Fault RandomFault(std::mt19937& random) {
  Fault fault{};
  fault.size = 2 + static_cast<int>(random() % 4);
  fault.lost = static_cast<int>(random() % static_cast<unsigned>(fault.size));
  fault.step = static_cast<int>(random() % 5);
  fault.harm = static_cast<Harm>(random() % 2);
  fault.phase = static_cast<Phase>(random() % 8);
  fault.wires = WiresOf(random());
  fault.all_reduce = static_cast<Algorithm>(random() % 4);
  fault.after_us = static_cast<int>(random() % 3000);
  return fault;
}

// Does harm to its own process.
inline void Harmed(const Fault& fault, const Process::Say& say) {
  if (fault.harm == Harm::kSay) {
    say("here");
    return;
  }
  std::raise(fault.harm == Harm::kKill ? SIGKILL : SIGSTOP);
}

// A collective, within which the harm comes if it is this rank's and now.
template <typename Collective>
Status Within(bool now, const Fault& fault, const Process::Say& say,
              Collective collective) {
  if (!now) return collective();
  std::thread harm([&] {
    std::this_thread::sleep_for(std::chrono::microseconds(fault.after_us));
    Harmed(fault, say);
  });
  const Status status = collective();
  harm.join();
  return status;
}

// One rank after another is out of data before the others, who reduce once
// more.
inline Status JoinInTurn(int step, Group& group, float* data) {
  if (group.rank() != step % group.size()) {
    SLUICE_RETURN_IF_ERROR(
        group.AllReduce("more", DType::kFloat32, data, 100, Reduction::kMean));
  }
  return group.Follow().status();
}

// The training of a rank to which it happens, until it ends.
inline Status TrainUnder(const Fault& fault, Group& group,
                         const Process::Say& say) {
  std::vector<float> large(300'000, 1.F), small(100, 1.F);
  for (int step = 0;; ++step) {
    const bool now = group.rank() == fault.lost && step == fault.step;
    const auto at = [&](Phase phase) { return now && fault.phase == phase; };
    if (at(Phase::kBeforeStep)) Harmed(fault, say);
    SLUICE_RETURN_IF_ERROR(Within(at(Phase::kInReduction), fault, say, [&] {
      return group.AllReduce("large", DType::kFloat32, large.data(),
                             static_cast<int64_t>(large.size()),
                             Reduction::kMean);
    }));
    if (at(Phase::kAlone)) Harmed(fault, say);
    SLUICE_RETURN_IF_ERROR(group.AllReduce(
        "small", DType::kFloat32, small.data(), 100, Reduction::kMean));
    SLUICE_RETURN_IF_ERROR(Within(at(Phase::kInTree), fault, say, [&] {
      const std::vector<const void*> sums(
          SubtreesOf(LeavesOf(8, group.rank(), group.size())).size(),
          large.data());
      return group.SumTree("tree", DType::kFloat32, 8, sums, large.data(),
                           100'000);
    }));
    SLUICE_RETURN_IF_ERROR(Within(at(Phase::kInScatter), fault, say, [&] {
      return group.ReduceScatter("rows", DType::kFloat32, large.data(), 100'000,
                                 4, Reduction::kMean);
    }));
    SLUICE_RETURN_IF_ERROR(Within(at(Phase::kInBroadcast), fault, say, [&] {
      return group.Broadcast("state", large.data(), 4 * 100'000, step % 2);
    }));
    SLUICE_RETURN_IF_ERROR(Within(at(Phase::kInBarrier), fault, say,
                                  [&] { return group.Barrier("step"); }));
    SLUICE_RETURN_IF_ERROR(Within(at(Phase::kInJoin), fault, say, [&] {
      return JoinInTurn(step, group, small.data());
    }));
  }
}

// A line of a process, or "nothing" where none comes in time.
inline std::string LineWithin(const Process& process,
                              std::chrono::milliseconds time) {
  pollfd readable = {process.descriptor(), POLLIN, 0};
  const int ready = poll(&readable, 1, static_cast<int>(time.count()));
  return ready == 1 ? process.Line() : "nothing";
}

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_COLLECTIVE_FAULTS_H_
