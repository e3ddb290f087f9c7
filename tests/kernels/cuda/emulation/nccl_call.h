// What the emulated NCCL computes.
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_NCCL_CALL_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_NCCL_CALL_H_

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/device_group.h"

namespace sluice::cuda::emulation {

// What must be the same on all ranks.
struct Call {
  DeviceExchange::Verb verb;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  size_t count;
  uint64_t recording;  // the how manieth of its rank; 0: not recorded
  friend bool operator==(const Call&, const Call&) = default;
};
// That each of `size` ranks gives.
size_t BytesGiven(const Call& call, int size);
// Writes what the rank gets of what all have given.
void Finish(const Call& call, const std::vector<std::string>& given, int of,
            void* to);

}  // namespace sluice::cuda::emulation

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_NCCL_CALL_H_
