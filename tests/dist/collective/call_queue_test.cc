// Collectives under way: every order of starts and waits, by several threads.
#include "dist/collective/call_queue.h"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/dist/collective/ranks.h"

namespace sluice::dist {
namespace {

// Notes the order of what is done, and that there is one at a time.
class Doer {
 public:
  Status operator()(const CollectiveCall& call) {
    CHECK(!busy_.exchange(true));
    if (queue_ != nullptr) CHECK(queue_->Within());
    auto& value = *static_cast<float*>(call.data);
    value *= 2;
    order_.push_back(std::string(call.name));
    if (pause_) std::this_thread::sleep_for(std::chrono::microseconds(50));
    busy_ = false;
    if (call.count == 13) throw std::runtime_error("a doer's error");
    return call.count == 7 ? Unavailable("a peer is gone") : Status();
  }
  const CallQueue* queue_ = nullptr;
  std::vector<std::string> order_;
  bool pause_ = false;

 private:
  std::atomic<bool> busy_{false};
};

CollectiveCall CallOf(std::string_view name, float* data, int64_t count = 1) {
  return {.name = name, .data = data, .count = count};
}

struct Bell final : Waker {
  void Wake() override { rung.store(true); }
  std::atomic<bool> rung{false};
};

TEST_CASE("any order of starts, looks and waits") {
  std::mt19937 random(3);
  const testing::Watchdog watchdog;
  for (int trial = 0; trial < 300; ++trial) {
    Doer doer;
    doer.pause_ = trial % 2 == 0;
    std::vector<float> data(1 + random() % 12);
    std::iota(data.begin(), data.end(), 1.0f);
    std::vector<std::string> names;
    for (size_t i = 0; i < data.size(); ++i) names.push_back(std::to_string(i));
    {
      CallQueue queue(std::ref(doer));
      doer.queue_ = &queue;
      std::vector<size_t> under_way;
      const auto wait_for_any = [&] {
        const size_t at = random() % under_way.size();
        const size_t i = under_way[at];
        under_way.erase(under_way.begin() + static_cast<ptrdiff_t>(at));
        if (random() % 2 == 0) {
          Bell bell;
          if (!queue.IsOver(&data[i], bell)) {
            // It is kept until it is woken.
            while (!bell.rung) std::this_thread::yield();
            CHECK(queue.IsOver(&data[i], bell));
          }
        }
        CHECK(!queue.Within());
        CHECK(queue.Wait(&data[i]).ok());
        CHECK(data[i] == 2.0f * static_cast<float>(i + 1));
        // What is waited for is the caller's again.
        data[i] = -1;
      };
      for (size_t i = 0; i < data.size(); ++i) {
        CHECK(queue.Start(CallOf(names[i], &data[i]), random() % 2 == 0).ok());
        under_way.push_back(i);
        while (!under_way.empty() && random() % 3 == 0) wait_for_any();
        if (random() % 5 == 0) {
          queue.Finish();
          CHECK(doer.order_.size() == i + 1);
        }
      }
      // Some are not waited for: then its end does them.
      while (under_way.size() > random() % 3) wait_for_any();
    }
    CHECK(doer.order_ == names);
  }
}

TEST_CASE("starts by one thread, waits by others") {
  const testing::Watchdog watchdog;
  constexpr int kThreads = 3, kEach = 200;
  Doer doer;
  CallQueue queue(std::ref(doer));
  std::vector<float> data(kThreads * kEach, 1.0f);
  std::vector<std::atomic<bool>> started(data.size());
  testing::InThreads(kThreads + 1, [&](int thread) {
    if (thread == kThreads) {
      for (size_t i = 0; i < data.size(); ++i) {
        (void)queue.Start(CallOf("x", &data[i]), i % 3 == 0).ok();
        started[i] = true;
      }
      return;
    }
    for (int i = 0; i < kEach; ++i) {
      const int mine_of_all = i * kThreads + thread;
      const auto mine = static_cast<size_t>(mine_of_all);
      while (!started[mine]) std::this_thread::yield();
      const Status status = queue.Wait(&data[mine]);
      if (!status.ok()) data[mine] = -1;
    }
  });
  for (const float value : data) CHECK(value == 2.0f);
}

// Tensors without elements may be in one place: waits are those of the starts
// in their order.
TEST_CASE("of several with the same data the first is waited for first") {
  for (const bool beside : {false, true}) {
    Doer doer;
    CallQueue queue(std::ref(doer));
    float data = 1, other = 1;
    CHECK(queue.Start(CallOf("a", &data, 7), beside).ok());
    CHECK(queue.Start(CallOf("b", &other), beside).ok());
    CHECK(queue.Start(CallOf("c", &data), beside).ok());
    CHECK(queue.Wait(&data).code() == Code::kUnavailable);
    if (!beside) CHECK(doer.order_ == std::vector<std::string>{"a"});
    CHECK(queue.Wait(&other).ok());
    CHECK(queue.Wait(&data).ok());
    CHECK(doer.order_ == std::vector<std::string>{"a", "b", "c"});
  }
}

TEST_CASE("an error is that of its own call") {
  for (const bool beside : {false, true}) {
    Doer doer;
    CallQueue queue(std::ref(doer));
    float data[4] = {1, 1, 1, 1};
    const int64_t counts[4] = {1, 7, 13, 1};
    for (int i = 0; i < 4; ++i) {
      CHECK(queue.Start(CallOf("x", &data[i], counts[i]), beside).ok());
    }
    CHECK(queue.Wait(&data[3]).ok());
    CHECK(queue.Wait(&data[2]).message() == "a doer's error");
    CHECK(queue.Wait(&data[1]).code() == Code::kUnavailable);
    CHECK(queue.Wait(&data[0]).ok());
    CHECK(queue.Wait(&data[0]).code() == Code::kInternal);
  }
}

}  // namespace
}  // namespace sluice::dist
