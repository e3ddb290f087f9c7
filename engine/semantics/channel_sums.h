// The statistics of a channel from two sums over its values, which a
// convolution's kernel has in passing: its own, and that of the squares. Of a
// channel whose mean is large beside its deviation the difference of the two
// has no digits left, so there it is not sound, and the values are to be read
// themselves. The kernels of all devices share it.
#ifndef SLUICE_ENGINE_SEMANTICS_CHANNEL_SUMS_H_
#define SLUICE_ENGINE_SEMANTICS_CHANNEL_SUMS_H_

// Compiled for the CPU, and by nvcc for the GPU too.
#ifdef __CUDACC__
#define SLUICE_SUMS_FN __host__ __device__ __forceinline__
#else
#define SLUICE_SUMS_FN inline
#endif

namespace sluice {

template <typename C>
struct MomentsOfSums {
  C mean = C(0), squares = C(0);  // squared distances from the mean, summed
  bool sound = false;
};

// Of `count` values. Where sums are good to a part d of what is summed, the
// variance is good to d * (1 + 3 r) at least, r = (mean / deviation)^2: at the
// most that counts as sound 50 d. In float, sums as trees or of tiles have d of
// some 1e-6. What is not finite, and sums of no values, are not sound.
template <typename C>
SLUICE_SUMS_FN MomentsOfSums<C> MomentsOf(C sum, C squares, C count) {
  constexpr C kLargest = C(16);  // of r
  MomentsOfSums<C> m;
  m.mean = sum / count;
  const C of_mean = sum * m.mean;
  m.squares = squares - of_mean;
  const bool finite = m.squares - m.squares == C(0);
  m.sound = count > C(0) && finite && of_mean <= kLargest * m.squares;
  return m;
}

}  // namespace sluice

#undef SLUICE_SUMS_FN

#endif  // SLUICE_ENGINE_SEMANTICS_CHANNEL_SUMS_H_
