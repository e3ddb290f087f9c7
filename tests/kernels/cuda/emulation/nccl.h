// NCCL as far as NcclRanks uses it, between emulated GPUs of this process whose
// ranks are threads.
//
// Exchanges are matched by the order in which their streams come to them, as on
// a GPU: the stream of a rank waits there until all ranks have come, or its
// communicator is aborted, which leaves what is in the result. Where NCCL says
// that the outcome is undefined the emulation ends the program with a line:
// ranks at different exchanges, or one that replays what another does not.
// An abort and an end return when nothing is left that has recorded an
// exchange, and a call may say that it is in progress.
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_NCCL_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_NCCL_H_

#include <cstdint>
#include <functional>

#include "engine/device_group.h"

namespace sluice::cuda::emulation {

// For dist::NcclGroup::Join, in place of the library's.
const DeviceGroups& EmulatedNccl();

struct NcclFault {
  enum Kind : uint8_t {
    kNone,
    kHangs,    // the rank's GPU does not come to the exchange
    kFails,    // nor does it, and NCCL says that something is wrong
    kRefuses,  // the call that adds the exchange fails
    kStays,    // as kHangs, and no abort ends it
  };
  Kind kind = kNone;
  int rank = 0;
  int64_t after = 0;           // exchanges of that rank, from now on
  std::function<void()> then;  // when it has happened; without locks
};
// One at a time, from now on.
void SetNcclFault(const NcclFault& fault);
// Ends what kStays has begun.
void EndNcclFault();
// Makes ranks late, by up to a millisecond, and calls say that they are in
// progress; 0: no more.
void SetNcclDelays(unsigned seed);

// Exchanges that were done so far by all ranks, and of these by replays.
struct NcclCounts {
  int64_t done = 0, replayed = 0;
};
NcclCounts NcclExchanges();

}  // namespace sluice::cuda::emulation

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_NCCL_H_
