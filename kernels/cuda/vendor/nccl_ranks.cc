#include "kernels/cuda/vendor/nccl_ranks.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "kernels/cuda/runtime/check.h"

namespace sluice::cuda {
namespace {

using std::chrono::steady_clock;

// Between two looks at what is in progress.
constexpr auto kLook = std::chrono::microseconds(100);
// A call that hangs must not keep the communicator from being aborted: then
// it is aborted beside the call.
constexpr auto kCallsEnd = std::chrono::seconds(1);
// For recordings to be gone.
constexpr auto kEnds = std::chrono::seconds(10);

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kInt32:
      return ncclInt32;
    case DType::kInt64:
      return ncclInt64;
    default:
      return ncclFloat32;
  }
}

// The mean divides first where a sum may be beyond the dtype's range.
ncclRedOp_t OpOf(Reduction how) {
  return how == Reduction::kMean ? ncclAvg : ncclSum;
}

const char* NameOf(DeviceExchange::Verb verb) {
  switch (verb) {
    case DeviceExchange::kAllReduce:
      return "all-reduce";
    case DeviceExchange::kAllGather:
      return "all-gather";
    case DeviceExchange::kReduceScatter:
      return "reduce-scatter";
    case DeviceExchange::kAllToAll:
      return "all-to-all";
    case DeviceExchange::kBroadcast:
      return "broadcast";
    case DeviceExchange::kReduce:
      return "reduce";
  }
  return "";
}

Status Describe(const Nccl& nccl, const char* what, ncclResult_t result) {
  if (result == ncclSuccess) return {};
  const char* const last = nccl.GetLastError(nullptr);
  const bool more = last != nullptr && last[0] != '\0';
  return FailureOfLibrary(Unavailable(
      fmt::format("NCCL, {}: {}{}{}", what, nccl.GetErrorString(result),
                  more ? ": " : "", more ? last : "")));
}

}  // namespace

NcclRanks::NcclRanks(const Nccl& nccl, const DevicePlace& place)
    : place_(place), shared_(std::make_shared<Shared>()) {
  shared_->nccl = &nccl;
  shared_->device = place.device;
}

Result<std::string> NcclRanks::MakeId(const Nccl& nccl) {
  ncclUniqueId id;
  SLUICE_RETURN_IF_ERROR(Describe(nccl, "making an id", nccl.GetUniqueId(&id)));
  return std::string(id.internal, sizeof(id.internal));
}

Result<std::unique_ptr<DeviceGroup>> NcclRanks::Join(const Nccl& nccl,
                                                     const DevicePlace& place) {
  std::unique_ptr<NcclRanks> ranks(new NcclRanks(nccl, place));
  SLUICE_RETURN_IF_ERROR(ranks->Open(place.id));
  return std::unique_ptr<DeviceGroup>(std::move(ranks));
}

Status NcclRanks::Open(const std::string& id) {
  SLUICE_RETURN_IF_ERROR(
      cuda::Check(cudaSetDevice(place_.device), "choice of the device"));
  SLUICE_RETURN_IF_ERROR(cuda::Check(
      cudaEventCreateWithFlags(&begun_, cudaEventDefault), "making an event"));
  if (place_.beside) {
    SLUICE_RETURN_IF_ERROR(
        cuda::Check(cudaStreamCreateWithFlags(&queue_, cudaStreamNonBlocking),
                    "making a stream"));
  }
  ncclUniqueId unique = {};
  if (id.size() != sizeof(unique.internal)) {
    return InvalidArgument(fmt::format("an id of NCCL's has {} bytes, not {}",
                                       sizeof(unique.internal), id.size()));
  }
  std::memcpy(unique.internal, id.data(), id.size());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = shared_->nccl->CommInitRankConfig(
      &shared_->comm, place_.size, unique, place_.rank, &config);
  if (result == ncclInProgress) return {};
  return Said("joining", result);
}

NcclRanks::~NcclRanks() {
  End(shared_->nccl->CommDestroy);
  const auto deadline = steady_clock::now() + kEnds;
  while (!shared_->ended.load() && steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kLook);
  }
  // What has not ended may use them.
  if (!shared_->ended.load()) return;
  if (cudaSetDevice(place_.device) != cudaSuccess) return;
  for (const auto& [out, event] : done_) cudaEventDestroy(event);
  if (begun_ != nullptr) cudaEventDestroy(begun_);
  if (queue_ != nullptr) cudaStreamDestroy(queue_);
}

// NCCL frees nothing of what a graph uses, and waits until there is none. But
// what waits for other ranks ends as soon as an abort has begun.
void NcclRanks::End(Destroy end) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(ends_, true)) return;
  }
  if (shared_->comm == nullptr) {
    shared_->ended.store(true);
    return;
  }
  std::thread([shared = shared_, end] {
    (void)cudaSetDevice(shared->device);
    const bool alone = shared->calls.try_lock_for(kCallsEnd);
    shared->gone.store(true);
    if (alone) shared->calls.unlock();
    (void)end(shared->comm);
    shared->ended.store(true);
  }).detach();
}

void NcclRanks::Abort(const Status& why) {
  {
    MutexLock lock(mutex_);
    if (failed_.ok()) failed_ = why;
  }
  End(shared_->nccl->CommAbort);
}

Status NcclRanks::Failed() {
  MutexLock lock(mutex_);
  return failed_;
}

Status NcclRanks::Said(const char* what, ncclResult_t result) const {
  // On a thread that has chosen no device, as one that only looks, device 0
  // would be asked whether it is lost, and CUDA would make a context there.
  if (result != ncclSuccess) (void)cudaSetDevice(place_.device);
  return Describe(*shared_->nccl, what, result);
}

template <typename Call>
Status NcclRanks::Do(const char* what, Call call) {
  for (bool first = true;; first = false) {
    SLUICE_RETURN_IF_ERROR(Failed());
    ncclResult_t result = ncclSuccess;
    {
      const std::lock_guard lock(shared_->calls);
      if (shared_->gone.load()) return Failed();
      if (first) result = call();
      if (!first || result == ncclInProgress) {
        ncclResult_t state = ncclSuccess;
        result = shared_->nccl->CommGetAsyncError(shared_->comm, &state);
        if (result == ncclSuccess) result = state;
      }
    }
    if (result == ncclSuccess) return {};
    if (result != ncclInProgress) return Said(what, result);
    std::this_thread::sleep_for(kLook);
  }
}

Result<bool> NcclRanks::Formed() {
  SLUICE_RETURN_IF_ERROR(Failed());
  const std::lock_guard lock(shared_->calls);
  ncclResult_t state = ncclSuccess;
  SLUICE_RETURN_IF_ERROR(
      Said("joining", shared_->nccl->CommGetAsyncError(shared_->comm, &state)));
  if (state == ncclInProgress) return false;
  SLUICE_RETURN_IF_ERROR(Said("joining", state));
  return true;
}

Status NcclRanks::Check() {
  SLUICE_RETURN_IF_ERROR(Failed());
  const std::unique_lock lock(shared_->calls, std::try_to_lock);
  if (!lock || shared_->gone.load()) return {};  // a call will tell, or has
  ncclResult_t state = ncclSuccess;
  SLUICE_RETURN_IF_ERROR(
      Said("asynchronously",
           shared_->nccl->CommGetAsyncError(shared_->comm, &state)));
  if (state == ncclInProgress) return {};
  return Said("asynchronously", state);
}

Result<cudaEvent_t> NcclRanks::EventOf(const void* out) {
  cudaEvent_t& event = done_[out];
  if (event == nullptr) {
    SLUICE_RETURN_IF_ERROR(cuda::Check(
        cudaEventCreateWithFlags(&event, cudaEventDefault), "making an event"));
  }
  return event;
}

Status NcclRanks::Start(const DeviceExchange& exchange, void* stream) {
  SLUICE_RETURN_IF_ERROR(Failed());
  const auto from = static_cast<cudaStream_t>(stream);
  const cudaStream_t queue = queue_ == nullptr ? from : queue_;
  if (queue != from) {
    SLUICE_RETURN_IF_ERROR(
        cuda::Check(cudaEventRecord(begun_, from), "recording an event"));
    SLUICE_RETURN_IF_ERROR(
        cuda::Check(cudaStreamWaitEvent(queue, begun_), "wait for an event"));
  }
  SLUICE_RETURN_IF_ERROR(
      Do(NameOf(exchange.verb), [&] { return Add(exchange, queue); }));
  if (exchange.verb == DeviceExchange::kReduce &&
      exchange.root != place_.rank) {
    const size_t bytes =
        static_cast<size_t>(exchange.count) * SizeOf(exchange.dtype);
    SLUICE_RETURN_IF_ERROR(
        cuda::Check(cudaMemsetAsync(exchange.out, 0, bytes, queue), "zeros"));
  }
  if (queue == from) return {};
  SLUICE_ASSIGN_OR_RETURN(const cudaEvent_t done, EventOf(exchange.out));
  return cuda::Check(cudaEventRecord(done, queue), "recording an event");
}

Status NcclRanks::Wait(const void* out, void* stream) {
  if (queue_ == nullptr) return {};
  const auto done = done_.find(out);
  if (done == done_.end()) return Internal("a wait for what was not begun");
  return cuda::Check(
      cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), done->second),
      "wait for an event");
}

ncclResult_t NcclRanks::Add(const DeviceExchange& e, cudaStream_t queue) {
  const Nccl& nccl = *shared_->nccl;
  const ncclComm_t comm = shared_->comm;
  const auto count = static_cast<size_t>(e.count);
  const ncclDataType_t type = TypeOf(e.dtype);
  switch (e.verb) {
    case DeviceExchange::kAllReduce:
      return nccl.AllReduce(e.in, e.out, count, type, OpOf(e.how), comm, queue);
    case DeviceExchange::kAllGather:
      return nccl.AllGather(e.in, e.out, count, ncclUint8, comm, queue);
    case DeviceExchange::kReduceScatter:
      return nccl.ReduceScatter(e.in, e.out, count, type, OpOf(e.how), comm,
                                queue);
    case DeviceExchange::kAllToAll:
      return AddAllToAll(e, queue);
    case DeviceExchange::kBroadcast:
      return nccl.Broadcast(e.in, e.out, count, ncclUint8, e.root, comm, queue);
    case DeviceExchange::kReduce:
      return nccl.Reduce(e.in, e.out, count, type, OpOf(e.how), e.root, comm,
                         queue);
  }
  return ncclInvalidArgument;
}

ncclResult_t NcclRanks::AddAllToAll(const DeviceExchange& e,
                                    cudaStream_t queue) {
  const Nccl& nccl = *shared_->nccl;
  const auto each = static_cast<size_t>(e.count);
  ncclResult_t first = nccl.GroupStart();
  if (first != ncclSuccess) return first;
  const auto note = [&](ncclResult_t result) {
    if (first == ncclSuccess || first == ncclInProgress) {
      if (result != ncclSuccess) first = result;
    }
  };
  for (int rank = 0; rank < place_.size; ++rank) {
    const size_t at = each * static_cast<size_t>(rank);
    note(nccl.Send(static_cast<const char*>(e.in) + at, each, ncclUint8, rank,
                   shared_->comm, queue));
    note(nccl.Recv(static_cast<char*>(e.out) + at, each, ncclUint8, rank,
                   shared_->comm, queue));
  }
  note(nccl.GroupEnd());
  return first;
}

}  // namespace sluice::cuda
