// An index or label that is out of range, as threads report it: one word of
// pinned memory, which host and device see at one address.
#ifndef SLUICE_KERNELS_CUDA_DEVICE_BAD_INDEX_H_
#define SLUICE_KERNELS_CUDA_DEVICE_BAD_INDEX_H_

namespace sluice::cuda {

// Upper half: the position of the index, cut to 32 bits. Lower half: the index,
// as int32, or the nearest there is to it. bad_index_device.h writes it,
// index_report.h makes it an error.
using BadIndex = unsigned long long;
inline constexpr BadIndex kNoBadIndex = ~BadIndex{0};

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_BAD_INDEX_H_
