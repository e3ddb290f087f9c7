#include "engine/runtime/rendezvous.h"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "engine/runtime/step_threads.h"

namespace sluice {
namespace {

constexpr auto kNever = std::chrono::steady_clock::time_point::max();

TEST_CASE("tensors arrive whole, sent before or after the wait") {
  LocalRendezvous rendezvous({8, 8, 0});
  for (int step = 0; step < 500; ++step) {
    rendezvous.Begin(kNever);
    int64_t got[2] = {-1, -1};
    std::thread receiver([&] {
      CHECK(rendezvous.Recv(1, &got[1]).ok());
      CHECK(rendezvous.Recv(0, &got[0]).ok());
      CHECK(rendezvous.Recv(2, nullptr).ok());
    });
    int64_t value = step;
    CHECK(rendezvous.Send(0, &value).ok());
    if (step % 50 == 0) {  // long enough for the receiver to sleep
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    value = step + 1000;
    CHECK(rendezvous.Send(1, &value).ok());
    value = -7;  // the sender may reuse its buffer
    CHECK(rendezvous.Send(2, nullptr).ok());
    receiver.join();
    CHECK(got[0] == step);
    CHECK(got[1] == step + 1000);
  }
}

TEST_CASE("an abort wakes every waiter with the first status") {
  for (int pause_ms : {0, 5}) {
    LocalRendezvous rendezvous(std::vector<size_t>(4, 4));
    rendezvous.Begin(kNever);
    std::vector<std::thread> waiters;
    std::vector<Status> statuses(4);
    for (int i = 0; i < 4; ++i) {
      waiters.emplace_back([&, i] {
        int32_t value;
        statuses[i] = rendezvous.Recv(i, &value);
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    rendezvous.Abort(DataLoss("first"));
    rendezvous.Abort(Internal("second"));
    for (std::thread& waiter : waiters) waiter.join();
    for (const Status& status : statuses) {
      CHECK(status.code() == Code::kDataLoss);
      CHECK(status.message() == "first");
    }
    // The next step begins clean.
    rendezvous.Begin(kNever);
    const int32_t sent = 5;
    int32_t got = 0;
    CHECK(rendezvous.Send(0, &sent).ok());
    CHECK(rendezvous.Recv(0, &got).ok());
    CHECK(got == 5);
  }
}

TEST_CASE("a deadline ends a wait") {
  LocalRendezvous rendezvous({4});
  rendezvous.Begin(std::chrono::steady_clock::now() +
                   std::chrono::milliseconds(20));
  int32_t value;
  CHECK(rendezvous.Recv(0, &value).code() == Code::kDeadlineExceeded);
}

TEST_CASE("step threads run every part side by side, each round once") {
  StepThreads threads;
  for (int round = 0; round < 300; ++round) {
    const int parts = 1 + round % 4;
    std::vector<std::atomic<int>> ran(4);
    std::atomic<int> arrived{0};
    threads.Run(parts, [&](int64_t i, int64_t) {
      ++ran[i];
      // Each part waits for the others: serial execution would hang here.
      ++arrived;
      while (arrived < parts) std::this_thread::yield();
    });
    for (int i = 0; i < 4; ++i) CHECK(ran[i] == (i < parts ? 1 : 0));
  }
}

}  // namespace
}  // namespace sluice
