// Jobs whose ranks are threads of this process, have an emulated GPU each and
// meet there through the emulated NCCL.
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_NCCL_JOB_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_NCCL_JOB_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "dist/nccl/nccl_group.h"
#include "tests/dist/collective/ranks.h"
#include "tests/kernels/cuda/emulation/emulator.h"
#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/kernels/cuda/emulation/nccl.h"
#include "tests/kernels/cuda/emulation/peers.h"

namespace sluice::testing {

// What the ranks of a job find out of each other beside their calls: a rank's
// death is what a test says.
class DeathVerdict {
 public:
  void Decide(const Status& status) {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = status;
  }
  Status Said() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  Status status_;
};

// Of NcclGroup::Options::watch: it knows nothing but the verdict.
class DeathWatch final : public Collective {
 public:
  DeathWatch(DeathVerdict& verdict, int rank, int size)
      : verdict_(verdict), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status Check() override { return verdict_.Said(); }
  void Leave(const Status& why) override {
    verdict_.Decide(why.WithContext("rank " + std::to_string(rank_) + " of " +
                                    std::to_string(size_)));
  }

  Status AllReduce(std::string_view, DType, void*, int64_t,
                   Reduction) override {
    return None();
  }
  Status SumTree(std::string_view, DType, int64_t, std::span<const void* const>,
                 void*, int64_t) override {
    return None();
  }
  Status ReduceScatter(std::string_view, DType, void*, int64_t, int64_t,
                       Reduction) override {
    return None();
  }
  Status Broadcast(std::string_view, void*, int64_t, int) override {
    return None();
  }
  Status AllGather(std::string_view, const void*, int64_t, void*) override {
    return None();
  }
  Status AllToAll(std::string_view, const void*, int64_t, void*) override {
    return None();
  }
  Status Barrier(std::string_view) override { return None(); }

 private:
  static Status None() { return Internal("a watch watches"); }

  DeathVerdict& verdict_;
  const int rank_, size_;
};

// The group of a rank whose host's group is there. Without a watch it makes one
// as programs do.
inline std::shared_ptr<dist::NcclGroup> OnGpus(
    std::shared_ptr<dist::Group> host, dist::NcclGroup::Options options = {}) {
  options.device = host->rank();
  options.local_size = host->size();
  if (options.watch == nullptr && host->size() > 1) {
    ThrowIfError(host->Split("watch", 0));
    options.watch = host->Subgroup("watch");
  }
  return dist::NcclGroup::Join(std::move(host), cuda::emulation::EmulatedNccl(),
                               options)
      .ValueOrThrow();
}

// Each of `size` ranks does `body`. `options` are by rank.
inline void OnEachGpu(
    int size,
    const std::function<void(int rank, std::shared_ptr<dist::NcclGroup> group)>&
        body,
    const std::function<dist::NcclGroup::Options(int rank)>& options = [](int) {
      return dist::NcclGroup::Options();
    }) {
  const Gpus gpus(kAllPeers, size);
  const dist::testing::Watchdog watchdog;
  dist::testing::Groups hosts = dist::testing::JoinAll(size);
  dist::testing::InThreads(size, [&](int rank) {
    body(rank,
         OnGpus(std::move(hosts[static_cast<size_t>(rank)]), options(rank)));
  });
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_NCCL_JOB_H_
