// What the parts of the emulated runtime have in common.
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_MACHINE_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_MACHINE_H_

#include <cuda_runtime.h>

#include <functional>
#include <mutex>
#include <string_view>
#include <vector>

#include "tests/kernels/cuda/emulation/call_mutex.h"
#include "tests/kernels/cuda/emulation/device_memory.h"
#include "tests/kernels/cuda/emulation/emulator.h"

namespace sluice::cuda::emulation {

// Calls come from several threads; the emulated devices do one thing at a time.
// Held by who calls what follows.
CallMutex& Calls();
struct Lock : std::lock_guard<CallMutex> {
  Lock() : std::lock_guard<CallMutex>(Calls()) {}
};

DeviceMemory& Memory();
const Machine& TheMachine();
int CurrentDevice();  // the thread's

// What the function fails with, if it is its turn.
cudaError_t Failing(std::string_view function);
// Of all calls and work since the device is; else cudaSuccess.
cudaError_t Lost();
// What work did, until someone waits for it.
void NoteFailure(cudaError_t error);
cudaError_t TakeFailure();

// The devices whose memory kernels of one may use, as bits.
unsigned ReachOf(int device);
void CountCopy(const void* to, const void* from, size_t bytes);

// 0 to n - 1 in the order that tests want things to be done in.
std::vector<int> InOrder(int n);

// Work of a stream. On a device, with the memory that its kernels may use; a
// copy may use that of all.
struct Work {
  std::function<cudaError_t()> task;
  bool copies = false;
};
// Adds to it, or does it now where there is no stream.
cudaError_t Add(cudaStream_t stream, Work work);
// Whether what is added to it is recorded.
bool Recorded(cudaStream_t stream);
// Whether the thread's device is capturing, where it may not allocate.
bool Capturing();

}  // namespace sluice::cuda::emulation

// Calls that free something do so whatever is wrong.
#define SLUICE_MAY_FAIL()                                            \
  if (const auto error = sluice::cuda::emulation::Failing(__func__); \
      error != cudaSuccess) {                                        \
    return error;                                                    \
  }

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_MACHINE_H_
