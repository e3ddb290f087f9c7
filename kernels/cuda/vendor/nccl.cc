#include "kernels/cuda/vendor/nccl.h"

#include "kernels/cuda/runtime/nvidia_library.h"

namespace sluice::cuda {
namespace {

Result<const Nccl*> Open() {
  SLUICE_ASSIGN_OR_RETURN(void* const library, OpenLibrary(kNcclFile));
  FunctionFinder find(library);
  static Nccl f;
  find("ncclGetErrorString", f.GetErrorString);
  find("ncclGetLastError", f.GetLastError);
  find("ncclGetUniqueId", f.GetUniqueId);
  find("ncclCommInitRankConfig", f.CommInitRankConfig);
  find("ncclCommGetAsyncError", f.CommGetAsyncError);
  find("ncclCommDestroy", f.CommDestroy);
  find("ncclCommAbort", f.CommAbort);
  find("ncclAllReduce", f.AllReduce);
  find("ncclAllGather", f.AllGather);
  find("ncclReduceScatter", f.ReduceScatter);
  find("ncclBroadcast", f.Broadcast);
  find("ncclReduce", f.Reduce);
  find("ncclSend", f.Send);
  find("ncclRecv", f.Recv);
  find("ncclGroupStart", f.GroupStart);
  find("ncclGroupEnd", f.GroupEnd);
  SLUICE_RETURN_IF_ERROR(find.status());
  return &f;
}

}  // namespace

Result<const Nccl*> FindNccl() {
  static const auto* const found = new Result<const Nccl*>(Open());
  return *found;
}

}  // namespace sluice::cuda
