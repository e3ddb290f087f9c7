// FNV-1a, 64 bits: for names that follow from contents, and to notice damage,
// not against malice.
#ifndef SLUICE_KERNELS_CUDA_RUNTIME_FINGERPRINT_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_FINGERPRINT_H_

#include <cstdint>
#include <string_view>

namespace sluice::cuda {

// The fingerprint of a text. For several texts, that of one is the seed of the
// next.
inline uint64_t Fingerprint(std::string_view text,
                            uint64_t seed = 0xcbf29ce484222325u) {
  for (char c : text) {
    seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return seed;
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_FINGERPRINT_H_
