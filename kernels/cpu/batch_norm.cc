// Batch normalisation. Statistics are taken per block of rows, in two passes
// while the block is in cache, and blocks are combined in order by the formula
// of Chan, Golub and LeVeque (1979): no digits are lost to a large mean, and
// the bits do not depend on threads. Inner loops run over the channels.
#include <algorithm>
#include <cmath>

#include "engine/threads.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {

void RegisterBatchNormKernels(KernelTable& table);

namespace {

struct BatchNormGeometry {
  int64_t rows = 0, channels = 0;
  int64_t block_rows = 0;  // about 2^14 elements
  double epsilon = 0, momentum = 0;

  int64_t blocks() const { return (rows + block_rows - 1) / block_rows; }
};

BatchNormGeometry GeometryOf(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  BatchNormGeometry g;
  g.channels = x[-1];
  g.rows = x.elements(0, x.rank() - 1);
  g.block_rows =
      std::max<int64_t>((1 << 14) / std::max<int64_t>(g.channels, 1), 1);
  if (spec.attrs.Has("epsilon")) g.epsilon = spec.attrs.Float("epsilon");
  if (spec.attrs.Has("momentum")) g.momentum = spec.attrs.Float("momentum");
  return g;
}

// Calls fn(block, first row, end row) for all blocks.
template <typename Fn>
void ForBlocks(const BatchNormGeometry& g, Fn fn) {
  ParallelFor(g.blocks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      fn(b, b * g.block_rows, std::min((b + 1) * g.block_rows, g.rows));
    }
  });
}

// Per block: the means, then the sums of squared distances from them.
template <typename T, typename C>
void BlockMoments(const BatchNormGeometry& g, const T* x, int64_t begin,
                  int64_t end, C* __restrict mean, C* __restrict squares) {
  const int64_t channels = g.channels;
  std::fill(mean, mean + channels, C(0));
  std::fill(squares, squares + channels, C(0));
  for (int64_t r = begin; r < end; ++r) {
    const T* row = x + r * channels;
    for (int64_t c = 0; c < channels; ++c) mean[c] += static_cast<C>(row[c]);
  }
  const C scale = C(1) / static_cast<C>(end - begin);
  for (int64_t c = 0; c < channels; ++c) mean[c] *= scale;
  for (int64_t r = begin; r < end; ++r) {
    const T* row = x + r * channels;
    for (int64_t c = 0; c < channels; ++c) {
      const C d = static_cast<C>(row[c]) - mean[c];
      squares[c] += d * d;
    }
  }
}

// Combines the blocks into the first.
template <typename C>
void CombineMoments(const BatchNormGeometry& g, C* moments) {
  const int64_t channels = g.channels;
  C* mean = moments;
  C* squares = moments + channels;
  int64_t before = std::min(g.block_rows, g.rows);
  for (int64_t b = 1; b < g.blocks(); ++b) {
    const C* other = moments + 2 * b * channels;
    const int64_t here = std::min(g.block_rows, g.rows - b * g.block_rows);
    const C n = static_cast<C>(before + here);
    const C weight = static_cast<C>(here) / n;
    const C cross = static_cast<C>(before) * weight;
    for (int64_t c = 0; c < channels; ++c) {
      const C d = other[c] - mean[c];
      mean[c] += d * weight;
      squares[c] += other[channels + c] + d * d * cross;
    }
    before += here;
  }
}

// (x - mean) * factor + offset, which stays exact where the mean is large.
template <typename T, typename C>
void Normalize(int64_t channels, const T* x, const C* __restrict mean,
               const C* __restrict factor, const T* __restrict offset,
               int64_t begin, int64_t end, T* y) {
  for (int64_t r = begin; r < end; ++r) {
    const T* in = x + r * channels;
    T* out = y + r * channels;
    for (int64_t c = 0; c < channels; ++c) {
      out[c] = T((static_cast<C>(in[c]) - mean[c]) * factor[c] +
                 static_cast<C>(offset[c]));
    }
  }
}

template <typename T>
void BatchNorm(const BatchNormGeometry& g, const KernelContext& k) {
  using C = ComputeType<T>;
  const T* x = k.input<T>(0);
  C* moments = static_cast<C*>(k.workspace());
  ForBlocks(g, [&](int64_t block, int64_t begin, int64_t end) {
    C* mean = moments + 2 * block * g.channels;
    BlockMoments(g, x, begin, end, mean, mean + g.channels);
  });
  CombineMoments(g, moments);

  const C* mean = moments;
  C* factor = moments + g.channels;  // takes the place of the squares
  const C n = static_cast<C>(g.rows);
  const C unbiased = static_cast<C>(std::max<int64_t>(g.rows - 1, 1));
  const C old_weight = static_cast<C>(g.momentum);
  for (int64_t c = 0; c < g.channels; ++c) {
    const C squares = factor[c];
    const C inv_std = C(1) / std::sqrt(squares / n + static_cast<C>(g.epsilon));
    k.output<T>(1)[c] = T(mean[c]);
    k.output<T>(2)[c] = T(inv_std);
    auto move = [&](int i, C value) {
      k.output<T>(i)[c] = T(old_weight * static_cast<C>(k.input<T>(i)[c]) +
                            (1 - old_weight) * value);
    };
    move(3, mean[c]);
    move(4, squares / unbiased);
    factor[c] = inv_std * static_cast<C>(k.input<T>(1)[c]);
  }
  ForBlocks(g, [&](int64_t, int64_t begin, int64_t end) {
    Normalize(g.channels, x, mean, factor, k.input<T>(2), begin, end,
              k.output<T>(0));
  });
}

// Sums of dy and of dy * (x - mean) over a block.
template <typename T, typename C>
void BlockGradSums(const BatchNormGeometry& g, const T* x, const T* dy,
                   const T* __restrict mean, int64_t begin, int64_t end,
                   C* __restrict sum, C* __restrict dot) {
  std::fill(sum, sum + g.channels, C(0));
  std::fill(dot, dot + g.channels, C(0));
  for (int64_t r = begin; r < end; ++r) {
    const T* x_row = x + r * g.channels;
    const T* dy_row = dy + r * g.channels;
    for (int64_t c = 0; c < g.channels; ++c) {
      const C d = static_cast<C>(dy_row[c]);
      sum[c] += d;
      dot[c] += d * (static_cast<C>(x_row[c]) - static_cast<C>(mean[c]));
    }
  }
}

// dx = scale * inv_std * (dy - sum(dy) / n - normal * sum(dy * normal) / n).
template <typename T>
void BatchNormGrad(const BatchNormGeometry& g, const KernelContext& k) {
  using C = ComputeType<T>;
  const T* x = k.input<T>(0);
  const T* mean = k.input<T>(2);
  const T* dy = k.input<T>(4);
  const int64_t channels = g.channels;
  C* sums = static_cast<C*>(k.workspace());
  ForBlocks(g, [&](int64_t block, int64_t begin, int64_t end) {
    C* sum = sums + 2 * block * channels;
    BlockGradSums(g, x, dy, mean, begin, end, sum, sum + channels);
  });
  for (int64_t b = 1; b < g.blocks(); ++b) {
    for (int64_t c = 0; c < 2 * channels; ++c) {
      sums[c] += sums[2 * b * channels + c];
    }
  }
  // dx = dy * factor + x * slope + shift, the last two in place of the sums.
  C* slope = sums;
  C* shift = sums + channels;
  C* factor = sums + 2 * channels * std::max<int64_t>(g.blocks(), 1);
  for (int64_t c = 0; c < channels; ++c) {
    const C inv_std = static_cast<C>(k.input<T>(3)[c]);
    const C sum = sums[c], dot = sums[channels + c];
    k.output<T>(1)[c] = T(dot * inv_std);
    k.output<T>(2)[c] = T(sum);
    factor[c] = static_cast<C>(k.input<T>(1)[c]) * inv_std;
    const C per_row = factor[c] / static_cast<C>(g.rows);
    slope[c] = -per_row * dot * inv_std * inv_std;
    shift[c] = -per_row * sum;
  }
  T* dx = k.output<T>(0);
  ForBlocks(g, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * channels;
      for (int64_t c = 0; c < channels; ++c) {
        const C distance = static_cast<C>(x[at + c]) - static_cast<C>(mean[c]);
        dx[at + c] = T(static_cast<C>(dy[at + c]) * factor[c] +
                       distance * slope[c] + shift[c]);
      }
    }
  });
}

template <typename T>
void BatchNormInference(const BatchNormGeometry& g, const KernelContext& k) {
  using C = ComputeType<T>;
  C* mean = static_cast<C*>(k.workspace());
  C* factor = mean + g.channels;
  for (int64_t c = 0; c < g.channels; ++c) {
    mean[c] = static_cast<C>(k.input<T>(3)[c]);
    factor[c] =
        static_cast<C>(k.input<T>(1)[c]) /
        std::sqrt(static_cast<C>(k.input<T>(4)[c]) + static_cast<C>(g.epsilon));
  }
  ForBlocks(g, [&](int64_t, int64_t begin, int64_t end) {
    Normalize(g.channels, k.input<T>(0), mean, factor, k.input<T>(2), begin,
              end, k.output<T>(0));
  });
}

// run(TypeTag, geometry, context). The workspace holds two vectors of channels
// per block and one more.
template <typename Run>
auto Maker(Run run) {
  return [run](const KernelSpec& spec) -> Result<KernelPtr> {
    const BatchNormGeometry g = GeometryOf(spec);
    return DispatchFloating(
        spec.inputs[0].dtype, [&]<typename T>(TypeTag<T> tag) {
          const int64_t vectors = 2 * std::max<int64_t>(g.blocks(), 1) + 1;
          return Result<KernelPtr>(
              KernelOf([=](const KernelContext& c) { run(tag, g, c); },
                       vectors * g.channels * sizeof(ComputeType<T>)));
        });
  };
}

}  // namespace

void RegisterBatchNormKernels(KernelTable& table) {
  auto add = [&](const char* op, auto run) {
    table.Register({.op = op, .dtypes = kFloating, .make = Maker(run)});
  };
  add("BatchNorm",
      []<typename T>(TypeTag<T>, const BatchNormGeometry& g,
                     const KernelContext& c) { BatchNorm<T>(g, c); });
  add("BatchNormGrad",
      []<typename T>(TypeTag<T>, const BatchNormGeometry& g,
                     const KernelContext& c) { BatchNormGrad<T>(g, c); });
  add("BatchNormInference",
      []<typename T>(TypeTag<T>, const BatchNormGeometry& g,
                     const KernelContext& c) { BatchNormInference<T>(g, c); });
}

}  // namespace sluice::cpu
