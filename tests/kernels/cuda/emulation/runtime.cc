// The emulation's side of the CUDA runtime: memory, streams, events, graphs.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/status.h"
#include "tests/kernels/cuda/emulation/device_memory.h"
#include "tests/kernels/cuda/emulation/emulator.h"

namespace sluice::cuda::emulation {
namespace {

using Task = std::function<cudaError_t()>;
using Clock = std::chrono::steady_clock;

// Calls come from several threads; the emulated device does one thing at a
// time.
std::recursive_mutex mutex;
using Lock = std::lock_guard<std::recursive_mutex>;
DeviceMemory& Memory() {
  static auto* memory = new DeviceMemory;  // outlives all that frees into it
  return *memory;
}
cudaError_t failed = cudaSuccess;  // what work did, until someone waits for it
int64_t graph_launches = 0;
// Captures are of one thread (cudaStreamCaptureModeThreadLocal).
thread_local int captures = 0;
thread_local int current_device = 0;

// --- What can be wrong -------------------------------------------------------

Machine machine;
struct {
  std::string function;  // empty: none
  cudaError_t error = cudaSuccess;
  int after = 0;
} failure;
cudaError_t lost = cudaSuccess;  // what all calls return since the device is

// What the function fails with, if it is its turn.
cudaError_t Failing(std::string_view function) {
  const Lock lock(mutex);
  if (lost != cudaSuccess) return lost;
  if (failure.function != function || failure.after-- > 0) return cudaSuccess;
  failure.function.clear();
  // Of the others, calls go on to work.
  if (failure.error == cudaErrorLaunchFailure ||
      failure.error == cudaErrorIllegalAddress ||
      failure.error == cudaErrorECCUncorrectable) {
    lost = failure.error;
  }
  return failure.error;
}

}  // namespace

void SetMachine(const Machine& to) {
  const Lock lock(mutex);
  machine = to;
}

void Fail(std::string_view function, cudaError_t error, int after) {
  const Lock lock(mutex);
  failure = {std::string(function), error, after};
  lost = failed = cudaSuccess;
}

int64_t GraphLaunches() {
  const Lock lock(mutex);
  return graph_launches;
}

bool Failed() {
  const Lock lock(mutex);
  return failure.function.empty();
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
    if (lost != cudaSuccess) continue;  // nobody is there to do it
    cudaError_t error = Failing("work");
    if (error == cudaSuccess) error = task();
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
  const cudaError_t error = std::exchange(failed, cudaSuccess);
  return lost != cudaSuccess ? lost : error;
}

}  // namespace

cudaError_t Enqueue(const cudaLaunchConfig_t& config,
                    std::function<void()> thread) {
  const cudaError_t error = Failing("cudaLaunchKernelEx");
  if (error != cudaSuccess) return error;
  return Add(config.stream, [config, thread = std::move(thread)] {
    return RunGrid(config, thread);
  });
}

}  // namespace sluice::cuda::emulation

using emulation::Lock;
using emulation::Memory;

// Calls that free something do so whatever is wrong.
#define SLUICE_MAY_FAIL()                                                      \
  if (const auto error = emulation::Failing(__func__); error != cudaSuccess) { \
    return error;                                                              \
  }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  SLUICE_MAY_FAIL();
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
  SLUICE_MAY_FAIL();
  const Lock lock(emulation::mutex);
  if (stream != nullptr) {
    if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
    emulation::RunUpTo(stream, stream->added);
  }
  return emulation::TakeFailure();
}

cudaError_t cudaStreamQuery(cudaStream_t) {
  SLUICE_MAY_FAIL();
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  SLUICE_MAY_FAIL();
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  SLUICE_MAY_FAIL();
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
  SLUICE_MAY_FAIL();
  const Lock lock(emulation::mutex);
  if (event->stream != nullptr) {
    emulation::RunUpTo(event->stream, event->place);
  }
  return emulation::TakeFailure();
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin,
                                 cudaEvent_t end) {
  SLUICE_MAY_FAIL();
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
  SLUICE_MAY_FAIL();
  const Lock lock(emulation::mutex);
  if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  return emulation::Add(stream, [at = *event] {
    if (at.stream != nullptr) emulation::RunUpTo(at.stream, at.place);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  SLUICE_MAY_FAIL();
  const Lock lock(emulation::mutex);
  if (stream->capture != nullptr) return cudaErrorInvalidValue;
  stream->capture = new std::vector<emulation::Task>;
  ++emulation::captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(emulation::mutex);
  if (stream->capture == nullptr) return cudaErrorInvalidValue;
  std::vector<emulation::Task> work = std::move(*stream->capture);
  delete std::exchange(stream->capture, nullptr);
  --emulation::captures;
  SLUICE_MAY_FAIL();
  *graph = new CUgraph_st{std::move(work)};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  SLUICE_MAY_FAIL();
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
  SLUICE_MAY_FAIL();
  const Lock lock(emulation::mutex);
  ++emulation::graph_launches;
  for (const emulation::Task& task : executable->work) {
    const cudaError_t error = emulation::Add(stream, task);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// --- Devices and memory ------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  SLUICE_MAY_FAIL();
  *count = emulation::machine.gpus;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = emulation::machine.driver;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  SLUICE_MAY_FAIL();
  if (device < 0 || device >= emulation::machine.gpus) {
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
  SLUICE_MAY_FAIL();
  const Lock lock(emulation::mutex);
  *properties = {"emulated", emulation::machine.memory,
                 emulation::machine.major, 0, 1};
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  SLUICE_MAY_FAIL();
  const Lock lock(emulation::mutex);
  *total = emulation::machine.memory;
  *available = *total - Memory().used();
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  SLUICE_MAY_FAIL();
  const Lock lock(emulation::mutex);
  if (emulation::captures > 0) return cudaErrorStreamCaptureUnsupported;
  *memory = Memory().Allocate(bytes, emulation::machine.memory);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  const Lock lock(emulation::mutex);
  if (memory == nullptr) return cudaSuccess;
  return Memory().Free(memory) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  SLUICE_MAY_FAIL();
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
  SLUICE_MAY_FAIL();
  return emulation::Add(stream, [=] {
    std::memmove(to, from, bytes);
    return cudaSuccess;
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                            cudaStream_t stream) {
  SLUICE_MAY_FAIL();
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
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorECCUncorrectable:
      return "uncorrectable ECC error encountered";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorLaunchFailure:
      return emulation::LastError().empty() ? "unspecified launch failure"
                                            : emulation::LastError().c_str();
    default:
      return "invalid argument";
  }
}
