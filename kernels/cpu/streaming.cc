#include "kernels/cpu/streaming.h"

#include <cstring>

#include "engine/threads.h"

namespace sluice::cpu {

void CopyBytes(const void* from, void* to, size_t bytes) {
  constexpr int64_t kGrain = 1 << 16;  // bytes per piece of work
  const char* source = static_cast<const char*>(from);
  char* target = static_cast<char*>(to);
  const bool stream = bytes >= kStreamedBytes && IsAligned(to);
  ParallelFor(
      static_cast<int64_t>(bytes), kGrain, [&](int64_t begin, int64_t end) {
        if (stream) {
          const int64_t floats =
              (end - begin) / static_cast<int64_t>(sizeof(float));
          Simd().stream(reinterpret_cast<const float*>(source + begin),
                        reinterpret_cast<float*>(target + begin), floats);
          begin += floats * static_cast<int64_t>(sizeof(float));
        }
        std::memcpy(target + begin, source + begin, end - begin);
      });
}

}  // namespace sluice::cpu
