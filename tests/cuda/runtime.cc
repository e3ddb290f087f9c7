// The emulation's side of the CUDA runtime: memory, streams, events, graphs.
#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/status.h"
#include "tests/cuda/emulator.h"

namespace sluice::cuda::emulation {
namespace {

using Task = std::function<cudaError_t()>;
using Clock = std::chrono::steady_clock;

// --- Device memory -----------------------------------------------------------

// Addresses that only work on a stream may use: for all others, and so for host
// code that takes a device pointer for one of its own, they fault.
class DeviceMemory {
 public:
  void Limit(size_t bytes) { limit_ = bytes; }
  size_t used() const { return used_; }
  size_t limit() const { return limit_; }

  void* Allocate(size_t bytes) {
    const size_t size = std::max(bytes + kAlign - 1, kAlign) / kAlign * kAlign;
    if (used_ + size > limit_) return nullptr;
    size_t at = 0;
    for (const auto& [begin, length] : taken_) {  // first fit
      if (begin - at >= size) break;
      at = begin + length;
    }
    if (at + size > kCapacity) return nullptr;
    taken_[at] = size;
    used_ += size;
    end_ = std::max(end_, at + size);
    const Access access(*this);
    std::memset(base() + at, kPoison, size);
    return base() + at;
  }
  bool Free(void* memory) {
    const auto it = taken_.find(static_cast<char*>(memory) - base());
    if (it == taken_.end()) return false;
    used_ -= it->second;
    taken_.erase(it);
    return true;
  }

  // While it lives the memory can be used.
  class Access {
   public:
    explicit Access(DeviceMemory& memory) : memory_(memory) {
      if (memory_.users_++ == 0) memory_.Protect(PROT_READ | PROT_WRITE);
    }
    ~Access() {
      if (--memory_.users_ == 0) memory_.Protect(PROT_NONE);
    }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    DeviceMemory& memory_;
  };

 private:
  static constexpr size_t kCapacity = size_t{16} << 30;
  static constexpr size_t kAlign = 256;
  static constexpr size_t kPage = 4096;

  char* base() {
    if (base_ == nullptr) {
      void* at = mmap(nullptr, kCapacity, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      SLUICE_CHECK(at != MAP_FAILED);
      base_ = static_cast<char*>(at);
    }
    return base_;
  }
  void Protect(int rights) {
    if (end_ == 0) return;
    const size_t bytes = (end_ + kPage - 1) / kPage * kPage;
    SLUICE_CHECK(mprotect(base(), bytes, rights) == 0);
  }

  char* base_ = nullptr;
  size_t limit_ = kCapacity, used_ = 0;
  size_t end_ = 0;                  // of all that was ever taken
  std::map<size_t, size_t> taken_;  // begin to length
  int users_ = 0;
};

// Calls come from several threads; the emulated device does one thing at a
// time.
std::recursive_mutex mutex;
using Lock = std::lock_guard<std::recursive_mutex>;
DeviceMemory& Memory() {
  static auto* memory = new DeviceMemory;  // outlives all that frees into it
  return *memory;
}
cudaError_t failed = cudaSuccess;  // what work did, until someone waits for it
int captures = 0;
thread_local int current_device = 0;

constexpr int kDevices = 2;

}  // namespace

void SetDeviceMemory(size_t bytes) {
  const Lock lock(mutex);
  Memory().Limit(bytes);
}

}  // namespace sluice::cuda::emulation

// --- Streams -----------------------------------------------------------------

namespace emulation = sluice::cuda::emulation;
using emulation::Clock;

struct CUstream_st {
  std::deque<emulation::Task> work;
  size_t added = 0, done = 0;
  std::vector<emulation::Task>* capture = nullptr;
};
struct CUevent_st {
  cudaStream_t stream = nullptr;  // null: never recorded
  size_t place = 0;               // how much of its work the event is behind
  std::shared_ptr<Clock::time_point> reached;
};
struct CUgraph_st {
  std::vector<emulation::Task> work;
};
struct CUgraphExec_st {
  std::vector<emulation::Task> work;
};

namespace sluice::cuda::emulation {
namespace {

// Does the stream's work up to a place.
void RunUpTo(cudaStream_t stream, size_t place) {
  const DeviceMemory::Access access(Memory());
  while (stream->done < place) {
    const Task task = std::move(stream->work.front());
    stream->work.pop_front();
    ++stream->done;
    const cudaError_t error = task();
    if (failed == cudaSuccess) failed = error;
  }
}

cudaError_t Add(cudaStream_t stream, Task task) {
  const Lock lock(mutex);
  if (stream == nullptr) {
    const DeviceMemory::Access access(Memory());
    return task();
  }
  if (stream->capture != nullptr) {
    stream->capture->push_back(std::move(task));
  } else {
    stream->work.push_back(std::move(task));
    ++stream->added;
  }
  return cudaSuccess;
}

cudaError_t TakeFailure() {
  return std::exchange(failed, cudaSuccess);
}

}  // namespace

cudaError_t Enqueue(const cudaLaunchConfig_t& config,
                    std::function<void()> thread) {
  return Add(config.stream, [config, thread = std::move(thread)] {
    return RunGrid(config, thread);
  });
}

}  // namespace sluice::cuda::emulation

using emulation::Lock;
using emulation::Memory;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(emulation::mutex);
  emulation::RunUpTo(stream, stream->added);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock(emulation::mutex);
  if (stream != nullptr) {
    if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
    emulation::RunUpTo(stream, stream->added);
  }
  return emulation::TakeFailure();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(emulation::mutex);
  if (stream == nullptr || stream->capture != nullptr) {
    return cudaErrorStreamCaptureUnsupported;
  }
  auto reached = std::make_shared<Clock::time_point>();
  const cudaError_t error = emulation::Add(stream, [reached] {
    *reached = Clock::now();
    return cudaSuccess;
  });
  *event = {stream, stream->added, std::move(reached)};
  return error;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                     unsigned flags) {
  if (flags != cudaEventRecordExternal) return cudaEventRecord(event, stream);
  const Lock lock(emulation::mutex);
  if (stream->capture == nullptr) return cudaErrorInvalidValue;
  return emulation::Add(stream, [event] {
    event->reached = std::make_shared<Clock::time_point>(Clock::now());
    return cudaSuccess;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Lock lock(emulation::mutex);
  if (event->stream != nullptr) {
    emulation::RunUpTo(event->stream, event->place);
  }
  return emulation::TakeFailure();
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin,
                                 cudaEvent_t end) {
  if (begin->reached == nullptr || end->reached == nullptr) {
    return cudaErrorInvalidValue;
  }
  *milliseconds =
      std::chrono::duration<float, std::milli>(*end->reached - *begin->reached)
          .count();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned) {
  const Lock lock(emulation::mutex);
  if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  return emulation::Add(stream, [at = *event] {
    if (at.stream != nullptr) emulation::RunUpTo(at.stream, at.place);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Lock lock(emulation::mutex);
  if (stream->capture != nullptr) return cudaErrorInvalidValue;
  stream->capture = new std::vector<emulation::Task>;
  ++emulation::captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(emulation::mutex);
  if (stream->capture == nullptr) return cudaErrorInvalidValue;
  *graph = new CUgraph_st{std::move(*stream->capture)};
  delete std::exchange(stream->capture, nullptr);
  --emulation::captures;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const emulation::Task& task : executable->work) {
    const cudaError_t error = emulation::Add(stream, task);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// --- Devices and memory ------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  *count = emulation::kDevices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= emulation::kDevices) {
    return cudaErrorInvalidDevice;
  }
  emulation::current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = emulation::current_device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  const Lock lock(emulation::mutex);
  *properties = {"emulated", Memory().limit(), 9, 0, 1};
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  const Lock lock(emulation::mutex);
  *total = Memory().limit();
  *available = *total - Memory().used();
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const Lock lock(emulation::mutex);
  if (emulation::captures > 0) return cudaErrorStreamCaptureUnsupported;
  *memory = Memory().Allocate(bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  const Lock lock(emulation::mutex);
  if (memory == nullptr) return cudaSuccess;
  return Memory().Free(memory) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  const Lock lock(emulation::mutex);
  if (emulation::captures > 0) return cudaErrorStreamCaptureUnsupported;
  *memory = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind, cudaStream_t stream) {
  return emulation::Add(stream, [=] {
    std::memmove(to, from, bytes);
    return cudaSuccess;
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                            cudaStream_t stream) {
  return emulation::Add(stream, [=] {
    std::memset(to, value, bytes);
    return cudaSuccess;
  });
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorLaunchFailure:
      return emulation::LastError().c_str();
    default:
      return "invalid argument";
  }
}
