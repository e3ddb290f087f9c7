// What our kernels are measured against: libraries called directly, and loops
// written by hand.
#ifndef SLUICE_BENCH_KERNEL_BENCH_PEERS_H_
#define SLUICE_BENCH_KERNEL_BENCH_PEERS_H_

#include <cstdint>

#include "bench/kernel_bench/case.h"

namespace sluice::bench {

// --- Loops, peer_loops.cc, compiled for the machine they are built on
// ---------

// Runs `rounds` of independent multiply-adds in registers. Returns the
// floating-point operations of one round.
double MultiplyAdd(int64_t rounds);

// Whether a result of so many bytes is better not kept in the caches.
bool Streams(int64_t bytes);

// All of these are spread over the compute threads. stream: with stores that
// pass the caches by.
void CopyLoop(const float* x, float* y, int64_t n, bool stream);
void ScaleLoop(float* x, int64_t n);  // in place
void AddLoop(const float* a, const float* b, float* y, int64_t n);
void ReluLoop(const float* x, float* y, int64_t n);
// The six operations of suite_elementwise.cc's chain in one pass.
void ChainLoop(const float* x, const float* a, float s, float t, float* y,
               int64_t n);
double SumLoop(const float* x, int64_t n);
// sum[column] over the rows, all in float.
void ColumnSumLoop(const float* x, int64_t rows, int64_t columns, float* sum);
void SgdLoop(const float* g, float* p, float rate, int64_t n);
void MomentumLoop(const float* g, float* v, float* p, float rate,
                  float momentum, int64_t n);

// A side around one of these.
Subject LoopPeer(const std::function<void()>& run, std::vector<Tensor> results);

// --- Libraries
// ----------------------------------------------------------------

// OpenBLAS's product for a MatMul, peer_blas.cc; no run where the library is
// not found when this runs.
Subject BlasProduct(const KernelSpec& spec, const Subject& ours);

// oneDNN's primitive for a node, peer_onednn.cc, in the memory layouts it likes
// best; converting operands to them is not counted. No run where oneDNN was
// not found at build time, or has nothing but a reference implementation.
Subject OnednnPeer(const KernelSpec& spec);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_KERNEL_BENCH_PEERS_H_
