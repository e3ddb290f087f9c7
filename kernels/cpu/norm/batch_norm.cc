// Batch normalisation. Statistics are taken per block of rows, in two passes
// while the block is in cache, and blocks are combined in order, in double, by
// the formula of Chan, Golub and LeVeque (1979): no digits are lost to a large
// mean, and the bits do not depend on threads.
#include "kernels/cpu/norm/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "engine/semantics/channel_sums.h"
#include "engine/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/norm/row_blocks.h"
#include "kernels/cpu/streaming.h"

namespace sluice::cpu {

void RegisterBatchNormKernels(KernelTable& table);

namespace {

// x is [rows, channels]; a block has enough rows that two vectors of channels
// for each are little beside them, in eights, so that its mask begins at a
// byte.
struct BatchNormGeometry : RowBlocks {
  double epsilon = 0, momentum = 0;

  int64_t channels() const { return width; }
};

BatchNormGeometry GeometryOf(const KernelSpec& spec) {
  BatchNormGeometry g{RowBlocksOf(spec.inputs[0].shape, 8, 32)};
  if (g.width == 0) g.rows = 0;  // there may be 2^62 rows of nothing
  if (spec.attrs.Has("epsilon")) g.epsilon = spec.attrs.Float("epsilon");
  if (spec.attrs.Has("momentum")) g.momentum = spec.attrs.Float("momentum");
  return g;
}

// Calls fn(block, first row, number of rows) for all blocks.
template <typename Fn>
void ForBlocks(const BatchNormGeometry& g, Fn fn) {
  ParallelFor(g.blocks(), g.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t row = b * g.block_rows;
      fn(b, row, std::min(g.block_rows, g.rows - row));
    }
  });
}

// Calls fn(first row, number of rows) for all rows, of some blocks at a time.
template <typename Fn>
void ForRows(const BatchNormGeometry& g, Fn fn) {
  ParallelFor(g.blocks(), g.grain(), [&](int64_t begin, int64_t end) {
    const int64_t row = begin * g.block_rows;
    fn(row, std::min(end * g.block_rows, g.rows) - row);
  });
}

template <typename T>
bool Streams(const BatchNormGeometry& g, const T* y) {
  return g.rows * g.channels() * sizeof(T) >= kStreamedBytes &&
         reinterpret_cast<uintptr_t>(y) % kAlignment == 0;
}

// Combines the blocks into the first.
template <typename C>
void CombineMoments(const BatchNormGeometry& g, C* moments) {
  const int64_t channels = g.channels();
  ForCombinedColumns(g, [&](int64_t first, int64_t n) {
    C* const of_first = moments + first;
    double mean[kCombinedColumns], squares[kCombinedColumns];
    std::copy_n(of_first, n, mean);
    std::copy_n(of_first + channels, n, squares);
    int64_t before = std::min(g.block_rows, g.rows);
    for (int64_t b = 1; b < g.blocks(); ++b) {
      const C* const other = of_first + 2 * b * channels;
      const int64_t here = std::min(g.block_rows, g.rows - b * g.block_rows);
      const double weight =
          static_cast<double>(here) / static_cast<double>(before + here);
      const double cross = static_cast<double>(before) * weight;
      for (int64_t c = 0; c < n; ++c) {
        const double d = static_cast<double>(other[c]) - mean[c];
        mean[c] += d * weight;
        squares[c] += static_cast<double>(other[channels + c]) + d * d * cross;
      }
      before += here;
    }
    for (int64_t c = 0; c < n; ++c) {
      of_first[c] = static_cast<C>(mean[c]);
      of_first[channels + c] = static_cast<C>(squares[c]);
    }
  });
}

// What an op has beside plain batch normalisation.
struct Extras {
  bool relu = false;  // and a mask: the last output, or a gradient's input 4
  bool add = false;   // an addend, input 5, or a gradient of it, output 3
  bool sums = false;  // of x and of its squares, the last two inputs
};

// Moments from given sums in place of those of the values, where they are
// sound.
template <typename C>
void TakeSums(const BatchNormGeometry& g, const C* sums,
              const C* sums_of_squares, C* mean, C* squares) {
  for (int64_t c = 0; c < g.channels(); ++c) {
    const MomentsOfSums<C> given =
        MomentsOf(sums[c], sums_of_squares[c], static_cast<C>(g.rows));
    if (!given.sound) continue;
    mean[c] = given.mean;
    squares[c] = given.squares;
  }
}

template <typename T, typename C = ComputeType<T>>
void NormalizeAll(const BatchNormGeometry& g, const BatchNormLoops<T>& loops,
                  simd::BatchNormBlock<T, C> all) {
  all.channels = g.channels();
  all.stream = Streams(g, all.y);
  ForRows(g, [&](int64_t row, int64_t rows) {
    const int64_t at = row * g.channels();
    simd::BatchNormBlock<T, C> block = all;
    block.rows = rows;
    block.x += at;
    block.y += at;
    if (block.addend != nullptr) block.addend += at;
    if (block.mask != nullptr) block.mask += at / 8;
    loops.normalize(block);
  });
}

template <typename T>
void BatchNorm(const BatchNormGeometry& g, const BatchNormLoops<T>& loops,
               Extras extras, const KernelContext& k) {
  using C = ComputeType<T>;
  const T* x = k.input<T>(0);
  C* moments = static_cast<C*>(k.workspace());
  if (g.rows == 0) std::fill_n(moments, 2 * g.channels(), C(0));
  ForBlocks(g, [&](int64_t block, int64_t row, int64_t rows) {
    C* mean = moments + 2 * block * g.channels();
    loops.moments(x + row * g.channels(), rows, g.channels(), mean,
                  mean + g.channels());
  });
  CombineMoments(g, moments);
  if (extras.sums) {
    const int first = extras.add ? 6 : 5;
    TakeSums(g, k.input<C>(first), k.input<C>(first + 1), moments,
             moments + g.channels());
  }

  const C* mean = moments;
  C* factor = moments + g.channels();  // takes the place of the squares
  const C n = static_cast<C>(std::max<int64_t>(g.rows, 1));
  const C unbiased = static_cast<C>(std::max<int64_t>(g.rows - 1, 1));
  // An empty batch says nothing of the data.
  const C old_weight = g.rows == 0 ? C(1) : static_cast<C>(g.momentum);
  for (int64_t c = 0; c < g.channels(); ++c) {
    const C squares = factor[c];
    const C inv_std = C(1) / std::sqrt(squares / n + static_cast<C>(g.epsilon));
    k.output<C>(1)[c] = mean[c];
    k.output<C>(2)[c] = inv_std;
    auto move = [&](int i, C value) {
      k.output<C>(i)[c] =
          old_weight * k.input<C>(i)[c] + (1 - old_weight) * value;
    };
    move(3, mean[c]);
    move(4, squares / unbiased);
    factor[c] = inv_std * k.input<C>(1)[c];
  }
  NormalizeAll(g, loops,
               {.x = x,
                .addend = extras.add ? k.input<T>(5) : nullptr,
                .mean = mean,
                .factor = factor,
                .offset = k.input<C>(2),
                .y = k.output<T>(0),
                .mask = extras.relu ? k.output<uint8_t>(5) : nullptr});
}

// The operands of a gradient op.
template <typename T, typename C = ComputeType<T>>
simd::BatchNormGradBlock<T, C> GradOperands(const BatchNormGeometry& g,
                                            Extras extras, bool two_terms,
                                            const KernelContext& k) {
  const int dy = extras.relu ? 5 : 4;
  simd::BatchNormGradBlock<T, C> all = {.channels = g.channels(),
                                        .x = k.input<T>(0),
                                        .dy = k.input<T>(dy),
                                        .mean = k.input<C>(2),
                                        .dx = k.output<T>(0)};
  if (extras.relu) all.mask = k.input<uint8_t>(4);
  if (two_terms) all.dy2 = k.input<T>(dy + 1);
  // A sum of two terms is kept for the second pass, in dx if nowhere else.
  if (extras.add) {
    all.g = k.output<T>(3);
  } else if (two_terms) {
    all.g = all.dx;
  }
  return all;
}

template <typename T, typename C>
simd::BatchNormGradBlock<T, C> GradBlockAt(simd::BatchNormGradBlock<T, C> block,
                                           int64_t row, int64_t rows) {
  const int64_t at = row * block.channels;
  block.rows = rows;
  block.x += at;
  block.dy += at;
  block.dx += at;
  if (block.dy2 != nullptr) block.dy2 += at;
  if (block.g != nullptr) block.g += at;
  if (block.mask != nullptr) block.mask += at / 8;
  return block;
}

// dx = scale * inv_std * (g - sum(g) / n - normal * sum(g * normal) / n).
template <typename T>
void BatchNormGrad(const BatchNormGeometry& g, const BatchNormLoops<T>& loops,
                   Extras extras, bool two_terms, const KernelContext& k) {
  using C = ComputeType<T>;
  const int64_t channels = g.channels();
  auto all = GradOperands<T>(g, extras, two_terms, k);
  C* sums = static_cast<C*>(k.workspace());
  // In the place of a term its lines have been read anyway.
  all.stream = all.g != nullptr && all.g != all.dy && all.g != all.dy2 &&
               Streams(g, all.g);
  ForBlocks(g, [&](int64_t b, int64_t row, int64_t rows) {
    auto block = GradBlockAt(all, row, rows);
    block.sum = sums + 2 * b * channels;
    block.dot = block.sum + channels;
    loops.grad_sums(block);
  });
  AddBlocks(g, sums, 0, sums);
  AddBlocks(g, sums, 1, sums + channels);
  // dx = g * factor + x * slope + shift, the last two in place of the sums.
  C* slope = sums;
  C* shift = sums + channels;
  C* factor = sums + 2 * channels * std::max<int64_t>(g.blocks(), 1);
  for (int64_t c = 0; c < channels; ++c) {
    const C inv_std = k.input<C>(3)[c];
    const C sum = sums[c], dot = sums[channels + c];
    k.output<C>(1)[c] = dot * inv_std;
    k.output<C>(2)[c] = sum;
    factor[c] = k.input<C>(1)[c] * inv_std;
    const C per_row = factor[c] / static_cast<C>(std::max<int64_t>(g.rows, 1));
    slope[c] = -per_row * dot * inv_std * inv_std;
    shift[c] = -per_row * sum;
  }
  all.slope = slope;
  all.shift = shift;
  all.factor = factor;
  all.stream = Streams(g, all.dx);
  if (all.g != nullptr) {
    all.dy = all.g;
    all.dy2 = all.g = nullptr;
    all.mask = nullptr;
  }
  ForRows(g, [&](int64_t row, int64_t rows) {
    loops.grad(GradBlockAt(all, row, rows));
  });
}

// By given statistics: input 3 is the mean, input 4 the variance or, of
// BatchNormApply, the inverse deviation.
template <typename T>
void BatchNormGiven(const BatchNormGeometry& g, const BatchNormLoops<T>& loops,
                    Extras extras, bool inverse, const KernelContext& k) {
  using C = ComputeType<T>;
  C* factor = static_cast<C*>(k.workspace());
  for (int64_t c = 0; c < g.channels(); ++c) {
    const C scale = k.input<C>(1)[c], spread = k.input<C>(4)[c];
    factor[c] = inverse ? spread * scale
                        : scale / std::sqrt(spread + static_cast<C>(g.epsilon));
  }
  NormalizeAll(g, loops,
               {.x = k.input<T>(0),
                .addend = extras.add ? k.input<T>(5) : nullptr,
                .mean = k.input<C>(3),
                .factor = factor,
                .offset = k.input<C>(2),
                .y = k.output<T>(0),
                .mask = extras.relu ? k.output<uint8_t>(1) : nullptr});
}

// The workspace holds two vectors of channels per block and one more.
template <typename T, typename Run>
KernelPtr Prepared(const KernelSpec& spec, const BatchNormLoops<T>& loops,
                   Run run) {
  const BatchNormGeometry g = GeometryOf(spec);
  const int64_t vectors = 2 * std::max<int64_t>(g.blocks(), 1) + 1;
  return KernelOf([=](const KernelContext& c) { run(g, loops, c); },
                  vectors * g.channels() * sizeof(ComputeType<T>));
}

// Registers run(geometry, loops, context) for every dtype and, with the vector
// loops, for float32.
template <typename MakeRun>
void Add(KernelTable& table, const char* op, MakeRun make_run) {
  table.Register({.op = op,
                  .dtypes = kFloating,
                  .make = [make_run](const KernelSpec& spec) {
                    return DispatchFloating(
                        spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) {
                          return Result<KernelPtr>(
                              Prepared(spec, ReferenceBatchNormLoops<T>(),
                                       make_run(spec)));
                        });
                  }});
  table.Register(
      {.op = op,
       .priority = 10,
       .provider = "simd",
       .supports =
           [](const KernelSpec& spec) {
             return spec.inputs[0].shape[-1] % simd::kBatchNormLanes == 0;
           },
       .dtypes = DType::kFloat32,
       .make = [make_run](const KernelSpec& spec) -> Result<KernelPtr> {
         const simd::BatchNormKernels& loops = Simd().batch_norm;
         return Prepared<float>(
             spec,
             {loops.moments, loops.normalize, loops.grad_sums, loops.grad},
             make_run(spec));
       }});
}

auto Forward(Extras extras) {
  return [extras](const KernelSpec&) {
    return [extras](const BatchNormGeometry& g, const auto& loops,
                    const KernelContext& c) { BatchNorm(g, loops, extras, c); };
  };
}

auto Given(Extras extras, bool inverse) {
  return [=](const KernelSpec&) {
    return [=](const BatchNormGeometry& g, const auto& loops,
               const KernelContext& c) {
      BatchNormGiven(g, loops, extras, inverse, c);
    };
  };
}

auto Gradient(Extras extras) {
  return [extras](const KernelSpec& spec) {
    const bool two_terms = extras.relu && spec.inputs.size() > 6;
    return [=](const BatchNormGeometry& g, const auto& loops,
               const KernelContext& c) {
      BatchNormGrad(g, loops, extras, two_terms, c);
    };
  };
}

}  // namespace

void RegisterBatchNormKernels(KernelTable& table) {
  Add(table, "BatchNorm", Forward({}));
  Add(table, "BatchNormRelu", Forward({.relu = true}));
  Add(table, "BatchNormAddRelu", Forward({.relu = true, .add = true}));
  Add(table, "BatchNormBySums", Forward({.sums = true}));
  Add(table, "BatchNormReluBySums", Forward({.relu = true, .sums = true}));
  Add(table, "BatchNormAddReluBySums",
      Forward({.relu = true, .add = true, .sums = true}));
  Add(table, "BatchNormGrad", Gradient({}));
  Add(table, "BatchNormReluGrad", Gradient({.relu = true}));
  Add(table, "BatchNormAddReluGrad", Gradient({.relu = true, .add = true}));
  Add(table, "BatchNormInference", Given({}, /*inverse=*/false));
  Add(table, "BatchNormApply", Given({}, true));
  Add(table, "BatchNormApplyRelu", Given({.relu = true}, true));
  Add(table, "BatchNormApplyAddRelu", Given({.relu = true, .add = true}, true));
}

}  // namespace sluice::cpu
