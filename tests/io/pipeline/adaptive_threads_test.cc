// Threads of a map whose number is chosen while it runs: the choice against
// simulated maps, inputs and readers, and that a stream gives the same whatever
// is chosen when.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "io/pipeline/dataset_node.h"
#include "io/pipeline/map_stream.h"
#include "io/pipeline/map_threads.h"
#include "tests/support/numbers.h"

namespace sluice {
namespace {

using testing::Numbers;

// Seconds per element, on a machine where so many threads run at a time.
struct World {
  double map = 0, read = 0, reader = 0;
  double cores = 1e9;

  double MapOn(int threads) const {
    return map * std::max(1.0, threads / cores);
  }
  // From one element to the next.
  double Period(int threads) const {
    return std::max({reader, read, (MapOn(threads) + read) / threads});
  }
  MapWindow Window(int threads, double noise = 1) const {
    const int64_t n = 64;
    const double period = Period(threads) * noise;
    return {.elements = n,
            .seconds = n * period,
            .waited = n * std::max(0.0, period - reader),
            .mapping = n * MapOn(threads),
            .reading = n * read};
  }
  double BestPeriod(int most) const {
    double best = Period(1);
    for (int n = 2; n <= most; ++n) best = std::min(best, Period(n));
    return best;
  }
  // The least number that is not slower than the best by more than so much.
  int Fewest(int most, double slower) const {
    int n = 1;
    while (Period(n) > slower * BestPeriod(most)) ++n;
    return n;
  }
};

void Run(AdaptiveThreads* choice, const World& world, int windows) {
  for (int i = 0; i < windows; ++i) {
    choice->Next(world.Window(choice->threads()));
  }
}

TEST_CASE("as many threads as keep pace, within the limit") {
  std::mt19937 random(3);
  const auto draw = [&](double least, double most) {
    return least * std::pow(most / least,
                            std::uniform_real_distribution<>(0, 1)(random));
  };
  for (int round = 0; round < 3000; ++round) {
    const int most = 1 + static_cast<int>(random() % 40);
    const World world = {.map = draw(1e-5, 1e-1),
                         .read = draw(1e-7, 1e-3),
                         .reader = draw(1e-6, 1e-1),
                         .cores = draw(1, 64)};
    CAPTURE(most);
    CAPTURE(world.map);
    CAPTURE(world.read);
    CAPTURE(world.reader);
    CAPTURE(world.cores);
    AdaptiveThreads choice(most);
    CHECK(choice.threads() == 1);
    for (int i = 0; i < 40; ++i) {
      const int n = choice.Next(world.Window(choice.threads()));
      REQUIRE(n == choice.threads());
      REQUIRE(n >= 1);
      REQUIRE(n <= most);
    }
    int changes = 0;
    int64_t sum = 0;
    double elements = 0;
    for (int i = 0; i < 200; ++i) {
      const int before = choice.threads();
      elements += 1 / world.Period(before);
      sum += before;
      if (choice.Next(world.Window(before)) != before) ++changes;
    }
    // Trials of something better are rare, and cost little.
    CHECK(changes <= 24);
    CHECK(elements / 200 >= 0.85 / world.BestPeriod(most));
    // Not many more than are needed: one that is added doubles them.
    const int fewest = world.Fewest(most, 1.0);
    CHECK(static_cast<double>(sum) / 200 <= 2.2 * fewest + 1);
  }
}

TEST_CASE("a handful of windows is enough") {
  AdaptiveThreads choice(16);
  // Nobody but the map takes time: doubled each time.
  const World world = {.map = 0.01};
  std::vector<int> chosen;
  for (int i = 0; i < 6; ++i) {
    chosen.push_back(choice.Next(world.Window(choice.threads())));
  }
  CHECK(chosen == std::vector<int>{2, 4, 8, 16, 16, 16});
}

TEST_CASE("the number follows the map and its reader") {
  AdaptiveThreads choice(32);
  World world = {.map = 0.04, .read = 1e-5, .reader = 0.01};
  Run(&choice, world, 40);
  CHECK(choice.threads() >= 4);
  CHECK(choice.threads() <= 6);
  world.reader = 0.0025;  // wants four times as many
  Run(&choice, world, 40);
  CHECK(choice.threads() >= 16);
  CHECK(choice.threads() <= 20);
  world.map = 0.004;  // smaller pictures
  Run(&choice, world, 200);
  CHECK(choice.threads() >= 2);
  CHECK(choice.threads() <= 3);
  world.reader = 1;
  Run(&choice, world, 200);
  CHECK(choice.threads() == 1);
}

TEST_CASE("where the input is what takes the time one thread does") {
  AdaptiveThreads choice(8);
  Run(&choice, {.map = 1e-4, .read = 0.01, .reader = 1e-5}, 100);
  CHECK(choice.threads() <= 2);
}

TEST_CASE("threads that do not help are given up, and seldom tried again") {
  // One core: two threads are no faster than one.
  const World world = {.map = 0.01, .reader = 1e-4, .cores = 1};
  AdaptiveThreads choice(8);
  int64_t above = 0;
  for (int i = 0; i < 1000; ++i) {
    if (choice.Next(world.Window(choice.threads())) > 1) ++above;
  }
  CHECK(choice.threads() <= 2);
  CHECK(above > 0);
  CHECK(above <= 25);
}

// A reader that pauses between batches, behind a Prefetch: it waits for each
// batch, but would gain nothing by more threads.
TEST_CASE("a reader that waits without need has no more threads for long") {
  AdaptiveThreads choice(8);
  int64_t above = 0;
  for (int i = 0; i < 500; ++i) {
    const int n = choice.threads();
    // 32 elements of 10 ms each, then a pause until a second is over.
    const double busy = 0.32 / n;
    if (n > 1) ++above;
    choice.Next({.elements = 4 * 32,
                 .seconds = 4 * 1.0,
                 .waited = 4 * busy,
                 .mapping = 4 * 0.32,
                 .reading = 0});
  }
  CHECK(above <= 15);
}

TEST_CASE("noise does no harm") {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    const int most = 2 + static_cast<int>(random() % 15);
    const World world = {.map = 0.01, .read = 1e-5, .reader = 0.002};
    AdaptiveThreads choice(most);
    std::normal_distribution<> noise(1, 0.1);
    double elements = 0;
    for (int i = 0; i < 400; ++i) {
      const int n = choice.threads();
      REQUIRE(n >= 1);
      REQUIRE(n <= most);
      if (i >= 100) elements += 1 / world.Period(n);
      choice.Next(world.Window(n, std::clamp(noise(random), 0.5, 2.0)));
    }
    CHECK(elements / 300 >= 0.6 / world.BestPeriod(most));
  }
}

TEST_CASE("windows of nothing change nothing") {
  AdaptiveThreads choice(4);
  CHECK(choice.Next({}) == 1);
  CHECK(choice.Next({.elements = 4}) == 1);
  CHECK(choice.Next({.elements = 0, .seconds = 1, .waited = 1}) == 1);
  AdaptiveThreads one(1);
  Run(&one, {.map = 1}, 50);
  CHECK(one.threads() == 1);
}

TEST_CASE("what MapOptions say") {
  const MapThreads fixed = MapThreads::Of(3, 7);
  CHECK(fixed.begin == 3);
  CHECK(fixed.most == 3);
  CHECK(fixed.adapt == nullptr);
  const MapThreads chosen = MapThreads::Of(0, 5);
  CHECK(chosen.begin == 1);
  CHECK(chosen.most == 5);
  REQUIRE(chosen.adapt != nullptr);
  CHECK(chosen.adapt(World{.map = 1}.Window(1)) == 2);
  CHECK(MapThreads::Of(0, 0).most >= 1);
}

// --- the stream --------------------------------------------------------------

// Adds its key; numbers that are broken are errors.
struct Work {
  std::set<int64_t> broken;
  void operator()(Example& example, uint64_t key) const {
    const int64_t x = example["x"].IntAt(0);
    for (uint64_t i = HashKey(3, static_cast<uint64_t>(x)) % 4; i > 0; --i) {
      std::this_thread::yield();
    }
    if (broken.contains(x)) throw Error(Code::kDataLoss, std::to_string(x));
    example.Set("key", Tensor::Scalar(static_cast<int64_t>(key)));
  }
};

std::string Text(const Result<bool>& more, const Attempt& attempt) {
  if (!more.ok()) return more.status().message();
  if (!*more) return "end";
  if (!attempt.status.ok()) return "bad " + attempt.status.message();
  return std::to_string(attempt.example["x"].IntAt(0)) + " " +
         std::to_string(attempt.example["key"].IntAt(0)) + " at " +
         std::to_string(attempt.place);
}

TEST_CASE("a stream gives what one thread gives, whatever is chosen when") {
  std::mt19937 random(21);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  int64_t windows = 0;
  for (int round = 0; round < 150; ++round) {
    CAPTURE(round);
    const int64_t n = draw(0, 300);
    const Dataset numbers =
        draw(0, 1) == 0 ? Numbers(n) : Numbers(n).Filter([](const Example& e) {
          return e["x"].IntAt(0) % 3 != 1;
        });
    Work work;
    for (int64_t i = draw(0, 3); i > 0; --i) work.broken.insert(draw(0, n));
    const Opening opening = {.marks = true};
    SerialAttempts serial(numbers.node()->Open(opening), work, 4);
    auto choose = std::make_shared<std::mt19937>(random());
    const MapThreads threads = {
        .begin = static_cast<int>(draw(1, 6)),
        .most = 6,
        .adapt = [&windows, choose](const MapWindow& window) {
          ++windows;
          CHECK(window.elements >= 8);
          CHECK(window.seconds >= window.waited);
          return static_cast<int>((*choose)() % 9);  // also beyond the limits
        }};
    const Opening below = OnThread(opening);
    ParallelAttempts parallel(numbers.node()->Open(below), work, 4, threads,
                              below);
    ThrowIfError(serial.StartEpoch(7));
    ThrowIfError(parallel.StartEpoch(7));
    const int64_t stop = draw(0, 2 * n);
    for (int64_t i = 0;; ++i) {
      Attempt wanted, got;
      if (draw(0, 9) == 0) {
        const int64_t skip = draw(0, 20);
        CHECK(*parallel.Skip(skip) == *serial.Skip(skip));
      }
      const Result<bool> expected = serial.Next(&wanted);
      REQUIRE(Text(parallel.Next(&got), got) == Text(expected, wanted));
      if (!expected.ok() || !*expected) break;
      Mark mark, expected_mark;
      parallel.Save(&mark);
      serial.Save(&expected_mark);
      REQUIRE(mark == expected_mark);
      if (i != stop) continue;
      // Again from here, in another epoch.
      ThrowIfError(serial.StartEpoch(8));
      ThrowIfError(parallel.StartEpoch(8));
      MarkReader to(mark), expected_to(expected_mark);
      ThrowIfError(parallel.Restore(&to));
      ThrowIfError(serial.Restore(&expected_to));
    }
  }
  CHECK(windows > 300);
}

}  // namespace
}  // namespace sluice
