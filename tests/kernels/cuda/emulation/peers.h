// Several emulated GPUs for a test.
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_PEERS_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_PEERS_H_

#include <cstdint>

#include "tests/kernels/cuda/emulation/emulator.h"
#include "tests/kernels/cuda/emulation/gpu.h"

namespace sluice::testing {

namespace emulation = cuda::emulation;

inline constexpr uint64_t kAllPeers = ~uint64_t{0};

constexpr uint64_t Peer(int device, int memory) {
  return uint64_t{1} << (emulation::kMostGpus * device + memory);
}

// Four GPUs, for a scope.
struct Gpus {
  explicit Gpus(uint64_t peers, int gpus = 4) {
    RegisterGpu();
    emulation::SetMachine({.gpus = gpus, .peers = peers});
  }
  ~Gpus() {
    emulation::Fail("", cudaSuccess);
    emulation::SetOrder(emulation::Order::kForward);
    emulation::SetMachine({});
  }
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_PEERS_H_
