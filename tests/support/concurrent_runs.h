// Runs of one session at the same time.
#ifndef SLUICE_TESTS_SUPPORT_CONCURRENT_RUNS_H_
#define SLUICE_TESTS_SUPPORT_CONCURRENT_RUNS_H_

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "graph/session/session.h"
#include "tests/support/scattered_graph.h"

namespace sluice::testing {

// `body(i)` in threads of their own, for 0 <= i < count.
inline void InThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  std::vector<std::string> errors(count);
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      try {
        body(i);
      } catch (const Error& error) {
        errors[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) CHECK(error == "");
}

inline bool Writes(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->mutates() > 0 && !node->op().initializes) return true;
  }
  return false;
}

// The graph's feeds, the k-th of some.
inline std::vector<Feed> FeedsOf(const ScatteredGraph& scattered, int k) {
  std::vector<Feed> feeds = scattered.random.Feeds();
  for (Feed& feed : feeds) {
    Tensor scaled(DType::kFloat64, feed.value.shape());
    for (int64_t i = 0; i < scaled.elements(); ++i) {
      scaled.data<double>()[i] = feed.value.At(i) * (k + 1) * 0.25;
    }
    feed.value = scaled.Cast(feed.value.dtype());
  }
  return feeds;
}

// Checks that runs of a session with these options, from several threads at the
// same time and with different feeds, have the bits of runs one by one in one
// with those. The graph writes nothing.
inline void CheckConcurrentRuns(const ScatteredGraph& scattered, uint32_t seed,
                                const SessionOptions& one_by_one,
                                const SessionOptions& at_once) {
  constexpr int kFeeds = 4;
  const std::vector<Output>& fetches = scattered.random.fetches();
  std::vector<std::vector<Tensor>> wanted;
  {
    Session one(scattered.graph, one_by_one);
    one.Initialize();
    for (int k = 0; k < kFeeds; ++k) {
      wanted.push_back(one.Run(FeedsOf(scattered, k), fetches));
    }
  }
  Session session(scattered.graph, at_once);
  session.Initialize();
  std::atomic<int> wrong = 0;
  InThreads(4, [&](int thread) {
    std::mt19937 random(seed * 31 + static_cast<uint32_t>(thread));
    for (int run = 0; run < 6; ++run) {
      const int k = static_cast<int>(random() % kFeeds);
      const std::vector<Tensor> got =
          session.Run(FeedsOf(scattered, k), fetches);
      for (size_t i = 0; i < got.size(); ++i) {
        if (!got[i].BitEqual(wanted[k][i])) ++wrong;
      }
    }
  });
  CHECK(wrong == 0);
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_CONCURRENT_RUNS_H_
