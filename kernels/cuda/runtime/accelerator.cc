#include "kernels/cuda/runtime/accelerator.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/memory.h"

namespace sluice::cuda {
namespace {

// What libsluice_cuda.so has machine code for (cmake/SluiceCuda.cmake).
constexpr int kLeastMajor = 8;

double GiB(size_t bytes) {
  return static_cast<double>(bytes) / (size_t{1} << 30);
}

class CudaEvent final : public QueueEvent {
 public:
  CudaEvent(cudaEvent_t event, int device) : event_(event), device_(device) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override { cudaEventDestroy(event_); }
  // On a thread that has chosen no device CUDA would make a context on device 0
  // for it.
  Status Wait() const override {
    SLUICE_RETURN_IF_ERROR(
        Check(cudaSetDevice(device_), "choice of the device"));
    return Check(cudaEventSynchronize(event_), "wait for an event");
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_;
  int device_;
};

// Of any device of CUDA's.
cudaEvent_t EventOf(const Accelerator::Event& event) {
  return static_cast<const CudaEvent*>(event.get())->get();
}

class Graph final : public CapturedWork {
 public:
  Graph(cudaGraphExec_t executable, cudaStream_t stream)
      : executable_(executable), stream_(stream) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() override { cudaGraphExecDestroy(executable_); }
  Status Launch() override {
    return Check(cudaGraphLaunch(executable_, stream_), "launch of the step");
  }

 private:
  cudaGraphExec_t executable_;
  cudaStream_t stream_;
};

class Cuda final : public Accelerator {
 public:
  static Result<std::unique_ptr<Accelerator>> Open(int device) {
    std::unique_ptr<Cuda> cuda(new Cuda(device));
    SLUICE_RETURN_IF_ERROR(cuda->Use());
    for (cudaStream_t& stream : cuda->streams_) {
      SLUICE_RETURN_IF_ERROR(
          Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                "making a stream"));
    }
    SLUICE_RETURN_IF_ERROR(
        Check(cudaGetDeviceProperties(&cuda->properties_, device),
              "asking for the device's properties"));
    if (cuda->properties_.major < kLeastMajor) {
      return Unavailable(fmt::format(
          "{} is too old: compute capability {}.0 or newer is needed; use "
          "/cpu:0",
          cuda->Describe(), kLeastMajor));
    }
    return std::unique_ptr<Accelerator>(std::move(cuda));
  }
  Cuda(const Cuda&) = delete;
  Cuda& operator=(const Cuda&) = delete;
  ~Cuda() override {
    for (cudaStream_t stream : streams_) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
  }

  std::string Describe() const override {
    return fmt::format("{}, compute capability {}.{}, {:.1f} GiB",
                       properties_.name, properties_.major, properties_.minor,
                       GiB(properties_.totalGlobalMem));
  }
  MemoryInfo memory() const override {
    MemoryInfo info;
    if (cudaMemGetInfo(&info.available, &info.total) != cudaSuccess) return {};
    return info;
  }
  Status Use() override {
    return Check(cudaSetDevice(device_), "choice of the device");
  }

  Result<std::shared_ptr<void>> Allocate(size_t bytes) override {
    return AllocateOnDevice(bytes);
  }
  Result<std::shared_ptr<void>> AllocatePinned(size_t bytes) override {
    return cuda::AllocatePinned(bytes);
  }

  void* stream(Queue queue) const override { return streams_[queue]; }
  Status CopyIn(Queue queue, void* device, const void* pinned,
                size_t bytes) override {
    return Copy(device, pinned, bytes, queue, "copy to the device");
  }
  Status CopyOut(Queue queue, void* pinned, const void* device,
                 size_t bytes) override {
    return Copy(pinned, device, bytes, queue, "copy from the device");
  }
  Status CopyWithin(void* to, const void* from, size_t bytes) override {
    return Copy(to, from, bytes, kCompute, "copy on the device");
  }

  bool Reaches(const Accelerator& other) override {
    const auto* peer = dynamic_cast<const Cuda*>(&other);
    if (peer == nullptr) return false;
    if (peer->device_ == device_) return true;
    const auto [known, is_new] = reached_.try_emplace(peer->device_, false);
    if (is_new) known->second = EnablePeer(peer->device_);
    return known->second;
  }
  // The addresses say whose memory it is. cudaMemcpyPeerAsync, which is told,
  // cannot be captured.
  Status CopyFrom(const Accelerator&, Queue queue, void* to, const void* from,
                  size_t bytes) override {
    return Copy(to, from, bytes, queue, "copy from another device");
  }

  Result<Event> MakeEvent() override {
    cudaEvent_t event = nullptr;
    SLUICE_RETURN_IF_ERROR(Check(
        cudaEventCreateWithFlags(&event, cudaEventDefault), "making an event"));
    return Event(std::make_shared<CudaEvent>(event, device_));
  }
  Status Record(const Event& event, Queue queue) override {
    return Check(
        cudaEventRecordWithFlags(
            EventOf(event), streams_[queue],
            captures_alone_ && queue == kCompute ? cudaEventRecordExternal : 0),
        "recording an event");
  }
  Status Wait(const Event& event, Queue queue) override {
    return Check(cudaStreamWaitEvent(streams_[queue], EventOf(event), 0),
                 "wait for an event");
  }
  Status WaitOnHost(const Event& event) override {
    SLUICE_RETURN_IF_ERROR(event->Wait());
    return TakeReports();
  }
  Result<double> SecondsBetween(const Event& begin, const Event& end) override {
    float milliseconds = 0;
    SLUICE_RETURN_IF_ERROR(WaitOnHost(begin));
    SLUICE_RETURN_IF_ERROR(WaitOnHost(end));
    SLUICE_RETURN_IF_ERROR(
        Check(cudaEventElapsedTime(&milliseconds, EventOf(begin), EventOf(end)),
              "time between events"));
    return static_cast<double>(milliseconds) * 1e-3;
  }
  Status Synchronize() override {
    for (cudaStream_t stream : streams_) {
      SLUICE_RETURN_IF_ERROR(
          Check(cudaStreamSynchronize(stream), "wait for the device"));
    }
    return TakeReports();
  }
  void Drain() override {
    for (cudaStream_t stream : streams_) cudaStreamSynchronize(stream);
  }
  void Watch(std::function<Status(const Status&)> blame,
             std::shared_ptr<WorkReport> report) override {
    watched_.push_back({std::move(blame), std::move(report)});
  }

  Status BeginCapture(Captured what) override {
    SLUICE_RETURN_IF_ERROR(
        Check(cudaStreamBeginCapture(streams_[kCompute],
                                     cudaStreamCaptureModeThreadLocal),
              "begin of capture"));
    captures_alone_ = what == kAlone;
    return {};
  }
  Result<std::unique_ptr<CapturedWork>> EndCapture() override {
    captures_alone_ = false;
    cudaGraph_t graph = nullptr;
    SLUICE_RETURN_IF_ERROR(
        Check(cudaStreamEndCapture(streams_[kCompute], &graph), "capture"));
    cudaGraphExec_t executable = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    SLUICE_RETURN_IF_ERROR(Check(error, "making a graph of the step"));
    return std::unique_ptr<CapturedWork>(
        new Graph(executable, streams_[kCompute]));
  }

 private:
  struct Watched {
    std::function<Status(const Status&)> blame;
    std::shared_ptr<WorkReport> report;
  };

  explicit Cuda(int device) : device_(device) {}

  Status TakeReports() {
    Status first;
    for (const Watched& watched : watched_) {
      const Status found = watched.report->Take();
      if (first.ok() && !found.ok()) first = watched.blame(found);
    }
    // An executor waits for its work before its kernels go.
    std::erase_if(watched_,
                  [](const Watched& w) { return w.report.use_count() == 1; });
    return first;
  }

  Status Copy(void* to, const void* from, size_t bytes, Queue queue,
              const char* what) {
    return Check(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, streams_[queue]),
        what);
  }

  // Whether there is access to the memory of another of CUDA's devices now. A
  // refusal is an answer; what is wrong beyond that the next call finds.
  bool EnablePeer(int device) {
    int can = 0;
    if (!Use().ok() ||
        cudaDeviceCanAccessPeer(&can, device_, device) != cudaSuccess ||
        can == 0) {
      return false;
    }
    const cudaError_t error = cudaDeviceEnablePeerAccess(device, /*flags=*/0);
    if (error == cudaSuccess) return true;
    static_cast<void>(cudaGetLastError());  // the next launch would see it
    return error == cudaErrorPeerAccessAlreadyEnabled;
  }

  const int device_;
  cudaStream_t streams_[kQueues] = {};
  bool captures_alone_ = false;
  std::map<int, bool> reached_;  // of CUDA's other devices, those asked for
  cudaDeviceProp properties_ = {};
  std::vector<Watched> watched_;
};

std::string WrongDriver() {
  constexpr int kMajor = CUDART_VERSION / 1000;
  int serves = 0;  // 1000 major + 10 minor; 0 where there is no driver
  if (cudaDriverGetVersion(&serves) != cudaSuccess || serves == 0) {
    return "there is no NVIDIA driver; install one, or use /cpu:0";
  }
  return fmt::format(
      "the NVIDIA driver is too old: it serves CUDA {}.{}, and {}.0 or newer "
      "is needed; update it, or use /cpu:0",
      serves / 1000, serves % 1000 / 10, kMajor);
}

}  // namespace

Result<std::unique_ptr<Accelerator>> OpenCuda(int index, bool shared) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    return Unavailable(WrongDriver());
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return Unavailable("this machine has no GPU that CUDA can use; use /cpu:0");
  }
  if (error != cudaSuccess) {
    return Unavailable(fmt::format("no GPU can be used: {}; use /cpu:0",
                                   cudaGetErrorString(error)));
  }
  if (index >= count && !shared) {
    return Unavailable(count == 1
                           ? "there is one GPU, /gpu:0"
                           : fmt::format("there are {} GPUs, /gpu:0 to /gpu:{}",
                                         count, count - 1));
  }
  return Cuda::Open(index % count);
}

}  // namespace sluice::cuda
