// Fused programs. The elements are cut into tiles that stay in the nearest
// cache; each step of the program is one call of a vector loop over a tile. A
// tile's inputs are fetched while the one before is computed, and results too
// large for the caches are stored past them. Where all steps are cheap, even
// the way to the nearest cache and back is too long: these run as chains in
// registers (fused_chain.h), whose last elements, less than a block, are a
// tile.
#include "kernels/cpu/fused/fused.h"

#include <algorithm>
#include <cstring>

#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/sum_in_runs.h"

namespace sluice::cpu {
namespace {

void RunLogical(char op, const bool* a, const bool* b, bool* y, int64_t n) {
  switch (op) {
    case '!':
      for (int64_t i = 0; i < n; ++i) y[i] = !a[i];
      break;
    case '&':
      for (int64_t i = 0; i < n; ++i) y[i] = (a[i] & b[i]) != 0;
      break;
    case '|':
      for (int64_t i = 0; i < n; ++i) y[i] = (a[i] | b[i]) != 0;
      break;
    default:
      for (int64_t i = 0; i < n; ++i) y[i] = a[i] != b[i];
  }
}

// --- Sums --------------------------------------------------------------------

template <typename T>
T SumOf(const T* x, int64_t n) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return Simd().sum(x, n);
  } else {
    return Simd().sum_f64(x, n);
  }
}

// y[column] (+)= the sum over rows of x, which is part of a tile.
template <typename T>
void AddRows(const T* x, T* y, int64_t rows, int64_t columns, bool accumulate) {
  if constexpr (sizeof(T) == sizeof(float)) {
    Simd().column_sums(x, y, rows, columns, accumulate);
  } else if (accumulate) {
    T sums[kMostFusedTile];
    SumRowsInRuns(x, rows, columns, columns, sums);
    for (int64_t j = 0; j < columns; ++j) y[j] += sums[j];
  } else {
    SumRowsInRuns(x, rows, columns, columns, y);
  }
}

// result[columns] = scale * the sums over rows of sums[rows, columns].
template <typename T>
void AddPieces(const T* sums, int64_t rows, int64_t columns, T scale,
               T* result) {
  SumRowsInRuns(sums, rows, columns, columns, result);
  for (int64_t j = 0; j < columns; ++j) result[j] *= scale;
}

// Makes the result of what the pieces left in scratch memory, in their order.
template <typename T>
void CombineSums(const PreparedProgram& p, const T* scratch, T* result) {
  const T scale = static_cast<T>(p.sum_scale);
  if (p.sum == PreparedProgram::Sum::kLeading) {
    AddPieces(scratch, p.pieces(), p.row_elements, scale, result);
    return;
  }
  const int64_t split = p.pieces_per_row();
  for (int64_t piece = 0; split > 0 && piece < p.pieces(); piece += split) {
    AddPieces(scratch + piece, split, 1, scale, result + piece / split);
  }
}

// One piece of the elements, tile by tile.
class Piece {
 public:
  Piece(const PreparedProgram& p, const KernelContext& c) : p_(p), c_(c) {
    stride_ = p.tile * p.element_size;
    stream_ = p.stream;
    for (int i = 0; i < p.outputs && stream_; ++i) {
      stream_ = reinterpret_cast<uintptr_t>(c.output<char>(i)) % 64 == 0;
    }
  }

  void Run(int64_t piece) {
    const int64_t end = p_.PieceEnd(piece);
    const int64_t begin = RunBlocks(p_.PieceBegin(piece), end);
    int64_t n;
    for (int64_t at = begin; at < end; at += n) {
      n = std::min(p_.tile, end - at);
      if (p_.row_elements > p_.tile) {
        n = std::min(n, p_.row_elements - at % p_.row_elements);
      }
      for (const FusedRepeated& repeated : p_.repeated) LayOut(repeated, at, n);
      const int64_t next = std::min(p_.tile, end - at - n);
      const int64_t count = static_cast<int64_t>(p_.steps.size());
      for (int64_t s = 0; s < count; ++s) {
        // A share of the next tile's lines, so that they arrive meanwhile, and
        // of the last tile's results, so that they leave.
        Fetch(at + n + next * s / count, at + n + next * (s + 1) / count);
        RunStep(p_.steps[s], at, n);
        Stream(s + 1, count);
      }
      if (stream_) {
        streamed_ = {at, n, 0};
        bank_ = 1 - bank_;
      } else {
        for (const FusedKept& kept : p_.kept) Store(kept, at, n);
      }
      if (p_.sum == PreparedProgram::Sum::kNone) continue;
      if (p_.element_size == sizeof(float)) {
        AddUp<float>(piece, at, n, end);
      } else {
        AddUp<double>(piece, at, n, end);
      }
    }
    if (stream_) {
      Stream(1, 1);
      Simd().fence();
    }
  }

 private:
  // Returns the first element that is left.
  int64_t RunBlocks(int64_t begin, int64_t end) {
    if (p_.chain.steps.empty()) return begin;
    const int64_t blocks_end = end - (end - begin) % p_.chain.table->block;
    RunChain(p_.chain, c_, stream_, begin, blocks_end);
    return blocks_end;
  }

  // While results are streamed, tiles take turns with two banks of registers.
  char* Register(int i, int bank) {
    return scratch_ + (bank * p_.registers + i) * stride_;
  }
  char* Register(int i) { return Register(i, bank_); }

  const char* Find(const FusedPlace& place, int64_t at) {
    switch (place.kind) {
      case FusedPlace::Kind::kRegister:
        return Register(place.index);
      case FusedPlace::Kind::kInput:
        return c_.input<char>(place.index) + at * p_.element_size;
      case FusedPlace::Kind::kScalar:
        break;
    }
    return c_.input<char>(place.index);
  }

  void LayOut(const FusedRepeated& repeated, int64_t at, int64_t n) {
    const int64_t size = p_.element_size;
    const char* from = c_.input<char>(repeated.input);
    char* to = Register(repeated.reg);
    repeated.broadcast.ForEachRun(
        at, at + n,
        [&](const Broadcast::Offsets& offset, int64_t y, int64_t count) {
          const char* in = from + offset[0] * size;
          char* out = to + (y - at) * size;
          if (repeated.broadcast.step(0) == 1) {
            std::memcpy(out, in, static_cast<size_t>(count * size));
          } else if (size == sizeof(float)) {
            std::fill_n(reinterpret_cast<float*>(out), count,
                        *reinterpret_cast<const float*>(in));
          } else {
            std::fill_n(reinterpret_cast<double*>(out), count,
                        *reinterpret_cast<const double*>(in));
          }
        });
  }

  void Fetch(int64_t begin, int64_t end) {
    constexpr int64_t kLine = 64;
    for (int i : p_.arrays) {
      const char* in = c_.input<char>(i);
      for (int64_t at = begin * p_.element_size; at < end * p_.element_size;
           at += kLine) {
        __builtin_prefetch(in + at);
      }
    }
  }

  void RunStep(const FusedLoop& step, int64_t at, int64_t n) {
    const char* a = Find(step.operands[0], at);
    char* y = step.result < 0 ? c_.output<char>(0) + at * p_.element_size
                              : Register(step.result);
    switch (step.kind) {
      case FusedLoop::Kind::kUnary:
        return step.unary(a, y, n, step.params);
      case FusedLoop::Kind::kBinary:
        return step.binary(a, Find(step.operands[1], at), y, n, step.params);
      case FusedLoop::Kind::kSelect:
        return p_.select(a, Find(step.operands[1], at),
                         Find(step.operands[2], at), y, n);
      case FusedLoop::Kind::kLogical:
        return RunLogical(
            step.logical, reinterpret_cast<const bool*>(a),
            reinterpret_cast<const bool*>(Find(step.operands[1], at)),
            reinterpret_cast<bool*>(y), n);
    }
  }

  template <typename T>
  void AddUp(int64_t piece, int64_t at, int64_t n, int64_t end) {
    const int bank = stream_ ? 1 - bank_ : bank_;  // that of this tile
    const T* x = reinterpret_cast<const T*>(Register(p_.sum_register, bank));
    T* scratch = static_cast<T*>(c_.workspace());
    const int64_t row = p_.row_elements;
    const int64_t begin = p_.PieceBegin(piece);
    if (p_.sum == PreparedProgram::Sum::kLeading) {
      T* sums = scratch + piece * row + at % row;
      if (row <= p_.tile) {
        AddRows(x, sums, n / row, row, /*accumulate=*/at > begin);
      } else {
        AddRows(x, sums, 1, n, /*accumulate=*/at - begin >= row);
      }
      return;
    }
    T* result = c_.output<T>(p_.outputs - 1);
    const T scale = static_cast<T>(p_.sum_scale);
    if (row <= p_.tile) {
      for (int64_t r = 0; r < n / row; ++r) {
        result[at / row + r] = scale * SumOf(x + r * row, row);
      }
      return;
    }
    row_sum_ += static_cast<double>(SumOf(x, n));
    if ((at + n) % row != 0 && at + n < end) return;
    if (p_.pieces_per_row() > 0) {
      scratch[piece] = static_cast<T>(row_sum_);
    } else {
      result[at / row] = scale * static_cast<T>(row_sum_);
    }
    row_sum_ = 0;
  }

  void Store(const FusedKept& kept, int64_t at, int64_t n) {
    std::memcpy(c_.output<char>(kept.output) + at * p_.element_size,
                Register(kept.reg), static_cast<size_t>(n * p_.element_size));
  }

  // Stores the tile before this one up to `share` of `of` parts.
  void Stream(int64_t share, int64_t of) {
    const int64_t end = share == of ? streamed_.elements
                                    : streamed_.elements * share / of /
                                          kFusedTileUnit * kFusedTileUnit;
    if (end <= streamed_.done) return;
    const int64_t from = streamed_.done * p_.element_size;
    const int64_t bytes = end * p_.element_size - from;
    for (const FusedKept& kept : p_.kept) {
      char* out =
          c_.output<char>(kept.output) + streamed_.at * p_.element_size + from;
      Simd().stream_part(
          reinterpret_cast<const float*>(Register(kept.reg, 1 - bank_) + from),
          reinterpret_cast<float*>(out),
          bytes / static_cast<int64_t>(sizeof(float)));
    }
    streamed_.done = end;
  }

  const PreparedProgram& p_;
  const KernelContext& c_;
  int64_t stride_ = 0;
  double row_sum_ = 0;  // of the tiles of a long row so far
  bool stream_ = false;
  int bank_ = 0;
  struct {
    int64_t at = 0, elements = 0, done = 0;
  } streamed_;  // the tile before this one
  alignas(64) char scratch_[std::max<int64_t>(
      kFusedScratchBytes,
      2 * kMostFusedRegisters * kFusedTileUnit * sizeof(double))];
};

Result<KernelPtr> MakeFused(const KernelSpec& spec,
                            const simd::SimdKernels& table) {
  SLUICE_ASSIGN_OR_RETURN(const PreparedProgram prepared,
                          PrepareProgram(spec, table));
  const auto scratch =
      static_cast<size_t>(prepared.sum_scratch() * prepared.element_size);
  return KernelOf(
      [prepared,
       result_bytes = spec.outputs.back().bytes()](const KernelContext& c) {
        ParallelFor(prepared.pieces(), 1, [&](int64_t begin, int64_t end) {
          for (int64_t piece = begin; piece < end; ++piece) {
            Piece(prepared, c).Run(piece);
          }
        });
        if (prepared.sum == PreparedProgram::Sum::kNone) return;
        const int last = prepared.outputs - 1;
        if (prepared.elements == 0) {  // no piece: sums of nothing
          std::memset(c.output<char>(last), 0, result_bytes);
          return;
        }
        if (prepared.element_size == sizeof(float)) {
          CombineSums(prepared, static_cast<const float*>(c.workspace()),
                      c.output<float>(last));
        } else {
          CombineSums(prepared, static_cast<const double*>(c.workspace()),
                      c.output<double>(last));
        }
      },
      scratch);
}

}  // namespace

void RegisterFusedKernels(KernelTable& table) {
  for (const char* op : {"Fused", "FusedSum"}) {
    table.Register(
        {.op = op, .dtypes = kFloatDouble, .make = [](const KernelSpec& spec) {
           return MakeFused(spec, *SimdFor("baseline"));
         }});
    table.Register({.op = op,
                    .priority = 10,
                    .provider = "simd",
                    .dtypes = kFloatDouble,
                    .make = [](const KernelSpec& spec) {
                      return MakeFused(spec, Simd());
                    }});
  }
}

}  // namespace sluice::cpu
