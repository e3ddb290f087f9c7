// Gradients of 3x3 convolutions of float32 with respect to the filter, in
// Winograd's form: 36 products of transformed tiles of x and dy, summed over
// the tiles before they are transformed back.
//
// A group of tiles is transformed, then multiplied, in pieces of points by
// channels; the tiles' order fixes that of the sums. Where all tiles are one
// group, a piece has all points of its channels and transforms them back
// itself, while they are in cache.
#include <algorithm>

#include "engine/ceil_div.h"
#include "engine/threads.h"
#include "kernels/cpu/conv/conv_winograd.h"
#include "kernels/cpu/conv/direct_conv.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/gemm_tile.h"

namespace sluice::cpu {

void RegisterWinogradFilterKernels(KernelTable& table);

namespace {

using simd::kMaxTileK;
using simd::kWinogradPoints;

// Floats of a group's transformed tiles: they stay in L3.
constexpr int64_t kGroupFloats = 1 << 21;
// Channels of x and y in a piece that has all points: 590 KB of products.
constexpr int64_t kPieceChannels = 64;

struct WinogradFilterJob {
  WinogradTiles tiles;
  int64_t in = 0, out = 0;
  int64_t group = 1;    // tiles transformed before any is multiplied
  bool single = false;  // one group is all
  // Channels of x and y in a piece.
  int64_t piece_in = 0, piece_out = 0;

  int64_t x_step() const { return WinogradPointStep(group * in); }
  int64_t y_step() const { return WinogradPointStep(group * out); }
  int64_t in_pieces() const { return CeilDiv(in, piece_in); }
  int64_t out_pieces() const { return CeilDiv(out, piece_out); }
  int64_t sum_step() const { return WinogradPointStep(piece_in * piece_out); }
  // Sums: of every piece, or of all points and channels.
  int64_t sums_floats() const {
    return kWinogradPoints * sum_step() *
           (single ? in_pieces() * out_pieces() : 1);
  }
  int64_t workspace_floats() const {
    return Aligned(std::max(in, out)) +
           kWinogradPoints * (x_step() + y_step()) + sums_floats();
  }
};

WinogradFilterJob JobOf(const ConvGeometry& g) {
  WinogradFilterJob job;
  job.tiles = ForwardTiles(g);
  job.in = g.in;
  job.out = g.out;
  const int64_t count = std::max<int64_t>(job.tiles.count(), 1);
  const int64_t fitting =
      std::max<int64_t>(kGroupFloats / (kWinogradPoints * (g.in + g.out)), 1);
  job.single = count <= std::max(fitting, kMaxTileK);
  // Whole blocks of k, except at the end.
  job.group = job.single
                  ? count
                  : std::max<int64_t>(fitting / kMaxTileK, 1) * kMaxTileK;
  job.piece_in = job.single ? std::min(g.in, kPieceChannels) : g.in;
  job.piece_out = job.single ? std::min(g.out, kPieceChannels) : g.out;
  return job;
}

// Tiles [begin, begin + count) of x and dy, in panels of channels.
void TransformTiles(const WinogradFilterJob& job, int64_t begin, int64_t count,
                    const float* x, const float* dy, const float* zeros,
                    float* v, float* w) {
  const int64_t width = Simd().conv.width;
  ParallelFor(count, 4, [&](int64_t from, int64_t to) {
    const float* pixels[kWinogradPoints];
    for (int64_t tile = from; tile < to; ++tile) {
      job.tiles.Source(begin + tile, x, job.in, zeros, pixels);
      Simd().winograd.source(pixels, job.in,
                             {v + tile * width, job.x_step(), count * width});
      job.tiles.Result(begin + tile, dy, job.out, zeros, pixels);
      Simd().winograd.result_grad(
          pixels, job.out, {w + tile * width, job.y_step(), count * width});
    }
  });
}

// One point's product for channels of x and y from the given ones on, over
// `count` tiles. sum [columns of it in all, ld].
void Multiply(const float* v, const float* w, int64_t count, int64_t rows,
              int64_t columns, bool accumulate, float* sum, int64_t ld) {
  const int64_t width = Simd().conv.width;
  for (int64_t k = 0; k < count; k += kMaxTileK) {
    for (int64_t row = 0; row < rows; row += width) {
      simd::GemmTile<float> tile;
      tile.m = width;
      tile.n = columns;
      tile.k = std::min(kMaxTileK, count - k);
      tile.a = v + row * count + k * width;
      tile.a_row_stride = 1;
      tile.a_column_stride = width;
      tile.b = w + k * width;
      tile.b_packed = true;
      tile.b_stride = count * width;
      tile.c = sum + row * ld;
      tile.ldc = ld;
      if (accumulate || k > 0) tile.addend = tile.c;
      Simd().gemm_f32.multiply(tile);
    }
  }
}

// G^T u G of `rows` channels of x and `columns` of y.
void TransformSums(const WinogradFilterJob& job, float* sums, int64_t rows,
                   int64_t columns, int64_t ld, float* dfilter) {
  float* taps[9];
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t t = 0; t < 9; ++t) {
      taps[t] = dfilter + (t * job.in + row) * job.out;
    }
    Simd().winograd.filter_grad(
        {sums + row * ld, job.sum_step(), Simd().conv.width}, columns, taps);
  }
}

// All tiles are transformed: block by block of channels.
void RunSingle(const WinogradFilterJob& job, const float* v, const float* w,
               float* sums, float* dfilter) {
  const int64_t count = job.tiles.count();
  ParallelFor(
      job.in_pieces() * job.out_pieces(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t piece = begin; piece < end; ++piece) {
          const int64_t i = piece % job.in_pieces() * job.piece_in;
          const int64_t o = piece / job.in_pieces() * job.piece_out;
          const int64_t rows = std::min(job.piece_in, job.in - i);
          const int64_t columns = std::min(job.piece_out, job.out - o);
          float* own = sums + piece * kWinogradPoints * job.sum_step();
          for (int64_t p = 0; p < kWinogradPoints; ++p) {
            Multiply(v + p * job.x_step() + i * count,
                     w + p * job.y_step() + o * count, count, rows, columns,
                     false, own + p * job.sum_step(), job.piece_out);
          }
          TransformSums(job, own, rows, columns, job.piece_out,
                        dfilter + i * job.out + o);
        }
      });
}

void RunJob(const WinogradFilterJob& job, const float* x, const float* dy,
            float* dfilter, float* workspace) {
  float* const zeros = workspace;
  float* const v = zeros + Aligned(std::max(job.in, job.out));
  float* const w = v + kWinogradPoints * job.x_step();
  float* const sums = w + kWinogradPoints * job.y_step();
  std::fill(zeros, v, 0.0f);
  const int64_t tiles = job.tiles.count();
  if (tiles == 0) {
    std::fill(dfilter, dfilter + 9 * job.in * job.out, 0.0f);
    return;
  }
  if (job.single) {
    TransformTiles(job, 0, tiles, x, dy, zeros, v, w);
    RunSingle(job, v, w, sums, dfilter);
    return;
  }
  for (int64_t first = 0; first < tiles; first += job.group) {
    const int64_t count = std::min(job.group, tiles - first);
    TransformTiles(job, first, count, x, dy, zeros, v, w);
    ParallelFor(kWinogradPoints, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        Multiply(v + p * job.x_step(), w + p * job.y_step(), count, job.in,
                 job.out, first > 0, sums + p * job.sum_step(), job.out);
      }
    });
  }
  ParallelFor(job.in, 8, [&](int64_t begin, int64_t end) {
    TransformSums(job, sums + begin * job.out, end - begin, job.out, job.out,
                  dfilter + begin * job.out);
  });
}

Result<KernelPtr> MakeBackpropFilter(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry g, ConvGeometryOf(spec));
  const WinogradFilterJob job = JobOf(g);
  return KernelOf(
      [job](const KernelContext& c) {
        RunJob(job, c.input<float>(0), c.input<float>(1), c.output<float>(0),
               static_cast<float*>(c.workspace()));
      },
      job.workspace_floats() * sizeof(float));
}

}  // namespace

void RegisterWinogradFilterKernels(KernelTable& table) {
  table.Register({.op = "Conv2DBackpropFilter",
                  .priority = 20,
                  .provider = "winograd",
                  .supports = WinogradServes,
                  .dtypes = DType::kFloat32,
                  .make = MakeBackpropFilter});
}

}  // namespace sluice::cpu
