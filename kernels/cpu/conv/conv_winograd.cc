// Convolutions of float32, and their gradients with respect to the input, in
// Winograd's form F(4x4, 3x3).
//
// With few filters compared to tiles, filters are transformed first and pieces
// of work are ranges of tiles, each taken through all three stages a few tiles
// at a time, so that transformed tiles stay in L2. With many filters (the last
// stages of ResNet) tiles are transformed first, and pieces are blocks of
// result channels, whose filters are transformed where they are used.
#include "kernels/cpu/conv/conv_winograd.h"

#include "engine/ceil_div.h"
#include "engine/threads.h"
#include "kernels/cpu/conv/conv_epilogue.h"
#include "kernels/cpu/conv/direct_conv.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/gemm_tile.h"

namespace sluice::cpu {

void RegisterWinogradKernels(KernelTable& table);
void RegisterWinogradFilterKernels(KernelTable& table);

namespace {

using simd::kMaxTileK;
using simd::kWinogradPoints;

// With fewer the transforms cost more than the products save: channels, and
// tiles per transformed filter. A filter's gradient is transformed back too,
// and is far larger transformed than not.
constexpr int64_t kMinChannels = 32;
constexpr int64_t kMinTiles = 8;
constexpr int64_t kMinTilesForFilter = 16;

// Floats of a piece's transformed source and products: about an L2 cache.
constexpr int64_t kTileFloats = 1 << 17;
// Result channels of a piece when cut by channels.
constexpr int64_t kPieceChannels = 64;

struct WinogradJob {
  WinogradTiles tiles;
  int64_t in = 0, out = 0;  // channels of source and result
  int64_t filter_out = 0;   // the filter's last dimension
  bool transposed = false;  // for dx: the filter turned around, in and out too
  bool by_channels = false;
  int64_t pieces = 1;
  int64_t block = 1;     // tiles taken through the stages at a time
  int64_t channels = 0;  // of the result, in one piece

  int64_t source_step() const {
    return WinogradPointStep((by_channels ? tiles.count() : block) * in);
  }
  int64_t filter_step() const {
    return WinogradPointStep(by_channels ? std::min(in, kMaxTileK) * channels
                                         : in * out);
  }
  // Between panels of transformed filters, when cut by channels.
  int64_t panel_step() const {
    return std::min(kMaxTileK, in) * Simd().conv.width;
  }
  int64_t product_step() const { return WinogradPointStep(block * channels); }
  // Of each piece: its own transformed tiles or filters, its products, and a
  // pixel to write where there is none.
  int64_t piece_floats() const {
    return kWinogradPoints * ((by_channels ? filter_step() : source_step()) +
                              product_step()) +
           Aligned(out);
  }
  // What all share: a pixel of zeros, transformed filters or tiles.
  int64_t shared_floats() const {
    return Aligned(in) +
           kWinogradPoints * (by_channels ? source_step() : filter_step());
  }
  int64_t workspace_floats() const {
    return shared_floats() + pieces * piece_floats();
  }
  // Of all filters, transformed: as shared, or for each piece and block of
  // source channels.
  int64_t filter_floats() const {
    return kWinogradPoints * filter_step() *
           (by_channels ? pieces * filter_blocks() : 1);
  }
  int64_t filter_blocks() const { return CeilDiv(in, kMaxTileK); }
};

WinogradJob JobOf(const WinogradTiles& tiles, int64_t in, int64_t out) {
  WinogradJob job;
  job.tiles = tiles;
  job.in = in;
  job.out = out;
  job.by_channels = out >= tiles.count();
  const int64_t count = std::max<int64_t>(tiles.count(), 1);
  if (job.by_channels) {
    job.channels = std::min<int64_t>(
        out, std::max<int64_t>(kPieceChannels, Simd().conv.width));
    job.pieces = CeilDiv(out, job.channels);
    job.block = count;
  } else {
    job.channels = out;
    // Whole register tiles of rows.
    const int64_t rows = Simd().gemm_f32.rows;
    job.block = std::clamp<int64_t>(
        kTileFloats / (kWinogradPoints * (in + out)) / rows * rows, 2 * rows,
        std::max(count, 2 * rows));
    job.pieces = std::min(kConvPieces, CeilDiv(count, job.block));
  }
  return job;
}

// G g G^T for rows [row, row + rows) and columns [column, column + columns) of
// the filter as a matrix of source by result channels; u in panels.
void TransformFilter(const WinogradJob& job, const float* filter, int64_t row,
                     int64_t rows, int64_t column, int64_t columns,
                     simd::WinogradMatrix u) {
  const int64_t width = Simd().conv.width;
  const int64_t tap = job.in * job.out;
  const float* taps[9];
  if (!job.transposed) {
    for (int64_t r = 0; r < rows; ++r, u.points += width) {
      for (int64_t t = 0; t < 9; ++t) {
        taps[t] = filter + t * tap + (row + r) * job.filter_out + column;
      }
      Simd().winograd.filter(taps, columns, u);
    }
    return;
  }
  // A few rows of a panel are brought into this order first.
  constexpr int64_t kRows = 16, kMaxWidth = 64;
  alignas(64) float turned[9][kRows * kMaxWidth];
  for (int64_t c = 0; c < columns; c += width) {
    float* const panel = u.points + c / width * u.panel_step;
    for (int64_t r0 = 0; r0 < rows; r0 += kRows) {
      const int64_t count = std::min(kRows, rows - r0);
      for (int64_t t = 0; t < 9; ++t) {
        const float* from =
            filter + t * tap + (column + c) * job.filter_out + row + r0;
        for (int64_t q = 0; q < width; ++q, from += job.filter_out) {
          for (int64_t r = 0; r < count; ++r) {
            turned[8 - t][r * width + q] = from[r];
          }
        }
      }
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t t = 0; t < 9; ++t) taps[t] = turned[t] + r * width;
        Simd().winograd.filter(
            taps, width,
            {panel + (r0 + r) * width, u.point_step, u.panel_step});
      }
    }
  }
}

// B^T d B of tiles [begin, end) as rows of `in` channels.
void TransformSource(const WinogradJob& job, const float* source,
                     const float* zeros, int64_t begin, int64_t end,
                     float* rows) {
  const float* pixels[kWinogradPoints];
  for (int64_t tile = begin; tile < end; ++tile, rows += job.in) {
    job.tiles.Source(tile, source, job.in, zeros, pixels);
    Simd().winograd.source(pixels, job.in,
                           {rows, job.source_step(), Simd().conv.width});
  }
}

// The 36 products of `rows` tiles with filters of `depth` source channels.
void Multiply(const WinogradJob& job, const float* source, int64_t rows,
              const float* filter, int64_t panel_step, int64_t depth,
              bool accumulate, float* product) {
  const bool far = kWinogradPoints * job.in * job.out *
                       static_cast<int64_t>(sizeof(float)) >=
                   simd::kFarBytes;
  for (int64_t p = 0; p < kWinogradPoints; ++p) {
    simd::GemmTile<float> tile;
    tile.m = rows;
    tile.n = job.channels;
    tile.k = depth;
    tile.a = source + p * job.source_step();
    tile.a_row_stride = job.in;
    tile.a_column_stride = 1;
    tile.b = filter + p * job.filter_step();
    tile.b_packed = true;
    tile.b_stride = panel_step;
    if (far) {
      tile.next_b = tile.b + (p + 1 < kWinogradPoints ? job.filter_step() : 0);
    }
    tile.c = product + p * job.product_step();
    tile.ldc = job.channels;
    if (accumulate) tile.addend = tile.c;
    Simd().gemm_f32.multiply(tile);
  }
}

// Where results go, and what is done with them on the way.
struct WinogradResult {
  float* pixels = nullptr;
  ConvEpilogue epilogue;
};

// A^T m A into channels [first, first + job.channels) of tiles [begin, end).
void TransformResult(const WinogradJob& job, float* product, int64_t begin,
                     int64_t end, int64_t first, const WinogradResult& result,
                     float* sink) {
  constexpr int kPixels = simd::kWinogradResult * simd::kWinogradResult;
  float* pixels[kPixels];
  const float* addends[kPixels];
  simd::WinogradEpilogue epilogue;
  if (result.epilogue.bias != nullptr) {
    epilogue.bias = result.epilogue.bias + first;
  }
  const float* const addend = result.epilogue.addend;
  if (addend != nullptr) epilogue.addend = addends;
  epilogue.relu = result.epilogue.relu;
  for (int64_t tile = begin; tile < end; ++tile, product += job.channels) {
    job.tiles.Result(tile, result.pixels + first, job.out, sink, pixels);
    if (addend != nullptr) {
      job.tiles.Result<const float>(tile, addend + first, job.out, sink,
                                    addends);
    }
    Simd().winograd.result({product, job.product_step(), Simd().conv.width},
                           job.channels, epilogue, pixels);
  }
}

// The piece's tiles, with filters u transformed.
void RunTilePiece(const WinogradJob& job, int64_t piece, const float* source,
                  const float* zeros, const float* u,
                  const WinogradResult& result, float* scratch) {
  float* const v = scratch;
  float* const product = v + kWinogradPoints * job.source_step();
  float* const sink = product + kWinogradPoints * job.product_step();
  const int64_t count = job.tiles.count();
  const int64_t first = count * piece / job.pieces;
  const int64_t last = count * (piece + 1) / job.pieces;
  const int64_t width = Simd().conv.width;
  for (int64_t begin = first; begin < last; begin += job.block) {
    const int64_t end = std::min(begin + job.block, last);
    TransformSource(job, source, zeros, begin, end, v);
    for (int64_t k = 0; k < job.in; k += kMaxTileK) {
      Multiply(job, v + k, end - begin, u + k * width, job.in * width,
               std::min(kMaxTileK, job.in - k), k > 0, product);
    }
    TransformResult(job, product, begin, end, 0, result, sink);
  }
}

// The job for a piece's result channels; the last may have fewer.
WinogradJob PartOf(const WinogradJob& job, int64_t piece) {
  WinogradJob part = job;
  part.channels = std::min(job.channels, job.out - piece * job.channels);
  return part;
}

// Block `block` of source channels of the part's filters, from result channel
// `first` on.
void TransformPiece(const WinogradJob& part, const float* filter, int64_t first,
                    int64_t block, float* u) {
  const int64_t k = block * kMaxTileK;
  TransformFilter(part, filter, k, std::min(kMaxTileK, part.in - k), first,
                  part.channels, {u, part.filter_step(), part.panel_step()});
}

// The piece's result channels, with tiles v transformed; filters are
// transformed here unless `ready` holds them.
void RunChannelPiece(const WinogradJob& job, int64_t piece, const float* v,
                     const float* filter, const float* ready,
                     const WinogradResult& result, float* scratch) {
  float* const u = scratch;
  float* const product = u + kWinogradPoints * job.filter_step();
  float* const sink = product + kWinogradPoints * job.product_step();
  const int64_t first = piece * job.channels;
  const WinogradJob part = PartOf(job, piece);
  for (int64_t block = 0; block < job.filter_blocks(); ++block) {
    const float* filters = u;
    if (ready != nullptr) {
      filters = ready + (piece * job.filter_blocks() + block) *
                            kWinogradPoints * job.filter_step();
    } else {
      TransformPiece(part, filter, first, block, u);
    }
    const int64_t k = block * kMaxTileK;
    Multiply(part, v + k, job.tiles.count(), filters, part.panel_step(),
             std::min(kMaxTileK, job.in - k), k > 0, product);
  }
  TransformResult(part, product, 0, job.tiles.count(), first, result, sink);
}

// All filters of a job that is cut by tiles.
void TransformFilters(const WinogradJob& job, const float* filter, float* u) {
  const int64_t width = Simd().conv.width;
  ParallelFor(job.out / width, 1, [&](int64_t begin, int64_t end) {
    TransformFilter(
        job, filter, 0, job.in, begin * width, (end - begin) * width,
        {u + begin * width * job.in, job.filter_step(), job.in * width});
  });
}

// Filters that never change, as Run takes them: job.filter_floats().
Tensor ReadyFilters(const WinogradJob& job, const float* filter) {
  Tensor ready(DType::kFloat32, {job.filter_floats()});
  float* const u = ready.data<float>();
  if (!job.by_channels) {
    TransformFilters(job, filter, u);
    return ready;
  }
  const int64_t blocks = job.filter_blocks();
  ParallelFor(job.pieces * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t piece = i / blocks;
      TransformPiece(PartOf(job, piece), filter, piece * job.channels,
                     i % blocks, u + i * kWinogradPoints * job.filter_step());
    }
  });
  return ready;
}

// `ready`: ReadyFilters, or null, and then `filter` counts.
void RunJob(const WinogradJob& job, const float* source, const float* filter,
            const float* ready, const WinogradResult& result,
            float* workspace) {
  if (job.tiles.count() == 0) return;  // dx of images without pixels
  float* const zeros = workspace;
  float* const shared = zeros + Aligned(job.in);
  float* const scratch = workspace + job.shared_floats();
  std::fill(zeros, zeros + job.in, 0.0f);
  if (job.by_channels) {
    ParallelFor(job.tiles.count(), 4, [&](int64_t begin, int64_t end) {
      TransformSource(job, source, zeros, begin, end, shared + begin * job.in);
    });
  } else if (ready == nullptr) {
    TransformFilters(job, filter, shared);
  }
  const float* const filters = ready == nullptr ? shared : ready;
  ParallelFor(job.pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      float* own = scratch + piece * job.piece_floats();
      if (job.by_channels) {
        RunChannelPiece(job, piece, shared, filter, ready, result, own);
      } else {
        RunTilePiece(job, piece, source, zeros, filters, result, own);
      }
    }
  });
}

KernelPtr KernelOfJob(const WinogradJob& job, const KernelSpec& spec) {
  Tensor ready;
  if (const Tensor* filter = ConstantInput(spec, 1)) {
    ready = ReadyFilters(job, filter->data<float>());
  }
  return KernelOf(
      [job, ready, epilogue = ConvEpilogueOf(spec)](const KernelContext& c) {
        RunJob(job, c.input<float>(0), c.input<float>(1),
               ready.elements() > 0 ? ready.data<float>() : nullptr,
               {c.output<float>(0), epilogue(c)},
               static_cast<float*>(c.workspace()));
      },
      job.workspace_floats() * sizeof(float));
}

Result<KernelPtr> MakeForward(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry g, ConvGeometryOf(spec));
  WinogradJob job = JobOf(ForwardTiles(g), g.in, g.out);
  job.filter_out = g.out;
  return KernelOfJob(job, spec);
}

Result<KernelPtr> MakeBackpropInput(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry g, ConvGeometryOf(spec));
  WinogradJob job = JobOf(BackpropInputTiles(g), g.out, g.in);
  job.filter_out = g.out;
  job.transposed = true;
  return KernelOfJob(job, spec);
}

}  // namespace

bool WinogradServes(const KernelSpec& spec) {
  const Result<ConvGeometry> g = ConvGeometryOf(spec);
  if (!g.ok()) return false;
  auto plain = [](const WindowDim& d) {
    return d.window == 3 && d.stride == 1 && d.dilation == 1;
  };
  auto enough = [](int64_t channels) {
    return channels >= kMinChannels && channels % Simd().conv.width == 0;
  };
  return g->groups == 1 && plain(g->h) && plain(g->w) && enough(g->in) &&
         enough(g->out) &&
         ForwardTiles(*g).count() >= (spec.conv.pass == ConvPass::kFilter
                                          ? kMinTilesForFilter
                                          : kMinTiles);
}

WinogradTiles ForwardTiles(const ConvGeometry& g) {
  return {.images = g.images,
          .source_h = g.h.input,
          .source_w = g.w.input,
          .result_h = g.h.output,
          .result_w = g.w.output,
          .pad_top = g.h.pad_before,
          .pad_left = g.w.pad_before};
}

WinogradTiles BackpropInputTiles(const ConvGeometry& g) {
  return {.images = g.images,
          .source_h = g.h.output,
          .source_w = g.w.output,
          .result_h = g.h.input,
          .result_w = g.w.input,
          .pad_top = 2 - g.h.pad_before,
          .pad_left = 2 - g.w.pad_before};
}

void RegisterWinogradKernels(KernelTable& table) {
  auto add = [&](const char* op, Result<KernelPtr> (*make)(const KernelSpec&)) {
    table.Register({.op = op,
                    .priority = 20,
                    .provider = "winograd",
                    .supports = WinogradServes,
                    .dtypes = DType::kFloat32,
                    .make = make});
  };
  for (const char* op : kConvolutions) add(op, MakeForward);
  add("Conv2DBackpropInput", MakeBackpropInput);
  RegisterWinogradFilterKernels(table);
}

}  // namespace sluice::cpu
