// What is exchanged in the hosts' memory.
#include "dist/nccl/nccl_group.h"

namespace sluice::dist {

Collective* NcclGroup::Subgroup(std::string_view name) {
  MutexLock lock(calls_);
  return host_->Subgroup(name);
}

Status NcclGroup::AllReduce(std::string_view name, DType dtype, void* data,
                            int64_t count, Reduction how) {
  return OnHost(
      [&] { return host_->AllReduce(name, dtype, data, count, how); });
}

Status NcclGroup::Start(const CollectiveCall& call) {
  return OnHost([&]() NO_THREAD_SAFETY_ANALYSIS {
    Status status = host_->Start(call);
    if (status.ok()) ++host_started_;
    return status;
  });
}

Status NcclGroup::Wait(const void* data) {
  // Also after an error: it is until then that the data is in use.
  Status status;
  {
    MutexLock lock(calls_);
    status = host_->Wait(data);
    --host_started_;
  }
  if (!status.ok()) Fail(status);
  return status;
}

bool NcclGroup::IsOver(const void* data, Waker& waker) {
  MutexLock lock(calls_);
  return host_->IsOver(data, waker);
}

Status NcclGroup::SumTree(std::string_view name, DType dtype, int64_t leaves,
                          std::span<const void* const> sums, void* result,
                          int64_t count) {
  return OnHost(
      [&] { return host_->SumTree(name, dtype, leaves, sums, result, count); });
}

Status NcclGroup::ReduceScatter(std::string_view name, DType dtype, void* data,
                                int64_t count, int64_t row, Reduction how) {
  return OnHost(
      [&] { return host_->ReduceScatter(name, dtype, data, count, row, how); });
}

Status NcclGroup::Broadcast(std::string_view name, void* data, int64_t bytes,
                            int root) {
  return OnHost([&] { return host_->Broadcast(name, data, bytes, root); });
}

Status NcclGroup::AllGather(std::string_view name, const void* mine,
                            int64_t each, void* all) {
  return OnHost([&] { return host_->AllGather(name, mine, each, all); });
}

Status NcclGroup::AllToAll(std::string_view name, const void* mine,
                           int64_t each, void* all) {
  return OnHost([&] { return host_->AllToAll(name, mine, each, all); });
}

Status NcclGroup::Barrier(std::string_view name) {
  SLUICE_RETURN_IF_ERROR(OnHost([&] { return host_->Barrier(name); }));
  needed_ = false;
  return {};
}

}  // namespace sluice::dist
