// Reductions under way: every order of starts and waits, by several threads.
#include "dist/collective/reduce_queue.h"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

#include "tests/dist/collective/ranks.h"

namespace sluice::dist {
namespace {

// Notes the order of what is reduced, and that there is one at a time.
class Reducer {
 public:
  Status operator()(const ReduceQueue::Item& item) {
    CHECK(!busy_.exchange(true));
    auto& value = *static_cast<float*>(item.data);
    value *= 2;
    order_.push_back(std::string(item.name));
    if (pause_) std::this_thread::sleep_for(std::chrono::microseconds(50));
    busy_ = false;
    if (item.count == 13) throw std::runtime_error("a reducer's error");
    return item.count == 7 ? Unavailable("a peer is gone") : Status();
  }
  std::vector<std::string> order_;
  bool pause_ = false;

 private:
  std::atomic<bool> busy_{false};
};

struct Bell final : Waker {
  void Wake() override { rung.store(true); }
  std::atomic<bool> rung{false};
};

TEST_CASE("any order of starts, looks and waits") {
  std::mt19937 random(3);
  const testing::Watchdog watchdog;
  for (int trial = 0; trial < 300; ++trial) {
    Reducer reducer;
    reducer.pause_ = trial % 2 == 0;
    std::vector<float> data(1 + random() % 12);
    std::iota(data.begin(), data.end(), 1.0f);
    std::vector<std::string> names;
    for (size_t i = 0; i < data.size(); ++i) names.push_back(std::to_string(i));
    {
      ReduceQueue queue(std::ref(reducer));
      std::vector<size_t> under_way;
      const auto wait_for_any = [&] {
        const size_t at = random() % under_way.size();
        const size_t i = under_way[at];
        under_way.erase(under_way.begin() + static_cast<ptrdiff_t>(at));
        if (random() % 2 == 0) {
          Bell bell;
          if (!queue.Ready(&data[i], bell)) {
            // It is kept until it is woken.
            while (!bell.rung) std::this_thread::yield();
            CHECK(queue.Ready(&data[i], bell));
          }
        }
        CHECK(queue.Wait(&data[i]).ok());
        CHECK(data[i] == 2.0f * static_cast<float>(i + 1));
        // What is waited for is the caller's again.
        data[i] = -1;
      };
      for (size_t i = 0; i < data.size(); ++i) {
        CHECK(queue
                  .Start(
                      {names[i], DType::kFloat32, &data[i], 1, Reduction::kSum},
                      random() % 2 == 0)
                  .ok());
        under_way.push_back(i);
        while (!under_way.empty() && random() % 3 == 0) wait_for_any();
        if (random() % 5 == 0) {
          queue.Finish();
          CHECK(reducer.order_.size() == i + 1);
        }
      }
      // Some are not waited for: then its end does them.
      while (under_way.size() > random() % 3) wait_for_any();
    }
    CHECK(reducer.order_ == names);
  }
}

TEST_CASE("starts by one thread, waits by others") {
  const testing::Watchdog watchdog;
  constexpr int kThreads = 3, kEach = 200;
  Reducer reducer;
  ReduceQueue queue(std::ref(reducer));
  std::vector<float> data(kThreads * kEach, 1.0f);
  std::vector<std::atomic<bool>> started(data.size());
  testing::InThreads(kThreads + 1, [&](int thread) {
    if (thread == kThreads) {
      for (size_t i = 0; i < data.size(); ++i) {
        (void)queue
            .Start({"x", DType::kFloat32, &data[i], 1, Reduction::kSum},
                   i % 3 == 0)
            .ok();
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

TEST_CASE("an error is that of its own reduction") {
  for (const bool beside : {false, true}) {
    Reducer reducer;
    ReduceQueue queue(std::ref(reducer));
    float data[4] = {1, 1, 1, 1};
    const int64_t counts[4] = {1, 7, 13, 1};
    for (int i = 0; i < 4; ++i) {
      CHECK(queue
                .Start({"x", DType::kFloat32, &data[i], counts[i],
                        Reduction::kSum},
                       beside)
                .ok());
    }
    CHECK(queue.Wait(&data[3]).ok());
    CHECK(queue.Wait(&data[2]).message() == "a reducer's error");
    CHECK(queue.Wait(&data[1]).code() == Code::kUnavailable);
    CHECK(queue.Wait(&data[0]).ok());
    CHECK(queue.Wait(&data[0]).code() == Code::kInternal);
  }
}

}  // namespace
}  // namespace sluice::dist
