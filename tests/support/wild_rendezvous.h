// A rendezvous that does whatever the contract allows (runtime/rendezvous.h),
// by seed: it reads what is sent late, scribbles where it will be received,
// delivers in any order, and loses. And it counts what breaks the contract.
#ifndef SLUICE_TESTS_SUPPORT_WILD_RENDEZVOUS_H_
#define SLUICE_TESTS_SUPPORT_WILD_RENDEZVOUS_H_

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "engine/runtime/rendezvous.h"
#include "engine/thread_annotations.h"

namespace sluice::testing {

// Of host memory only.
class WildRendezvous final : public Rendezvous {
 public:
  struct Options {
    uint32_t seed = 1;
    int delay_us = 50;  // the most, of reading and of delivering
    // Of each tensor, that it is lost: the run is aborted with kDataLoss and
    // "planted", or, silently, nobody says so.
    double loss = 0;
    bool silently = false;
    bool tells = true;  // or waits hold their threads
    // How often who is to be told that a wait has ended is told, each time
    // late; 0: never.
    int wakes = 1;
  };

  explicit WildRendezvous(const Options& options)
      : options_(options), random_(options.seed), wire_([this] { Carry(); }) {}
  ~WildRendezvous() override {
    {
      MutexLock lock(mutex_);
      stop_ = true;
      changed_.NotifyAll();
    }
    wire_.join();
  }

  struct Counts {
    int carried = 0;    // tensors
    int lost = 0;       // of them
    int unsettled = 0;  // buffers given away and never asked back
    int misused = 0;    // waits without a start, or a second time
  };
  Counts counts() const {
    MutexLock lock(mutex_);
    return counts_;
  }

  bool tells() const override { return options_.tells; }
  RunKey NewRun() override {
    MutexLock lock(mutex_);
    return {epoch_, ++last_run_};
  }

  Result<Exchange*> Join(const RunKey& run, int edges, int parts,
                         TimePoint deadline) override {
    MutexLock lock(mutex_);
    if (run.epoch != epoch_) return FailedPrecondition("another epoch");
    Run& joined = Find(run);
    joined.edges.resize(static_cast<size_t>(edges));
    joined.parts = parts;
    joined.deadline = deadline;
    return &joined;
  }

  void Leave(const RunKey& key) override {
    MutexLock lock(mutex_);
    Run& run = Find(key);
    if (++run.left < run.parts) return;
    for (const Ends& ends : run.edges) {
      counts_.unsettled += ends.sending || ends.receiving;
    }
    runs_.erase(key.run);
  }

  void Abort(const RunKey& run, const Status& status) override {
    MutexLock lock(mutex_);
    if (run.epoch == epoch_) AbortLocked(Find(run), status);
  }

  void BeginEpoch(uint64_t epoch) override {
    MutexLock lock(mutex_);
    epoch_ = epoch;
    for (auto& [number, run] : runs_) {
      if (run->key.epoch != epoch) {
        AbortLocked(*run, Cancelled("an epoch has begun"));
      }
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Who asked when a wait will have ended.
  struct Asking {
    Waker* waker = nullptr;
    int wakes = 0;     // left
    bool due = false;  // at `at`
    TimePoint at;
  };

  struct Ends {
    // The views are ours between start and wait.
    DeviceView from, into;
    bool sending = false, receiving = false;
    bool arrived = false, lost = false;
    TimePoint read_at, deliver_at;
    bool read = false;
    std::vector<char> bytes;
    size_t wanted = 0;
    Asking sender, receiver;
  };

  struct Run final : Exchange {
    WildRendezvous& owner;
    RunKey key;
    std::vector<Ends> edges;
    int parts = 0, left = 0;
    TimePoint deadline = TimePoint::max();
    Status abort;

    Run(WildRendezvous& o, const RunKey& k) : owner(o), key(k) {}
    Ends& Of(const Edge& edge) {
      return edges[static_cast<size_t>(edge.number)];
    }
    Status StartSend(const Edge& edge, const DeviceView& from) override {
      return owner.StartSend(*this, edge, from);
    }
    Status WaitSent(const Edge& edge, const DeviceView&) override {
      return owner.WaitSent(*this, edge);
    }
    Status StartReceive(const Edge& edge, const DeviceView& into) override {
      return owner.StartReceive(*this, edge, into);
    }
    Status WaitReceived(const Edge& edge, const DeviceView&) override {
      return owner.WaitReceived(*this, edge);
    }
    size_t ReceivedBytes(const Edge& edge) override {
      return owner.ReceivedBytes(*this, edge);
    }
    bool Sent(const Edge& edge, Waker& waker) override {
      return owner.Ask(*this, edge, &Ends::read, &Ends::sender, waker);
    }
    bool Received(const Edge& edge, Waker& waker) override {
      return owner.Ask(*this, edge, &Ends::arrived, &Ends::receiver, waker);
    }
  };

  Run& Find(const RunKey& key) REQUIRES(mutex_) {
    std::unique_ptr<Run>& run = runs_[key.run];
    if (run == nullptr) run = std::make_unique<Run>(*this, key);
    return *run;
  }

  void AbortLocked(Run& run, const Status& status) REQUIRES(mutex_) {
    if (run.abort.ok()) run.abort = status;
    changed_.NotifyAll();
  }

  TimePoint Soon() REQUIRES(mutex_) {
    return Clock::now() +
           std::chrono::microseconds(random_() % (options_.delay_us + 1));
  }

  Status StartSend(Run& run, const Edge& edge, const DeviceView& from) {
    MutexLock lock(mutex_);
    Ends& ends = run.Of(edge);
    ends.from = from;
    ends.sending = true;
    ends.bytes.resize(edge.bytes);
    ends.read_at = Soon();
    ends.deliver_at = ends.read_at + (Soon() - Clock::now());
    ends.lost = std::bernoulli_distribution(options_.loss)(random_);
    ++counts_.carried;
    counts_.lost += ends.lost;
    changed_.NotifyAll();
    return {};
  }

  Status WaitSent(Run& run, const Edge& edge) {
    MutexLock lock(mutex_);
    Ends& ends = run.Of(edge);
    counts_.misused += !ends.sending;
    while (!ends.read && run.abort.ok()) changed_.Wait(mutex_);
    ends.sending = false;
    return ends.read ? Status() : run.abort;
  }

  Status StartReceive(Run& run, const Edge& edge, const DeviceView& into) {
    MutexLock lock(mutex_);
    Ends& ends = run.Of(edge);
    ends.into = into;
    ends.receiving = true;
    ends.wanted = edge.bytes;
    changed_.NotifyAll();
    return {};
  }

  Status WaitReceived(Run& run, const Edge& edge) {
    MutexLock lock(mutex_);
    Ends& ends = run.Of(edge);
    counts_.misused += !ends.receiving;
    Status status;
    while (!ends.arrived && run.abort.ok() && status.ok()) {
      if (run.deadline == TimePoint::max()) {
        changed_.Wait(mutex_);
      } else if (!changed_.WaitUntil(mutex_, run.deadline) && !ends.arrived) {
        status = DeadlineExceeded("nothing came");
      }
    }
    ends.receiving = false;
    const size_t came = ends.bytes.size();
    if (ends.arrived && (edge.some ? came > edge.bytes : came != edge.bytes)) {
      return DataLoss("another size");
    }
    if (ends.arrived) return {};
    return status.ok() ? run.abort : status;
  }

  size_t ReceivedBytes(Run& run, const Edge& edge) {
    MutexLock lock(mutex_);
    return run.Of(edge).bytes.size();
  }

  bool Ask(Run& run, const Edge& edge, bool Ends::*over, Asking Ends::*asking,
           Waker& waker) {
    MutexLock lock(mutex_);
    Ends& ends = run.Of(edge);
    if (!options_.tells || ends.*over || !run.abort.ok()) return true;
    if (run.deadline <= Clock::now()) return true;
    ends.*asking = {&waker, options_.wakes, false, {}};
    return false;
  }

  // Wakes who asked, once what it asked for is over; when there is more to do.
  TimePoint Tell(Asking& asking, bool over) REQUIRES(mutex_) {
    if (asking.wakes == 0 || !over) return TimePoint::max();
    if (asking.due && asking.at <= Clock::now()) {
      asking.waker->Wake();
      asking.due = false;
      if (--asking.wakes == 0) return TimePoint::max();
    }
    if (!asking.due) asking.at = Soon();
    asking.due = true;
    return asking.at;
  }

  // The wire: one thread that touches what was given away.
  void Carry() {
    MutexLock lock(mutex_);
    while (!stop_) {
      TimePoint next = Clock::now() + std::chrono::milliseconds(50);
      for (auto& [number, run] : runs_) {
        for (Ends& ends : run->edges) {
          next = std::min(next, Move(*run, ends));
          const bool aborted = !run->abort.ok();
          next = std::min(next, Tell(ends.sender, ends.read || aborted));
          next = std::min(next, Tell(ends.receiver, ends.arrived || aborted));
        }
      }
      changed_.WaitUntil(mutex_, next);
    }
  }

  // Does what can be done for one edge; when there will be more to do.
  TimePoint Move(Run& run, Ends& ends) REQUIRES(mutex_) {
    const TimePoint now = Clock::now();
    if (ends.receiving && !ends.arrived && ends.wanted > 0) {
      std::memset(ends.into.data, 0xa5, ends.wanted);
    }
    if (ends.sending && !ends.read) {
      if (ends.read_at > now) return ends.read_at;
      if (!ends.bytes.empty()) {
        std::memcpy(ends.bytes.data(), ends.from.data, ends.bytes.size());
      }
      ends.read = true;
      changed_.NotifyAll();
    }
    if (!ends.read || ends.arrived) return TimePoint::max();
    if (ends.deliver_at > now) return ends.deliver_at;
    if (ends.lost) {
      if (!options_.silently) AbortLocked(run, DataLoss("planted: lost"));
    } else if (ends.receiving) {
      const size_t fits = std::min(ends.bytes.size(), ends.wanted);
      if (fits > 0) std::memcpy(ends.into.data, ends.bytes.data(), fits);
      ends.arrived = true;
      changed_.NotifyAll();
    }
    return TimePoint::max();
  }

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::mt19937 random_ GUARDED_BY(mutex_);
  uint64_t epoch_ GUARDED_BY(mutex_) = 0;
  uint64_t last_run_ GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::unique_ptr<Run>> runs_ GUARDED_BY(mutex_);
  Counts counts_ GUARDED_BY(mutex_);
  bool stop_ GUARDED_BY(mutex_) = false;
  std::thread wire_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_WILD_RENDEZVOUS_H_
