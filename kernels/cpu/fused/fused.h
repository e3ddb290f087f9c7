// A fused program made ready for the CPU: which loop each step runs and where
// its operands are.
#ifndef SLUICE_KERNELS_CPU_FUSED_FUSED_H_
#define SLUICE_KERNELS_CPU_FUSED_FUSED_H_

#include <algorithm>
#include <array>
#include <vector>

#include "engine/ceil_div.h"
#include "engine/kernel.h"
#include "engine/semantics/fused_program.h"
#include "kernels/cpu/elementwise/elementwise.h"
#include "kernels/cpu/fused/fused_chain.h"

namespace sluice::cpu {

// Where a step finds an operand.
struct FusedPlace {
  enum class Kind : uint8_t {
    kRegister,  // a tile in scratch memory
    kInput,     // an array, element by element
    kScalar,    // an input of one element
  };
  Kind kind = Kind::kRegister;
  int index = 0;
};

struct FusedLoop {
  enum class Kind : uint8_t { kUnary, kBinary, kSelect, kLogical };
  Kind kind = Kind::kUnary;
  simd::UnaryFn unary = nullptr;
  simd::BinaryFn binary = nullptr;
  char logical = 0;  // '!', '&', '|' or '^'
  simd::OpParams params;
  std::array<FusedPlace, 3> operands;
  int result = 0;  // a register; -1: straight to output 0
};

// An input that repeats, laid out for each tile.
struct FusedRepeated {
  int input = 0;
  int reg = 0;
  Broadcast broadcast;
};

// An output that is copied from a register at a tile's end.
struct FusedKept {
  int output = 0;
  int reg = 0;
};

// Scratch memory of one thread, on its stack: about the nearest cache.
inline constexpr int64_t kFusedScratchBytes = 32 << 10;
// Enough for every value of what the fusion pass makes.
inline constexpr int kMostFusedRegisters =
    kMostProgramInputs + kMostProgramSteps;
inline constexpr int64_t kMostFusedTile = 2048;
inline constexpr int64_t kFusedTileUnit = 64;  // elements: whole cache lines

struct PreparedProgram {
  int64_t elements = 0;
  int64_t element_size = 0;
  int64_t tile = 0;
  int64_t grain = 0;  // elements of a piece of work
  std::vector<FusedLoop> steps;
  std::vector<FusedRepeated> repeated;
  std::vector<int> arrays;  // inputs read element by element
  std::vector<FusedKept> kept;
  int outputs = 0;
  bool stream = false;
  int registers = 0;
  FusedChain chain;  // for whole blocks of elements, where possible

  // The sum that the last output may be: rows of row_elements are summed each
  // for itself (trailing) or with each other (leading). A tile is whole rows or
  // within one; a piece, whole rows or within one.
  enum class Sum : uint8_t { kNone, kLeading, kTrailing };
  Sum sum = Sum::kNone;
  int64_t row_elements = 0;
  int sum_register = 0;
  double sum_scale = 1;

  int64_t pieces_per_row() const {  // 0: a piece is whole rows
    return sum == Sum::kTrailing && row_elements > grain
               ? CeilDiv(row_elements, grain)
               : 0;
  }
  int64_t pieces() const {
    const int64_t split = pieces_per_row();
    return split > 0 ? elements / row_elements * split
                     : CeilDiv(elements, grain);
  }
  int64_t PieceBegin(int64_t piece) const {
    const int64_t split = pieces_per_row();
    return split > 0 ? piece / split * row_elements + piece % split * grain
                     : piece * grain;
  }
  int64_t PieceEnd(int64_t piece) const {
    const int64_t split = pieces_per_row();
    return split > 0 ? std::min(PieceBegin(piece) + grain,
                                (piece / split + 1) * row_elements)
                     : std::min(PieceBegin(piece) + grain, elements);
  }
  // Elements of scratch memory that the pieces' sums take.
  int64_t sum_scratch() const {
    return sum == Sum::kLeading   ? pieces() * row_elements
           : pieces_per_row() > 0 ? pieces()
                                  : 0;
  }
  void (*select)(const void* c, const void* a, const void* b, void* y,
                 int64_t n) = nullptr;
};

// The loops are those of `table`. Errors say what the program cannot have.
Result<PreparedProgram> PrepareProgram(const KernelSpec& spec,
                                       const simd::SimdKernels& table);

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_FUSED_FUSED_H_
