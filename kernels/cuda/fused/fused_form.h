// What a Fused or FusedSum node computes, as CUDA kernels need to know it: from
// its spec, without the sizes (FusedForm) and with them (FusedWork).
#ifndef SLUICE_KERNELS_CUDA_FUSED_FUSED_FORM_H_
#define SLUICE_KERNELS_CUDA_FUSED_FUSED_FORM_H_

#include <vector>

#include "engine/kernel.h"
#include "engine/semantics/fused_program.h"
#include "kernels/cuda/fused/fused_arguments.h"

namespace sluice::cuda {

// How an input is read.
enum class FusedRead : uint8_t {
  kElements,  // one for each of the result
  kScalar,    // it has one
  kAlong,     // it repeats, but not along the innermost dimension
  kRepeated,  // it repeats along that, too
};

enum class FusedSumKind : uint8_t { kNone, kLeading, kTrailing };

struct FusedForm {
  DType dtype = DType::kFloat32;
  FusedProgram program;
  std::vector<FusedRead> reads;
  int rank = 0;             // dimensions that the inputs which repeat need
  std::vector<int> stored;  // values that are outputs element by element
  FusedSumKind sum = FusedSumKind::kNone;
  int summed = -1;  // the value that is summed into the last output
};

struct FusedWork {
  FusedForm form;
  FusedArguments arguments;  // but for the pointers and `whole`
  int64_t blocks = 0;
  size_t shared_bytes = 0;  // per block
  // Packs may be accessed at once if pointers are aligned to 16 bytes.
  bool whole = false;
  int64_t results = 0;         // of the sum
  size_t workspace_bytes = 0;  // for its segments
};

// For a kernel that takes `pack` elements at once. states: sums of one segment,
// too, are left to the second kernel. Unimplemented beyond the limits of
// FusedArguments.
Result<FusedWork> FusedWorkOf(const KernelSpec& spec, int pack, bool states);

// How many elements generated kernels take at once: 16 bytes.
inline int FusedPack(const KernelSpec& spec) {
  return static_cast<int>(16 / SizeOf(spec.inputs[0].dtype));
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_FUSED_FUSED_FORM_H_
