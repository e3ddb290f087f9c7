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

// Moments of `count` values from their sum and sum of squares. If sums have a
// relative error d, the variance has at most d * (1 + 3 r), with
// r = (mean / deviation)^2: 50 d at the largest r that counts as sound. In
// float, sums by trees or tiles have d of about 1e-6. Non-finite values, and
// sums of no values, are not sound.
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
