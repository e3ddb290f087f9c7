// Marks a loop whose iterations touch only their own elements, so that it is
// vectorised although input and output may be the same array.
#ifndef SLUICE_KERNELS_CPU_SIMD_LOOP_H_
#define SLUICE_KERNELS_CPU_SIMD_LOOP_H_

#if defined(__clang__)
// Loops that call the C library stay scalar, which clang would warn of.
#pragma clang diagnostic ignored "-Wpass-failed"
#define SLUICE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define SLUICE_INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif  // SLUICE_KERNELS_CPU_SIMD_LOOP_H_
