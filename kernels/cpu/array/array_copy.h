// Moving elements without looking at them: what all ops that only rearrange
// come down to.
#ifndef SLUICE_KERNELS_CPU_ARRAY_ARRAY_COPY_H_
#define SLUICE_KERNELS_CPU_ARRAY_ARRAY_COPY_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"
#include "engine/semantics/strided_move.h"

namespace sluice::cpu {

// Purpose: a StridedMove, prepared once: contiguous runs go by memcpy, and
// transposes block by block.
//
// Threads: immutable; Run uses ParallelFor.
class StridedCopy {
 public:
  StridedCopy(DType dtype, const StridedMove& move);

  void Run(void* to, const void* from) const;

 private:
  using Dim = StridedMove::Dim;
  class Cursor;

  template <int kBytes>
  void RunUnits(char* to, const char* from, int64_t begin, int64_t end) const;
  template <int kBytes>
  void CopyLine(char* to, const char* from, int64_t n) const;
  template <int kBytes>
  void Transpose(char* to, const char* from, int64_t lines) const;

  size_t bytes_;
  StridedMove outer_;  // all dimensions but those below

  // A unit of work is a piece of a line (of the innermost dimension) or, in a
  // transpose, a piece of lines_.
  bool empty_ = false;
  bool transpose_ = false;
  Dim inner_{1, 1, 1};
  Dim lines_{1, 1, 1};  // the dimension contiguous in `from`, if transposing
  int64_t piece_ = 1, pieces_ = 1;
  int64_t units_ = 1, grain_ = 1;
};

// An op that is MoveOf(spec), to all of its output.
Result<KernelPtr> MakeMove(const KernelSpec& spec);

// n elements, all equal to the one at `value`.
void FillElements(DType dtype, void* to, int64_t n, const void* value);

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_ARRAY_ARRAY_COPY_H_
