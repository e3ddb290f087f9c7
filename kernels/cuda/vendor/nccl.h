// NCCL, opened at run time.
#ifndef SLUICE_KERNELS_CUDA_VENDOR_NCCL_H_
#define SLUICE_KERNELS_CUDA_VENDOR_NCCL_H_

#include <nccl.h>

#include "engine/status.h"

namespace sluice::cuda {

inline constexpr const char* kNcclFile = "libnccl.so.2";

// The library's functions that are used here; 2.14 has them all.
struct Nccl {
  decltype(ncclGetErrorString)* GetErrorString = nullptr;
  decltype(ncclGetLastError)* GetLastError = nullptr;
  decltype(ncclGetUniqueId)* GetUniqueId = nullptr;
  decltype(ncclCommInitRankConfig)* CommInitRankConfig = nullptr;
  decltype(ncclCommGetAsyncError)* CommGetAsyncError = nullptr;
  decltype(ncclCommDestroy)* CommDestroy = nullptr;
  decltype(ncclCommAbort)* CommAbort = nullptr;
  decltype(ncclAllReduce)* AllReduce = nullptr;
  decltype(ncclAllGather)* AllGather = nullptr;
  decltype(ncclReduceScatter)* ReduceScatter = nullptr;
  decltype(ncclBroadcast)* Broadcast = nullptr;
  decltype(ncclReduce)* Reduce = nullptr;
  decltype(ncclSend)* Send = nullptr;
  decltype(ncclRecv)* Recv = nullptr;
  decltype(ncclGroupStart)* GroupStart = nullptr;
  decltype(ncclGroupEnd)* GroupEnd = nullptr;
};

// Unavailable says in a line why there is no NCCL.
Result<const Nccl*> FindNccl();

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_VENDOR_NCCL_H_
