// Timing of a library's candidates for one kernel, when the kernel is made: on
// operands of its own, before any step runs.
#ifndef SLUICE_KERNELS_CUDA_MEASURE_H_
#define SLUICE_KERNELS_CUDA_MEASURE_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cuda/check.h"

namespace sluice::cuda {

// A stream, device memory and two events, of the current device, for a while.
class Bench {
 public:
  Bench() = default;
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    for (void* p : memory_) cudaFree(p);
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  Status Open() {
    SLUICE_RETURN_IF_ERROR(
        Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
              "making a stream"));
    SLUICE_RETURN_IF_ERROR(Check(cudaEventCreate(&begin_), "making an event"));
    return Check(cudaEventCreate(&end_), "making an event");
  }
  cudaStream_t stream() const { return stream_; }

  // Zeros. Resource exhaustion leaves no error behind.
  Result<void*> Allocate(size_t bytes) {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, std::max<size_t>(bytes, 1));
    if (error != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // the next launch would see it
      return Check(error, "memory to measure with");
    }
    memory_.push_back(memory);
    SLUICE_RETURN_IF_ERROR(
        Check(cudaMemsetAsync(memory, 0, bytes, stream_), "zeros"));
    return memory;
  }

  // Milliseconds of work(), which adds to the stream: the least of a few runs,
  // after one that loads code. Infinity where it fails.
  template <typename Work>
  float Measure(Work work) {
    constexpr float kNever = std::numeric_limits<float>::infinity();
    constexpr int kRuns = 4;
    float least = kNever;
    for (int run = 0; run <= kRuns; ++run) {
      if (cudaEventRecord(begin_, stream_) != cudaSuccess || !work().ok() ||
          cudaEventRecord(end_, stream_) != cudaSuccess ||
          cudaEventSynchronize(end_) != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        return kNever;
      }
      float milliseconds = kNever;
      if (run > 0 &&
          cudaEventElapsedTime(&milliseconds, begin_, end_) == cudaSuccess) {
        least = std::min(least, milliseconds);
      }
    }
    return least;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<void*> memory_;
};

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_MEASURE_H_
