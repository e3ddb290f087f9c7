// Timing of a library's candidates for one kernel, when the kernel is made: on
// operands of its own, before any step runs.
#ifndef SLUICE_KERNELS_CUDA_RUNTIME_MEASURE_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_MEASURE_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cuda/runtime/check.h"

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
    if (flush_ != nullptr) cudaFree(flush_);
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  Status Open() {
    SLUICE_RETURN_IF_ERROR(
        Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
              "making a stream"));
    SLUICE_RETURN_IF_ERROR(Check(cudaEventCreate(&begin_), "making an event"));
    SLUICE_RETURN_IF_ERROR(Check(cudaEventCreate(&end_), "making an event"));
    if (cudaMalloc(&flush_, kFlushBytes) != cudaSuccess) {
      flush_ = nullptr;  // timed with whatever the cache holds, then
      static_cast<void>(cudaGetLastError());
    }
    return {};
  }
  cudaStream_t stream() const { return stream_; }

  // Holds numbers that are finite in every float type and unlike each other:
  // products of zeros draw less power and run faster than any a model has.
  // Resource exhaustion leaves no error behind.
  Result<void*> Allocate(size_t bytes) {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, std::max<size_t>(bytes, 1));
    if (error != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // the next launch would see it
      return Check(error, "memory to measure with");
    }
    memory_.push_back(memory);
    SLUICE_RETURN_IF_ERROR(Fill(static_cast<char*>(memory), bytes));
    return memory;
  }

  // Frees memory that Allocate returned; null is allowed.
  void Free(void* memory) {
    if (memory == nullptr) return;
    cudaStreamSynchronize(stream_);
    cudaFree(memory);
    std::erase(memory_, memory);
  }

  // Milliseconds of work(), which adds to the stream: the least of a few runs,
  // after one that loads code. Infinity where it fails. Before each the L2
  // cache is filled with something else: in a step operands come from memory,
  // as what ran since they were written has passed through the cache.
  template <typename Work>
  float Measure(Work work) {
    constexpr float kNever = std::numeric_limits<float>::infinity();
    constexpr int kRuns = 4;
    float least = kNever;
    for (int run = 0; run <= kRuns; ++run) {
      if ((flush_ != nullptr &&
           cudaMemsetAsync(flush_, run, kFlushBytes, stream_) != cudaSuccess) ||
          cudaEventRecord(begin_, stream_) != cudaSuccess || !work().ok() ||
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
  // Copies a pattern from the host, then what is there so far behind itself.
  Status Fill(char* memory, size_t bytes) {
    if (pattern_.empty()) {
      pattern_.resize(size_t{1} << 20);
      uint64_t state = 1;
      for (size_t i = 0; i < pattern_.size(); ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const auto byte = static_cast<unsigned char>(state >> 56);
        // Every other byte is the upper one of a half: a sign, and an exponent
        // that is in range for all types.
        pattern_[i] = i % 2 == 0 ? byte : (byte & 0x83) | 0x38;
      }
    }
    size_t filled = std::min(bytes, pattern_.size());
    cudaError_t error = cudaMemcpyAsync(memory, pattern_.data(), filled,
                                        cudaMemcpyDefault, stream_);
    while (error == cudaSuccess && filled < bytes) {
      const size_t more = std::min(filled, bytes - filled);
      error = cudaMemcpyAsync(memory + filled, memory, more, cudaMemcpyDefault,
                              stream_);
      filled += more;
    }
    return Check(error, "filling memory to measure with");
  }

  // More than any L2 cache holds.
  static constexpr size_t kFlushBytes = size_t{256} << 20;

  cudaStream_t stream_ = nullptr;
  void* flush_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<void*> memory_;
  std::vector<unsigned char> pattern_;
};

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_MEASURE_H_
