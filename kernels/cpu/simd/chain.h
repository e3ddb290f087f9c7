// Chains of elementwise functions of float in registers. A block of elements
// stays in eight vector registers from the first step to the last: a step is a
// function that takes them as its arguments and ends with a call of the next
// step, which the compiler makes a jump. So a step costs its arithmetic and a
// jump that is always predicted, no load and no store.
#ifndef SLUICE_KERNELS_CPU_SIMD_CHAIN_H_
#define SLUICE_KERNELS_CPU_SIMD_CHAIN_H_

#include <cstdint>

namespace sluice::simd {

inline constexpr int64_t kMostChainBlock = 64;

// Really takes the step, the position in the arrays, and the block.
using ChainFn = void (*)();

struct ChainStep {
  ChainFn run = nullptr;
  const float* operand = nullptr;
  int64_t advance = 0;  // 1: operand is an array; 0: a block, or one element
  float* result = nullptr;
};

// The forms of a function of one operand (`unary`) or two: the block may be
// the first or the second, the other an array (or a block in memory) or one
// element.
struct ChainEntry {
  const char* name;  // the graph's op name, "Relu"
  ChainFn unary;
  ChainFn with_array, with_scalar;  // op(block, operand)
  ChainFn array_with, scalar_with;  // op(operand, block)
};

struct ChainKernels {
  int64_t block;  // elements, at most kMostChainBlock
  ChainFn load, load_scalar;
  ChainFn keep;           // to `result`, a block in memory
  ChainFn store, stream;  // to the array `result`; past the caches, aligned
  ChainFn end;            // of a chain
  const ChainEntry* entries;
  int num_entries;
  // Elements [begin, end), a multiple of `block`, one block after another.
  void (*run)(const ChainStep* steps, int64_t begin, int64_t end);
};

}  // namespace sluice::simd

#endif  // SLUICE_KERNELS_CPU_SIMD_CHAIN_H_
