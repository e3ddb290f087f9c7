// A job whose steps meet on the processes' GPUs, through NCCL.
#ifndef SLUICE_DIST_NCCL_NCCL_GROUP_H_
#define SLUICE_DIST_NCCL_NCCL_GROUP_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "engine/device_group.h"
#include "engine/runtime/collective.h"
#include "engine/runtime/device_meeting.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// What steps compute on the GPU is exchanged there (engine/device_group.h);
// everything else, and what the host has to know of the others, by another
// group of the same processes, `host`. That one agrees on each run before it
// begins, and learns who is gone: a thread looks after it and NCCL, and
// aborts what is under way on the GPU when either says that it cannot end. Of
// what NCCL alone has found wrong it tells the others by a group of its own,
// `watch`, since this process may be in a call of `host`'s that waits for them.
//
// Where NCCL alone has found something wrong, the error waits a moment for the
// host's group to say who is gone, and is this rank's own otherwise, which the
// others are told.
//
// One thread at a time, as a Collective; it may not be the one that looks.
class NcclGroup final : public Collective, public DeviceMeeting {
 public:
  struct Options {
    // A group of the same processes that lives as long as `host`, of which it
    // may be a part, and that nobody else calls. Null: `host`, between its
    // calls.
    Collective* watch = nullptr;
    int device = 0;  // the index of this process's GPU
    // Processes of its host, itself included, and whether they may talk to
    // other hosts, which NCCL does in the clear.
    int local_size = 1;
    bool allow_plaintext = false;
    bool beside = true;  // exchanges beside what is computed
    // How long to wait for all GPUs to have come.
    std::chrono::milliseconds join_timeout = std::chrono::seconds(60);
    // How long to wait for the host's group to name who NCCL misses.
    std::chrono::milliseconds naming = std::chrono::seconds(5);
    // How long the GPU may take to end when it was told to: then the thread
    // that looks calls `give_up`, with a line.
    std::chrono::milliseconds abort_timeout = std::chrono::seconds(60);
    std::function<void(std::string_view)> give_up;
  };
  // Waits for the others, which all call it. Where it fails on one it does so
  // on all, and `host` is broken.
  static Result<std::unique_ptr<NcclGroup>> Join(
      std::shared_ptr<Collective> host, const DeviceGroups& by,
      const Options& options);
  // Waits for the others to leave, too, unless all have met in a Barrier since
  // the last run: their GPUs may still need this one.
  ~NcclGroup() override;
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  // The collectives on tensors in the host's memory, by `host`.
  Status AllReduce(std::string_view name, DType dtype, void* data,
                   int64_t count, Reduction how) override;
  Status Start(const CollectiveCall& call) override;
  Status Wait(const void* data) override;
  bool IsOver(const void* data, Waker& waker) override;
  Status SumTree(std::string_view name, DType dtype, int64_t leaves,
                 std::span<const void* const> sums, void* result,
                 int64_t count) override;
  Status ReduceScatter(std::string_view name, DType dtype, void* data,
                       int64_t count, int64_t row, Reduction how) override;
  Status Broadcast(std::string_view name, void* data, int64_t bytes,
                   int root) override;
  Status AllGather(std::string_view name, const void* mine, int64_t each,
                   void* all) override;
  Status AllToAll(std::string_view name, const void* mine, int64_t each,
                  void* all) override;
  Status Barrier(std::string_view name) override;
  Collective* Subgroup(std::string_view name) override;
  double seconds() const override { return host_->seconds(); }
  Status Check() override;
  void Leave(const Status& failure) override;

  DeviceMeeting* on_device() override { return this; }
  const std::string& device() const override { return device_; }
  DeviceGroup& group() override { return *group_; }
  Result<DeviceRun> Agree(const DeviceRunOffer& offer) override;
  Result<uint64_t> Recorded(bool made) override;
  Status Outcome() override;

 private:
  struct Mine;
  NcclGroup(std::shared_ptr<Collective> host, const Options& options);

  Status JoinGpus(const DeviceGroups& by);
  // This rank's and, where they are not all ok, one of another's.
  Status AllReady(const DeviceGroups& by);
  // A call of the host's group, whose error ends what is on the GPU.
  template <typename Call>
  Status OnHost(Call call) EXCLUDES(calls_);
  // The error from now on.
  void Fail(const Status& why) EXCLUDES(mutex_);
  Status Failure() EXCLUDES(mutex_);
  void Look();
  // What the watch knows, and the host's group if nobody is in a call of it.
  Status HostSays() EXCLUDES(calls_, watch_);
  // Tells them of this rank's error. What all have from now on.
  Status Tell(const Status& error) EXCLUDES(calls_, watch_);
  // What has gone wrong, once it can be said whose it is; ok: nothing.
  Status WhatIsWrong();
  Status Differ(std::string_view exchanges);  // with calls_

  const std::shared_ptr<Collective> host_;
  const Options options_;
  const std::string device_;
  std::unique_ptr<DeviceGroup> group_;
  uint64_t recordings_ = 0;
  bool needed_ = false;  // by a run since the last barrier

  Mutex watch_;  // for Options::watch; before calls_
  Mutex calls_;  // for the host's group
  // What a thread of its does beside these calls.
  int64_t host_started_ GUARDED_BY(calls_) = 0;

  Mutex mutex_;
  CondVar changed_;
  Status failed_ GUARDED_BY(mutex_);
  bool ends_ GUARDED_BY(mutex_) = false;
  // NCCL has said that something is wrong, not yet whose.
  bool naming_ GUARDED_BY(mutex_) = false;
  // A run was agreed on whose end nobody has seen.
  bool under_way_ GUARDED_BY(mutex_) = false;
  std::thread looks_;
};

template <typename Call>
Status NcclGroup::OnHost(Call call) {
  Status status;
  {
    MutexLock lock(calls_);
    status = Failure();
    if (status.ok()) status = call();
  }
  if (!status.ok()) Fail(status);
  return status;
}

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_NCCL_NCCL_GROUP_H_
