// The search for the fastest plan, by a clock and engines that are simulated.
#include "kernels/cuda/runtime/plan_search.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

namespace sluice::cuda {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// What a library suggests for one kernel, and what trials of it cost and find.
struct Library {
  double* clock;
  std::vector<int64_t> engines;
  std::vector<double> making;  // seconds; of one that cannot be made, too
  std::vector<bool> can;
  std::vector<double> running;  // kNever: it fails when it is run
  std::vector<size_t> made, timed;

  Library(std::mt19937& random, double* time) : clock(time) {
    const auto below = [&](int n) { return static_cast<int>(random() % n); };
    const int count = below(20) == 0 ? 0 : below(44), kinds = 1 + below(12);
    for (int i = 0; i < count; ++i) {
      engines.push_back(below(kinds));
      // Every other engine is compiled for each plan.
      making.push_back(engines[i] % 2 == 0 ? 0.001 : 0.3 + below(1400) * 1e-3);
      can.push_back(below(5) != 0);
      running.push_back(below(20) == 0 ? kNever : 1e-5 * (1 + below(1000)));
    }
  }
  Trial AsTrial() {
    return {.make =
                [this](size_t i) {
                  made.push_back(i);
                  *clock += making[i];
                  return static_cast<bool>(can[i]);
                },
            .time =
                [this](size_t i) {
                  REQUIRE_FALSE(made.empty());
                  CHECK_EQ(made.back(), i);
                  timed.push_back(i);
                  *clock += 5 * std::min(running[i], 0.01);
                  return running[i];
                }};
  }
};

TEST_CASE("one of each engine comes first, then the rest, as suggested") {
  CHECK_EQ(SearchOrder({7, 7, 3, 7, 3, 1}),
           std::vector<size_t>{0, 2, 5, 1, 3, 4});
  CHECK(SearchOrder({}).empty());
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    double clock = 0;
    const Library library(random, &clock);
    const std::vector<size_t> order = SearchOrder(library.engines);
    const std::set<int64_t> kinds(library.engines.begin(),
                                  library.engines.end());
    std::set<int64_t> first;
    for (size_t i = 0; i < kinds.size(); ++i) {
      first.insert(library.engines[order[i]]);
    }
    CHECK_EQ(first, kinds);
    const auto split =
        order.begin() + static_cast<std::ptrdiff_t>(kinds.size());
    CHECK(std::is_sorted(order.begin(), split));
    CHECK(std::is_sorted(split, order.end()));
    CHECK_EQ(std::set<size_t>(order.begin(), order.end()).size(),
             library.engines.size());
  }
}

TEST_CASE("with time enough it is the fastest of all") {
  int none = 0, found = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    double clock = 0;
    Library library(random, &clock);
    SearchBudget budget(1e9, [&] { return clock; });
    const auto fastest =
        SearchFastest(library.engines, library.AsTrial(), budget);
    double least = kNever;
    for (size_t i = 0; i < library.engines.size(); ++i) {
      if (library.can[i]) least = std::min(least, library.running[i]);
    }
    const bool any = least < kNever;
    CHECK_EQ(fastest.has_value(), any);
    CHECK_EQ(library.made, SearchOrder(library.engines));
    ++(any ? found : none);
    if (!any) continue;
    CHECK(library.can[fastest->suggestion]);
    CHECK_EQ(library.running[fastest->suggestion], least);
    CHECK(fastest->measured);
  }
  CHECK(none > 0);
  CHECK(found > 50);
}

TEST_CASE("a model's searches keep to the budget, and the last ones measure") {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    double clock = 1000;
    SearchBudget budget(90, [&] { return clock; });
    int late = 0, compared = 0, searches = 0;
    for (int i = 0; i < 65; ++i) {
      Library library(random, &clock);
      const double begin = clock;
      const auto fastest =
          SearchFastest(library.engines, library.AsTrial(), budget);
      // More than its share only where nothing could be made before, or where
      // an engine's first trials show what they take.
      if (fastest && i > 10) CHECK(clock - begin <= 3 + 10 * 1.7);
      if (!fastest) continue;
      CHECK(library.can[fastest->suggestion]);
      ++searches;
      // The best of those that were tried.
      for (size_t other : library.timed) {
        CHECK(library.running[fastest->suggestion] <= library.running[other]);
      }
      if (i < 45 || library.engines.size() < 10) continue;
      ++late;
      if (library.timed.size() > 1) ++compared;
    }
    MESSAGE("took ", clock - 1000, " s; ", compared, " of ", late);
    // The last trial may have begun just before.
    CHECK(clock - 1000 <= 90 + 1.8);
    CHECK(searches > 40);
    // Where the first is compiled, that alone may take a late search's time.
    CHECK(3 * compared >= late);
  }
}

TEST_CASE("what fails when it is run is never chosen, however late it is") {
  for (size_t runs = 0; runs <= 6; ++runs) {
    CAPTURE(runs);
    double clock = 0;
    SearchBudget budget(90, [&] { return clock; });
    const std::vector<int64_t> engines = {1, 2, 3, 4, 5, 6};
    const auto fastest = SearchFastest(
        engines,
        {.make =
             [&](size_t) {
               clock += 2;  // two of them are its whole part
               return true;
             },
         .time = [&](size_t i) { return i == runs ? 1 : kNever; }},
        budget);
    REQUIRE_EQ(fastest.has_value(), runs < engines.size());
    if (fastest) CHECK_EQ(fastest->suggestion, runs);
  }
}

TEST_CASE("nor is it where no time is left") {
  SearchBudget budget(0, [] { return 0.0; });
  std::vector<size_t> made;
  const Trial trial = {
      .make =
          [&](size_t i) {
            made.push_back(i);
            return true;
          },
      .time = [](size_t i) { return i == 0 ? kNever : 1.0 / (1.0 + i); }};
  const auto fastest = SearchFastest({1, 1, 2}, trial, budget);
  REQUIRE(fastest);
  CHECK_EQ(fastest->suggestion, 1);
  CHECK_FALSE(fastest->measured);
  CHECK_EQ(made, std::vector<size_t>{0, 1});  // the next may be faster
  CHECK_FALSE(SearchFastest({1}, trial, budget));
}

TEST_CASE("without time left the library's own first that runs is taken") {
  double clock = 0;
  SearchBudget budget(90, [&] { return clock; });
  std::vector<size_t> made;
  const Trial slow = {.make =
                          [&](size_t i) {
                            made.push_back(i);
                            clock += 100;
                            return i > 0;
                          },
                      .time = [](size_t i) { return 1.0 / (1.0 + i); }};
  // One trial is as long as the budget: nothing to compare with.
  auto fastest = SearchFastest({5, 5, 6}, slow, budget);
  REQUIRE(fastest);
  CHECK_EQ(fastest->suggestion, 2);
  CHECK_FALSE(fastest->measured);
  made.clear();
  fastest = SearchFastest({5, 5, 6}, slow, budget);
  REQUIRE(fastest);
  CHECK_EQ(fastest->suggestion, 1);
  CHECK_EQ(made, std::vector<size_t>{0, 1});
  CHECK_FALSE(fastest->measured);
  // Another model, a minute later.
  clock += 59;
  CHECK_EQ(budget.Allowance(), 0);
  clock += 2;
  CHECK_EQ(budget.Allowance(), 3);
}

}  // namespace
}  // namespace sluice::cuda
