// Fused programs of a few cheap functions as chains (kernels/cpu/simd/chain.h):
// what is computed next is in registers already, and arrays are read and
// written as by a copy.
#ifndef SLUICE_KERNELS_CPU_FUSED_FUSED_CHAIN_H_
#define SLUICE_KERNELS_CPU_FUSED_FUSED_CHAIN_H_

#include <vector>

#include "engine/kernel.h"
#include "engine/semantics/fused_program.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {

// One step, with operands still to be found.
struct FusedChainStep {
  enum class Place : uint8_t {
    kNone,
    kArray,   // input, element by element
    kScalar,  // input of one element
    kKept,    // a block in scratch memory
    kOutput,
  };
  simd::ChainFn run = nullptr;  // null: stores to an output
  Place operand = Place::kNone;
  int operand_index = 0;
  Place result = Place::kNone;
  int result_index = 0;
};

inline constexpr int kMostChainSteps = 48;
inline constexpr int kMostChainBlocks = 16;

struct FusedChain {
  std::vector<FusedChainStep> steps;  // empty: not possible
  int blocks = 0;                     // kept in scratch memory at once
  const simd::ChainKernels* table = nullptr;
};

// The program as a chain, if it is one: float32, all functions of the table,
// every input an array of the result's shape or one element.
FusedChain ChainOf(const KernelSpec& spec, const FusedProgram& program,
                   const simd::ChainKernels& table);

// Computes elements [begin, end), a multiple of the table's block. With `past`,
// outputs are stored past the caches (they are aligned to 64 bytes, and a fence
// must follow).
void RunChain(const FusedChain& chain, const KernelContext& context, bool past,
              int64_t begin, int64_t end);

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_FUSED_FUSED_CHAIN_H_
