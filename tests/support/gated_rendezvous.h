// A rendezvous whose tensors come when the test says so.
#ifndef SLUICE_TESTS_SUPPORT_GATED_RENDEZVOUS_H_
#define SLUICE_TESTS_SUPPORT_GATED_RENDEZVOUS_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/runtime/local_rendezvous.h"
#include "engine/thread_annotations.h"
#include "tests/support/forwarding_exchange.h"

namespace sluice::testing {

// A local one in front of which what is sent is held back, by run, until it is
// let through. Of host memory.
class GatedRendezvous final : public Rendezvous {
 public:
  // Lets through what a run has sent, and what it will send. False: it was let
  // through already.
  bool Open(uint64_t run) {
    MutexLock lock(mutex_);
    Gate& gate = gates_[run];
    for (Held& held : gate.held) Deliver(*gate.exchange, held);
    gate.held.clear();
    return !std::exchange(gate.open, true);
  }
  // Runs that have sent something which is held back.
  std::vector<uint64_t> Waiting() const {
    MutexLock lock(mutex_);
    std::vector<uint64_t> runs;
    for (const auto& [run, gate] : gates_) {
      if (!gate.held.empty()) runs.push_back(run);
    }
    return runs;
  }
  // Waits until there are so many of them; false where that takes too long.
  bool AwaitWaiting(size_t count) const {
    const auto late =
        std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (Waiting().size() < count) {
      if (std::chrono::steady_clock::now() > late) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }

  bool tells() const override { return true; }
  RunKey NewRun() override { return local_.NewRun(); }
  Result<Exchange*> Join(const RunKey& run, int edges, int parts,
                         TimePoint deadline) override {
    SLUICE_ASSIGN_OR_RETURN(Exchange * exchange,
                            local_.Join(run, edges, parts, deadline));
    MutexLock lock(mutex_);
    Gate& gate = gates_[run.run];
    gate.exchange = exchange;
    if (gate.face == nullptr) {
      gate.parts = parts;
      gate.face = std::make_unique<Face>(*this, run.run, *exchange);
    }
    return gate.face.get();
  }
  void Leave(const RunKey& run) override {
    {
      MutexLock lock(mutex_);
      if (--gates_[run.run].parts == 0) gates_.erase(run.run);
    }
    local_.Leave(run);
  }
  void Abort(const RunKey& run, const Status& status) override {
    local_.Abort(run, status);
  }
  void BeginEpoch(uint64_t epoch) override { local_.BeginEpoch(epoch); }

 private:
  struct Held {
    Edge edge;
    std::vector<char> bytes;
  };
  struct Face final : ForwardingExchange {
    GatedRendezvous& owner;
    const uint64_t run;

    Face(GatedRendezvous& o, uint64_t r, Exchange& local)
        : ForwardingExchange(local), owner(o), run(r) {}
    Status StartSend(const Edge& edge, const DeviceView& from) override {
      return owner.Send(run, edge, from);
    }
    // What is held back is a copy.
    Status WaitSent(const Edge&, const DeviceView&) override { return {}; }
    bool Sent(const Edge&, Waker&) override { return true; }
  };
  struct Gate {
    bool open = false;
    int parts = 0;
    Exchange* exchange = nullptr;
    std::unique_ptr<Face> face;
    std::vector<Held> held;
  };

  static void Deliver(Exchange& to, Held& held) {
    (void)to.StartSend(held.edge, {held.bytes.data()}).ok();
  }
  Status Send(uint64_t run, const Edge& edge, const DeviceView& from) {
    MutexLock lock(mutex_);
    const char* const bytes = static_cast<const char*>(from.data);
    Held held = {edge, {bytes, bytes + edge.bytes}};
    Gate& gate = gates_[run];
    if (gate.open) {
      Deliver(*gate.exchange, held);
    } else {
      gate.held.push_back(std::move(held));
    }
    return {};
  }

  LocalRendezvous local_;
  mutable Mutex mutex_;
  std::map<uint64_t, Gate> gates_ GUARDED_BY(mutex_);
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_GATED_RENDEZVOUS_H_
