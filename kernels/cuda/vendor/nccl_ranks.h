// Workers that meet through NCCL.
//
// Its calls do not block (ncclConfig_t::blocking = 0): what takes long is said
// to be in progress, and ncclCommGetAsyncError how far it is. So a connection
// that does not come about, and a call that waits for another rank, can be
// given up:
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html#asynchronous-errors-and-error-handling
#ifndef SLUICE_KERNELS_CUDA_VENDOR_NCCL_RANKS_H_
#define SLUICE_KERNELS_CUDA_VENDOR_NCCL_RANKS_H_

#include <cuda_runtime.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "engine/device_group.h"
#include "engine/thread_annotations.h"
#include "kernels/cuda/vendor/nccl.h"

namespace sluice::cuda {

class NcclRanks final : public DeviceGroup {
 public:
  // `nccl` outlives the process's threads.
  static Result<std::unique_ptr<DeviceGroup>> Join(const Nccl& nccl,
                                                   const DevicePlace& place);
  static Result<std::string> MakeId(const Nccl& nccl);
  // Requires that all work is over, on all ranks, or an Abort before. Waits a
  // while for what was recorded to be gone, which NCCL insists on, and no
  // longer.
  ~NcclRanks() override;
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  Result<bool> Formed() override;
  Status Start(const DeviceExchange& exchange, void* stream) override;
  Status Wait(const void* out, void* stream) override;
  Status Check() override;
  // Aborts NCCL's communicator on a thread of its own, which returns when no
  // recording is left.
  void Abort(const Status& why) override;

 private:
  // What a thread that ends the communicator keeps.
  struct Shared {
    const Nccl* nccl = nullptr;
    int device = 0;
    ncclComm_t comm = nullptr;
    // NCCL wants no other call at the same time as the end.
    std::timed_mutex calls;
    std::atomic<bool> gone = false;  // set with `calls` held
    std::atomic<bool> ended = false;
  };

  NcclRanks(const Nccl& nccl, const DevicePlace& place);
  Status Open(const std::string& id);

  using Destroy = ncclResult_t (*)(ncclComm_t comm);
  // Ends the communicator by `end`, unless that was done before.
  void End(Destroy end);
  // Calls NCCL, and waits while it says that it is in progress.
  template <typename Call>
  Status Do(const char* what, Call call);
  Status Said(const char* what, ncclResult_t result) const;
  ncclResult_t Add(const DeviceExchange& e, cudaStream_t queue);
  ncclResult_t AddAllToAll(const DeviceExchange& e, cudaStream_t queue);
  Status Failed() EXCLUDES(mutex_);
  Result<cudaEvent_t> EventOf(const void* out);

  const DevicePlace place_;
  const std::shared_ptr<Shared> shared_;
  cudaStream_t queue_ = nullptr;  // null: the streams themselves
  cudaEvent_t begun_ = nullptr;   // of the stream, up to a Start
  std::unordered_map<const void*, cudaEvent_t> done_;  // by `out`
  Mutex mutex_;
  Status failed_ GUARDED_BY(mutex_);
  bool ends_ GUARDED_BY(mutex_) = false;
};

// The groups by NCCL's library, for the module's entry.
const DeviceGroups& NcclGroups();

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_VENDOR_NCCL_RANKS_H_
