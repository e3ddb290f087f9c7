// Random graphs over two to four devices, with tensors carried by a rendezvous
// that delays, reorders and loses: the bits of one device, or the error that
// was planted.
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "engine/runtime/local_rendezvous.h"
#include "engine/runtime/trace.h"
#include "graph/session/session.h"
#include "tests/support/ended_runs.h"
#include "tests/support/error_text.h"
#include "tests/support/sanitizers.h"
#include "tests/support/scattered_graph.h"
#include "tests/support/wild_rendezvous.h"

namespace sluice::testing {
namespace {

std::shared_ptr<WildRendezvous> Wild(const WildRendezvous::Options& options) {
  return std::make_shared<WildRendezvous>(options);
}

void CheckKept(const WildRendezvous& wild) {
  CHECK(wild.counts().unsettled == 0);
  CHECK(wild.counts().misused == 0);
}

TEST_CASE("1,000 random graphs give one device's bits on several") {
  int carried = 0;
  for (uint32_t seed = 1; seed <= Rounds(1000u); ++seed) {
    CAPTURE(seed);
    const ScatteredGraph gathered(seed, {"/cpu:0"});
    Session single(gathered.graph, gathered.Options(/*fuse=*/false));
    const ScatteredGraph scattered(seed, SomeCpus(seed));
    const auto wild = Wild({.seed = seed, .delay_us = 20});
    Session split(scattered.graph, scattered.Options(/*fuse=*/false, wild));
    CheckSameBits(scattered.Run(split), gathered.Run(single));
    carried += wild->counts().carried;
    CheckKept(*wild);
  }
  MESSAGE(carried << " tensors carried");
  CHECK(carried > Rounds(10'000));
}

TEST_CASE("fused, random graphs give the local rendezvous's bits") {
  for (uint32_t seed = 1; seed <= Rounds(150u); ++seed) {
    CAPTURE(seed);
    const ScatteredGraph scattered(seed, SomeCpus(seed));
    Session local(scattered.graph, scattered.Options(/*fuse=*/true));
    Session wild(scattered.graph,
                 scattered.Options(/*fuse=*/true, Wild({.seed = seed})));
    CheckSameBits(scattered.Run(wild), scattered.Run(local));
  }
}

TEST_CASE("a lost tensor is the run's error, and only that run's") {
  int failed = 0, whole = 0;
  for (uint32_t seed = 1; seed <= Rounds(150u); ++seed) {
    CAPTURE(seed);
    const ScatteredGraph scattered(seed, SomeCpus(seed));
    Session local(scattered.graph, scattered.Options(/*fuse=*/false));
    const auto wanted = scattered.Run(local, 1);
    const auto wild = Wild({.seed = seed, .delay_us = 30, .loss = 0.02});
    Session lossy(scattered.graph, scattered.Options(/*fuse=*/false, wild));
    for (int run = 0; run < 4; ++run) {
      try {
        CheckSameBits(scattered.Run(lossy, 1), wanted);
        ++whole;
      } catch (const Error& error) {
        CHECK(error.code() == Code::kDataLoss);
        CHECK(Contains(error.what(), "planted"));
        ++failed;
      }
    }
    CheckKept(*wild);
  }
  MESSAGE(whole << " runs, " << failed << " failed");
  CHECK(failed > Rounds(20));
  CHECK(whole > Rounds(100));
}

TEST_CASE("of what is lost without a word the deadline tells") {
  int failed = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    const ScatteredGraph scattered(seed, SomeCpus(seed));
    const auto wild = Wild({.seed = seed, .loss = 0.1, .silently = true});
    SessionOptions options = scattered.Options(/*fuse=*/false, wild);
    options.deadline = std::chrono::milliseconds(60);
    Session lossy(scattered.graph, options);
    bool ended = false;
    try {
      scattered.Run(lossy, 1);
    } catch (const Error& error) {
      CHECK(error.code() == Code::kDeadlineExceeded);
      ended = true;
    }
    CHECK((ended || wild->counts().lost == 0));
    failed += ended;
    CheckKept(*wild);
  }
  CHECK(failed > 0);
}

TEST_CASE("a run that is cancelled anywhere leaves its buffers alone") {
  int cancelled = 0, whole = 0;
  for (uint32_t seed = 1; seed <= Rounds(40u); ++seed) {
    CAPTURE(seed);
    const ScatteredGraph scattered(seed, SomeCpus(seed));
    Session local(scattered.graph, scattered.Options(/*fuse=*/false));
    const auto wanted = scattered.Run(local, 1);
    const auto wild = Wild({.seed = seed, .delay_us = 100});
    Session session(scattered.graph, scattered.Options(/*fuse=*/false, wild));
    std::mt19937 random(seed);
    for (int run = 0; run < 6; ++run) {
      const auto when = std::chrono::microseconds(random() % 5000);
      std::thread canceller([&] {
        std::this_thread::sleep_for(when);
        session.Cancel();
      });
      try {
        CheckSameBits(scattered.Run(session, 1), wanted);
        ++whole;
      } catch (const Error& error) {
        CHECK(error.code() == Code::kCancelled);
        ++cancelled;
      }
      canceller.join();
    }
    CheckSameBits(scattered.Run(session, 1), wanted);
    CheckKept(*wild);
  }
  MESSAGE(whole << " runs, " << cancelled << " cancelled");
  CHECK(cancelled > Rounds(20));
}

TEST_CASE("sessions that share a rendezvous do not see each other") {
  for (const bool local : {true, false}) {
    std::shared_ptr<Rendezvous> shared = Wild({.seed = 5, .delay_us = 20});
    if (local) shared = std::make_shared<LocalRendezvous>();
    std::vector<std::vector<Tensor>> got(3), wanted(3);
    std::vector<std::unique_ptr<ScatteredGraph>> graphs;
    for (uint32_t i = 0; i < 3; ++i) {
      graphs.push_back(std::make_unique<ScatteredGraph>(40 + i, SomeCpus(i)));
      Session alone(graphs[i]->graph, graphs[i]->Options(/*fuse=*/false));
      wanted[i] = graphs[i]->Run(alone, 30);
    }
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        Session session(graphs[i]->graph,
                        graphs[i]->Options(/*fuse=*/false, shared));
        got[i] = graphs[i]->Run(session, 30);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (uint32_t i = 0; i < 3; ++i) CheckSameBits(got[i], wanted[i]);
  }
}

// Variables of random devices, each read on others and then written. Of those
// in common each device sends copies (passes::Partition).
struct ScatteredVariables {
  Graph graph;
  std::vector<Output> variables, fetches;
  std::vector<Operation> updates;
  std::vector<std::string> devices;

  ScatteredVariables(uint32_t seed, std::vector<std::string> on)
      : devices(std::move(on)) {
    std::mt19937 random(seed);
    const auto somewhere = [&] { return devices[random() % devices.size()]; };
    const auto some = [&] { return variables[random() % variables.size()]; };
    const size_t count = 2 + random() % 6;
    for (size_t i = 0; i < count; ++i) {
      const DeviceScope there(graph, somewhere());
      const float value = static_cast<float>(random() % 1000) / 64;
      variables.push_back(
          graph.Variable("v" + std::to_string(i), Filled(value, {3})));
    }
    for (size_t i = 0; i < 2 * count; ++i) {
      const DeviceScope there(graph, somewhere());
      fetches.push_back(some() * 0.5f + some());
    }
    for (const Output& variable : variables) {
      const Output& term = fetches[random() % fetches.size()];
      updates.push_back(AssignAdd(variable, term * 0.125f));
    }
  }

  std::vector<Tensor> Run(const std::string& container) const {
    SessionOptions options;
    options.devices = devices;
    options.fuse = false;
    options.container = container;
    Session session(graph, options);
    session.Initialize();
    std::vector<Tensor> values;
    for (int step = 0; step < 3; ++step) {
      for (Tensor& value : session.Run({}, fetches, updates)) {
        values.push_back(std::move(value));
      }
    }
    for (const Output& variable : variables) {
      values.push_back(session.Read(variable));
    }
    return values;
  }
};

TEST_CASE("variables in common of several devices are one device's") {
  for (uint32_t seed = 1; seed <= Rounds(300u); ++seed) {
    CAPTURE(seed);
    const ScatteredVariables gathered(seed, {"/cpu:0"});
    const ScatteredVariables scattered(seed, SomeCpus(seed));
    CheckSameBits(scattered.Run("in common"), gathered.Run(""));
  }
}

TEST_CASE("a run that an observer ends anywhere leaves its buffers alone") {
  int ended = 0;
  for (uint32_t seed = 1; seed <= Rounds(100u); ++seed) {
    CAPTURE(seed);
    const ScatteredGraph scattered(seed, SomeCpus(seed));
    const auto wild = Wild({.seed = seed, .delay_us = 20});
    Session session(scattered.graph, scattered.Options(/*fuse=*/false, wild));
    const auto wanted = scattered.Run(session, 1);
    for (int after = 0; after < 60; after += 7) {
      FailAfter observer(after);
      session.SetObserver(&observer);
      try {
        CheckSameBits(scattered.Run(session, 1), wanted);
      } catch (const Error& error) {
        CHECK(error.code() == Code::kOutOfRange);
        ++ended;
      }
      session.SetObserver(nullptr);
    }
    CheckSameBits(scattered.Run(session, 1), wanted);
    CheckKept(*wild);
  }
  CHECK(ended > Rounds(100));
}

// Fails where a user's might.
class Throwing final : public Rendezvous {
 public:
  RunKey NewRun() override { return {0, ++runs_}; }
  Result<Exchange*> Join(const RunKey&, int, int, TimePoint) override {
    throw Error(Code::kUnavailable, "nobody is there");
  }
  void Leave(const RunKey&) override {}
  void Abort(const RunKey&, const Status&) override {}
  void BeginEpoch(uint64_t) override {}

 private:
  uint64_t runs_ = 0;
};

TEST_CASE("what a rendezvous throws is the step's error") {
  const ScatteredGraph scattered(3, {"/cpu:0", "/cpu:1"});
  Session session(scattered.graph,
                  scattered.Options(false, std::make_shared<Throwing>()));
  session.Initialize();  // on one device
  for (int i = 0; i < 3; ++i) {
    CHECK(Contains(ErrorOf([&] {
                     session.Run(scattered.random.Feeds(),
                                 scattered.random.fetches());
                   }),
                   "nobody is there"));
  }
}

}  // namespace
}  // namespace sluice::testing
