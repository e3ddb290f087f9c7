// Elastic jobs whose processes are threads, and the launcher another.
#ifndef SLUICE_TESTS_SUPPORT_ELASTIC_JOB_H_
#define SLUICE_TESTS_SUPPORT_ELASTIC_JOB_H_

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/collective/group.h"
#include "dist/membership/roster_keeper.h"
#include "tests/dist/collective/ranks.h"

namespace sluice::testing {

// A process's membership until it dies: before the call of a collective of a
// number that it is told, the others' connections break and this one's calls
// fail, with another code than that of a loss. Of a number below 0 that call
// has done what it does, also for this one, which does not get to know: as if
// its last bytes had not come before another died.
class Mortal final : public Collective {
 public:
  // `calls` 0: neither happens.
  Mortal(std::unique_ptr<dist::Group> group, int calls)
      : group_(std::move(group)),
        dies_in_(std::max(0, calls)),
        misses_in_(std::max(0, -calls)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  Status AllReduce(std::string_view name, DType dtype, void* data,
                   int64_t count, Reduction how) override {
    return Live(
        [&] { return group_->AllReduce(name, dtype, data, count, how); });
  }
  Status Start(const CollectiveCall& call) override {
    return Live([&] { return group_->Start(call); });
  }
  Status Wait(const void* data) override {
    return Live([&] { return group_->Wait(data); });
  }
  bool IsOver(const void* data, Waker& waker) override {
    return group_->IsOver(data, waker);
  }
  Status SumTree(std::string_view name, DType dtype, int64_t leaves,
                 std::span<const void* const> sums, void* result,
                 int64_t count) override {
    return Live([&] {
      return group_->SumTree(name, dtype, leaves, sums, result, count);
    });
  }
  Status ReduceScatter(std::string_view name, DType dtype, void* data,
                       int64_t count, int64_t row, Reduction how) override {
    return Live([&] {
      return group_->ReduceScatter(name, dtype, data, count, row, how);
    });
  }
  Status Broadcast(std::string_view name, void* data, int64_t bytes,
                   int root) override {
    return Live([&] { return group_->Broadcast(name, data, bytes, root); });
  }
  Status AllGather(std::string_view name, const void* mine, int64_t each,
                   void* all) override {
    return Live([&] { return group_->AllGather(name, mine, each, all); });
  }
  Status AllToAll(std::string_view name, const void* mine, int64_t each,
                  void* all) override {
    return Live([&] { return group_->AllToAll(name, mine, each, all); });
  }
  Status Barrier(std::string_view name) override {
    if (before_barrier_) before_barrier_(name);
    return Live([&] { return group_->Barrier(name); });
  }
  Status Check() override { return group_->Check(); }
  void Leave(const Status& why) override { group_->Leave(why); }
  Status JoinAgain(int64_t done) override { return group_->JoinAgain(done); }
  bool elastic() const override { return group_->elastic(); }
  bool called() const override { return group_->called(); }

  // Before its next call.
  void Die() { dies_in_ = 1; }
  // Called by who trains with it, before each barrier.
  void BeforeBarriers(std::function<void(std::string_view name)> fn) {
    before_barrier_ = std::move(fn);
  }
  bool died() const { return died_; }

 private:
  template <typename Call>
  Status Live(Call call) {
    if (dies_in_ > 0 && --dies_in_ == 0) {
      died_ = true;
      group_->Leave(Status(Code::kUnavailable, "it is dead"));
    }
    if (died_) return Status(Code::kInternal, "dead");
    const Status status = call();
    if (misses_in_ == 0 || --misses_in_ > 0 || !status.ok()) return status;
    const Status missed(Code::kUnavailable, "the last bytes did not come");
    group_->Leave(missed);
    return missed;
  }

  const std::unique_ptr<dist::Group> group_;
  std::atomic<int> dies_in_, misses_in_;
  std::atomic<bool> died_{false};
  std::function<void(std::string_view name)> before_barrier_;
};

class ElasticJob {
 public:
  // Of each process that is started, by its number, what a Mortal is told.
  using Fate = std::function<int(int process)>;
  // What each does; it returns when the process ends.
  using Body =
      std::function<void(int process, const std::shared_ptr<Mortal>& group)>;
  // `ports`: where each is to listen; none: anywhere.
  ElasticJob(int size, int least, int restarts, Fate fate, Body body,
             std::vector<int> ports = {})
      : size_(size),
        restarts_(restarts),
        fate_(std::move(fate)),
        body_(std::move(body)),
        ports_(std::move(ports)),
        keeper_(least, std::chrono::seconds(20),
                [this](const std::string& line) { said_ += line + "\n"; }) {}

  // Until all have ended.
  void Run() {
    {
      const std::lock_guard lock(mutex_);
      for (int seat = 0; seat < size_; ++seat) Start(seat);
    }
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        keeper_.Keep();
        if (running_ == 0) break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (std::thread& thread : threads_) thread.join();
  }
  // So many more than it began with, or has grown to: as where hosts come. By
  // any thread, while it runs.
  void Grow(int count) {
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < count; ++i) Start(seats_++);
  }
  // All that were started.
  int processes() const { return started_; }
  int died() const { return died_; }
  const std::string& said() const { return said_; }

 private:
  void Start(int seat) {
    std::array<int, 2> ends = {-1, -1};
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
                       ends.data()) == 0);
    keeper_.Add(seat, dist::Descriptor(ends[0]));
    ++running_;
    threads_.emplace_back([this, seat, process = started_++, its = ends[1]] {
      Live(seat, process, its);
    });
  }

  void Live(int seat, int process, int roster) {
    dist::LaunchInfo info;
    info.rank = info.local_rank = seat;
    info.size = info.local_size = std::max(size_, seat + 1);
    info.token = dist::testing::Token();
    info.roster_fd = roster;
    if (!ports_.empty()) info.own_port = ports_[static_cast<size_t>(seat)];
    bool died = false;
    auto group =
        dist::Group::Join(info, {.join_timeout = std::chrono::seconds(20),
                                 .peer_timeout = std::chrono::seconds(20)});
    if (group.ok()) {
      const auto mortal =
          std::make_shared<Mortal>(*std::move(group), fate_(process));
      body_(process, mortal);
      died = mortal->died();
    }
    const std::lock_guard lock(mutex_);
    --running_;
    if (died) ++died_;
    (void)keeper_.Ended(seat, !died,
                        "process " + std::to_string(process) + " died");
    if (died && restarts_-- > 0) Start(seat);
  }

  const int size_;
  int restarts_;
  const Fate fate_;
  const Body body_;
  const std::vector<int> ports_;
  std::mutex mutex_;
  dist::RosterKeeper keeper_;
  std::string said_;
  std::vector<std::thread> threads_;
  int seats_ = size_;
  int started_ = 0, running_ = 0, died_ = 0;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_ELASTIC_JOB_H_
