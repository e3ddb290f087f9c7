// A part of a step that waits for other workers gives its thread back.
#include <doctest/doctest.h>

#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/runtime/collective.h"
#include "engine/thread_annotations.h"
#include "engine/threads.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/dist/collective/ranks.h"
#include "tests/graph/ops/verbs.h"

namespace sluice::testing {
namespace {

// The other of two workers is late: nothing is over before Open. What comes
// from it is what this one gave.
class Late final : public Collective {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  Status Start(const CollectiveCall& call) override {
    MutexLock lock(mutex_);
    begun_.push_back(call.data);
    return {};
  }
  Status Wait(const void*) override {
    MutexLock lock(mutex_);
    blocked_ += open_ ? 0 : 1;
    while (!open_) changed_.Wait(mutex_);
    return {};
  }
  bool IsOver(const void* data, Waker& waker) override {
    MutexLock lock(mutex_);
    if (open_) return true;
    CHECK(begun_.back() == data);
    waker_ = &waker;
    changed_.NotifyAll();
    return false;
  }

  // Until somebody wants to be woken.
  void AwaitParked() {
    MutexLock lock(mutex_);
    while (waker_ == nullptr) changed_.Wait(mutex_);
  }
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    if (waker_ != nullptr) waker_->Wake();
    changed_.NotifyAll();
  }
  // How many waits held a thread.
  int blocked() const {
    MutexLock lock(mutex_);
    return blocked_;
  }

  Status AllReduce(std::string_view, DType, void*, int64_t,
                   Reduction) override {
    return NotBegun();
  }
  Status SumTree(std::string_view, DType, int64_t, std::span<const void* const>,
                 void*, int64_t) override {
    return NotBegun();
  }
  Status ReduceScatter(std::string_view, DType, void*, int64_t, int64_t,
                       Reduction) override {
    return NotBegun();
  }
  Status Broadcast(std::string_view, void*, int64_t, int) override {
    return NotBegun();
  }
  Status AllGather(std::string_view, const void*, int64_t, void*) override {
    return NotBegun();
  }
  Status AllToAll(std::string_view, const void*, int64_t, void*) override {
    return NotBegun();
  }
  Status Barrier(std::string_view) override { return NotBegun(); }

 private:
  static Status NotBegun() {
    return Internal("a collective that was not begun");
  }

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<const void*> begun_ GUARDED_BY(mutex_);
  Waker* waker_ GUARDED_BY(mutex_) = nullptr;
  int blocked_ GUARDED_BY(mutex_) = 0;
  bool open_ GUARDED_BY(mutex_) = false;
};

TEST_CASE("a part that waits for other workers holds no thread") {
  for (int kind = 0; kind < kVerbs; ++kind) {
    CAPTURE(kind);
    const dist::testing::Watchdog watchdog;
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {2, 2});
    Output y;
    {
      const DeviceScope there(graph, "/cpu:1");
      y = Sum(Apply(static_cast<Verb>(kind), x * 2, /*root=*/0));
    }
    const auto late = std::make_shared<Late>();
    SessionOptions options;
    options.devices = {"/cpu:0", "/cpu:1"};
    options.collective = late;
    Session session(graph, options);
    Tensor got;
    std::thread runs([&] {
      got = session.Run({{x, Tensor::Full(DType::kFloat32, {2, 2}, 1)}}, y);
    });
    late->AwaitParked();
    CHECK(late->blocked() == 0);
    late->Open();
    runs.join();
    CHECK(late->blocked() == 0);
    // The other's part of a gather is not there.
    if (static_cast<Verb>(kind) != Verb::kGather) {
      const bool half = static_cast<Verb>(kind) == Verb::kScatter ||
                        static_cast<Verb>(kind) == Verb::kScatterMean;
      CHECK(got.At(0) == (half ? 4 : 8));
    }
  }
}

}  // namespace
}  // namespace sluice::testing
