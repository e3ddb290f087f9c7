#include "graph/session/lanes.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "engine/runtime/local_rendezvous.h"
#include "engine/runtime/step_threads.h"

namespace sluice {
namespace {

// What two processes have that take part in the same runs.
struct Process {
  Lanes lanes;
  StepThreads threads;
  std::atomic<int> ended{0};
};

// One process's part of a run: tells the other its number and hears its.
struct Exchanging final : StepThreads::Part {
  Process* process = nullptr;
  const Lane* lane = nullptr;
  Rendezvous* rendezvous = nullptr;
  RunKey run;
  int me = 0;
  Exchange* exchange = nullptr;
  int64_t said = 0, heard = -1;
  Status status;

  static Edge EdgeFrom(int sender) {
    return {sender, 7, 8, sizeof(int64_t), "edge"};
  }
  bool Resume() override {
    const Edge theirs = EdgeFrom(1 - me);
    if (exchange == nullptr) {
      const auto deadline =
          std::chrono::steady_clock::now() + std::chrono::seconds(30);
      exchange = rendezvous->Join(run, 2, 2, deadline).ValueOrThrow();
      CHECK(exchange->StartSend(EdgeFrom(me), {&said}).ok());
      CHECK(exchange->StartReceive(theirs, {&heard}).ok());
    }
    if (!exchange->Received(theirs, *this)) return false;
    status = exchange->WaitReceived(theirs, {&heard});
    CHECK(exchange->WaitSent(EdgeFrom(me), {&said}).ok());
    rendezvous->Leave(run);
    return true;
  }
  void Ended() override {
    Process& home = *process;
    home.lanes.Give(*lane);
    ++home.ended;
  }
};

// Were lanes granted as they are asked for, each of two processes with one lane
// could give it to a run that waits for the other.
TEST_CASE("processes with few lanes run what waits for each other") {
  LocalRendezvous rendezvous;
  std::mt19937 random(11);
  for (int round = 0; round < 30; ++round) {
    constexpr int kRuns = 12;
    std::vector<RunKey> runs;
    for (int i = 0; i < kRuns; ++i) runs.push_back(rendezvous.NewRun());
    Process processes[2];
    std::deque<Exchanging> parts(2 * kRuns);
    std::vector<std::thread> askers;
    for (int p = 0; p < 2; ++p) {
      processes[p].lanes.Open(1 + round % 2, {});
      processes[p].threads.Reserve(1);
      std::vector<int> order;
      for (int i = 0; i < kRuns; ++i) order.push_back(i);
      std::shuffle(order.begin(), order.end(), random);
      for (const int i : order) {
        Exchanging& part =
            parts[static_cast<size_t>(p) * kRuns + static_cast<size_t>(i)];
        part.process = &processes[p];
        part.rendezvous = &rendezvous;
        part.run = runs[static_cast<size_t>(i)];
        part.me = p;
        part.said = 100 * p + i;
        askers.emplace_back([&part, i, pause = random() % 300] {
          std::this_thread::sleep_for(std::chrono::microseconds(pause));
          Process& home = *part.process;
          part.lane = &home.lanes.Take(static_cast<uint64_t>(i));
          home.threads.Start(part, std::chrono::steady_clock::now() +
                                       std::chrono::seconds(31));
        });
      }
    }
    for (std::thread& asker : askers) asker.join();
    for (Process& process : processes) {
      const Lanes::AllTurns over(process.lanes);
    }
    for (Process& process : processes) {
      while (process.ended < kRuns) std::this_thread::yield();
    }
    for (int i = 0; i < 2 * kRuns; ++i) {
      const Exchanging& part = parts[static_cast<size_t>(i)];
      CHECK(part.status.ok());
      CHECK(part.heard == 100 * (1 - part.me) + i % kRuns);
    }
  }
}

TEST_CASE("turns are granted in the order of places") {
  Lanes lanes;
  lanes.Open(1, {});
  std::vector<int> order;
  std::vector<std::thread> threads;
  for (int i = 9; i >= 0; --i) {
    threads.emplace_back([&, i] {
      Lane& lane = lanes.Take(static_cast<uint64_t>(i));
      order.push_back(i);  // who has the only lane is alone
      lanes.Give(lane);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(order.size() == 10);
  for (int i = 0; i < 10; ++i) CHECK(order[static_cast<size_t>(i)] == i);
}

}  // namespace
}  // namespace sluice
