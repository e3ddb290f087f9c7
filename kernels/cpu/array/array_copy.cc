#include "kernels/cpu/array/array_copy.h"

#include <algorithm>
#include <cstring>

#include "engine/ceil_div.h"
#include "engine/threads.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kPieceElements = 1 << 14;  // of one unit of work, about
constexpr int64_t kBlock = 32;  // transposes go in squares of this side

// Calls fn with the element size as a template argument.
template <typename Fn>
void DispatchSize(size_t bytes, Fn&& fn) {
  switch (bytes) {
    case 1:
      return fn.template operator()<1>();
    case 2:
      return fn.template operator()<2>();
    case 4:
      return fn.template operator()<4>();
    default:
      return fn.template operator()<8>();
  }
}

// to[column][row] = from[row][column], steps in bytes. Squares of four by four
// go through registers.
template <int kBytes>
void TransposeBlock(char* to, int64_t to_step, const char* from,
                    int64_t from_step, int64_t columns, int64_t rows) {
  constexpr int64_t kSide = 4;
  const int64_t even_columns = columns / kSide * kSide;
  const int64_t even_rows = rows / kSide * kSide;
  for (int64_t column = 0; column < even_columns; column += kSide) {
    for (int64_t row = 0; row < even_rows; row += kSide) {
      char in[kSide][kSide][kBytes], out[kSide][kSide][kBytes];
      for (int64_t i = 0; i < kSide; ++i) {
        std::memcpy(in[i], from + (row + i) * from_step + column * kBytes,
                    kSide * kBytes);
      }
      for (int64_t i = 0; i < kSide; ++i) {
        for (int64_t j = 0; j < kSide; ++j) {
          std::memcpy(out[j][i], in[i][j], kBytes);
        }
      }
      for (int64_t j = 0; j < kSide; ++j) {
        std::memcpy(to + (column + j) * to_step + row * kBytes, out[j],
                    kSide * kBytes);
      }
    }
  }
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = column < even_columns ? even_rows : 0; row < rows;
         ++row) {
      std::memcpy(to + column * to_step + row * kBytes,
                  from + row * from_step + column * kBytes, kBytes);
    }
  }
}

}  // namespace

StridedCopy::StridedCopy(DType dtype, const StridedMove& move)
    : bytes_(SizeOf(dtype)), outer_(move), empty_(move.elements() == 0) {
  if (empty_) return;
  auto& [dims, rank, to_offset, from_offset] = outer_;
  if (rank > 0) inner_ = dims[--rank];
  if (inner_.to == 1 && inner_.from != 1) {
    const auto end = dims.begin() + rank;
    const auto contiguous =
        std::find_if(dims.begin(), end, [](Dim d) { return d.from == 1; });
    if (contiguous != end) {
      transpose_ = true;
      lines_ = *contiguous;
      std::copy(contiguous + 1, end, contiguous);
      --rank;
    }
  }
  const int64_t per_step = transpose_ ? inner_.size : 1;
  const int64_t steps = transpose_ ? lines_.size : inner_.size;
  piece_ = std::max<int64_t>(kPieceElements / per_step, 1);
  if (transpose_) piece_ = RoundUp(piece_, kBlock);
  piece_ = std::min(piece_, steps);
  pieces_ = CeilDiv(steps, piece_);
  units_ = pieces_ * outer_.elements();
  grain_ = std::max<int64_t>(kPieceElements / (piece_ * per_step), 1);
}

// Walks over the outer dimensions, the last one fastest, keeping both offsets.
class StridedCopy::Cursor {
 public:
  Cursor(const StridedMove& move, int64_t row)
      : move_(move), to(move.to_offset), from(move.from_offset) {
    for (int i = move.rank - 1; i >= 0; --i) {
      const Dim& dim = move.dims[i];
      index_[i] = row % dim.size;
      row /= dim.size;
      to += index_[i] * dim.to;
      from += index_[i] * dim.from;
    }
  }
  void Advance() {
    for (int i = move_.rank - 1; i >= 0; --i) {
      const Dim& dim = move_.dims[i];
      to += dim.to;
      from += dim.from;
      if (++index_[i] < dim.size) return;
      to -= dim.size * dim.to;
      from -= dim.size * dim.from;
      index_[i] = 0;
    }
  }

 private:
  const StridedMove& move_;
  std::array<int64_t, StridedMove::kMaxDims> index_{};

 public:
  int64_t to, from;
};

// n elements of the innermost dimension.
template <int kBytes>
void StridedCopy::CopyLine(char* to, const char* from, int64_t n) const {
  if (inner_.to == 1 && inner_.from == 1) {
    std::memcpy(to, from, n * kBytes);
    return;
  }
  const int64_t to_step = inner_.to * kBytes;
  const int64_t from_step = inner_.from * kBytes;
  for (int64_t i = 0; i < n; ++i) {
    std::memcpy(to + i * to_step, from + i * from_step, kBytes);
  }
}

// `lines` lines: to[line][i] = from[i][line], square by square, so that both
// sides stay in the cache.
template <int kBytes>
void StridedCopy::Transpose(char* to, const char* from, int64_t lines) const {
  const int64_t to_step = lines_.to * kBytes;
  const int64_t from_step = inner_.from * kBytes;
  const int64_t n = inner_.size;
  for (int64_t line = 0; line < lines; line += kBlock) {
    for (int64_t i = 0; i < n; i += kBlock) {
      TransposeBlock<kBytes>(to + line * to_step + i * kBytes, to_step,
                             from + i * from_step + line * kBytes, from_step,
                             std::min(kBlock, lines - line),
                             std::min(kBlock, n - i));
    }
  }
}

template <int kBytes>
void StridedCopy::RunUnits(char* to, const char* from, int64_t begin,
                           int64_t end) const {
  const Dim& split = transpose_ ? lines_ : inner_;
  int64_t piece = begin % pieces_;
  Cursor row(outer_, begin / pieces_);
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t first = piece * piece_;
    const int64_t n = std::min(piece_, split.size - first);
    char* target = to + (row.to + first * split.to) * kBytes;
    const char* source = from + (row.from + first * split.from) * kBytes;
    if (transpose_) {
      Transpose<kBytes>(target, source, n);
    } else {
      CopyLine<kBytes>(target, source, n);
    }
    if (++piece == pieces_) {
      piece = 0;
      row.Advance();
    }
  }
}

void StridedCopy::Run(void* to, const void* from) const {
  if (empty_) return;
  ParallelFor(units_, grain_, [&](int64_t begin, int64_t end) {
    DispatchSize(bytes_, [&]<int kBytes>() {
      RunUnits<kBytes>(static_cast<char*>(to), static_cast<const char*>(from),
                       begin, end);
    });
  });
}

Result<KernelPtr> MakeMove(const KernelSpec& spec) {
  const StridedCopy copy(spec.outputs[0].dtype, MoveOf(spec));
  return KernelOf([copy](const KernelContext& c) {
    copy.Run(c.output<char>(0), c.input<char>(0));
  });
}

void FillElements(DType dtype, void* to, int64_t n, const void* value) {
  DispatchSize(SizeOf(dtype), [&]<int kBytes>() {
    ParallelFor(n, kPieceElements, [&](int64_t begin, int64_t end) {
      char element[kBytes];
      std::memcpy(element, value, kBytes);
      char* target = static_cast<char*>(to);
      for (int64_t i = begin; i < end; ++i) {
        std::memcpy(target + i * kBytes, element, kBytes);
      }
    });
  });
}

}  // namespace sluice::cpu
