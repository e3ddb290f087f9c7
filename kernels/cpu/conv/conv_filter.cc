// Gradients of convolutions of float32 with respect to the filter.
//
// By register tiles over padded copies of the images (kernels/cpu/simd/conv.h):
// they are summed within groups of images, and then over the groups in order;
// groups depend on shapes alone, so the bits do not depend on threads. Where
// windows are apart and channels many, as one product of the patches with dy:
// an image then has too few pixels to repay a pass over the whole filter. So,
// too, where the copies would be far larger than the images.
#include <algorithm>

#include "engine/ceil_div.h"
#include "engine/threads.h"
#include "kernels/cpu/conv/conv_patches.h"
#include "kernels/cpu/conv/conv_product.h"
#include "kernels/cpu/conv/direct_conv.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {

void RegisterConvFilterKernels(KernelTable& table);

namespace {

// Piece i covers images [i / splits * images_each, ...) and block i % splits of
// the runs.
struct FilterJob {
  DirectConv direct;
  int64_t images = 0, groups = 0;
  int64_t x_image = 0, y_image = 0;  // floats
  int64_t out = 0, y_channels = 0;
  int64_t images_each = 1, splits = 1;
  std::vector<int64_t> run_rows;  // where each run begins in the filter's rows
  int64_t filter_floats = 0;
  int64_t block_rows = 1;  // of y, summed at a time

  int64_t sums() const { return CeilDiv(images, images_each); }
  int64_t pieces() const { return sums() * splits; }
  int64_t scratch_floats() const {
    return Aligned(direct.source.copy_floats()) +
           Aligned(block_rows *
                   std::min(direct.phases[0].columns, simd::kConvColumns) *
                   Simd().conv.width);
  }
  // One sum goes straight to the result.
  int64_t partial_floats() const {
    return sums() > 1 ? sums() * Aligned(filter_floats) : 0;
  }
};

FilterJob FilterJobOf(const ConvGeometry& g) {
  FilterJob job;
  job.direct = ForwardConv(g);
  job.images = g.images;
  job.groups = g.groups;
  job.x_image = g.x_image();
  job.y_image = g.y_image();
  job.out = g.out;
  job.y_channels = g.y_channels();
  job.filter_floats = g.taps() * g.in * g.y_channels();
  // At most 16 MiB of partial sums.
  const int64_t sums = std::clamp<int64_t>(
      (int64_t{1} << 22) / std::max<int64_t>(job.filter_floats, 1), 1,
      std::min(kConvPieces, std::max<int64_t>(g.images, 1)));
  job.images_each = std::max<int64_t>(CeilDiv(g.images, sums), 1);
  const std::vector<simd::ConvRun>& runs = job.direct.phases[0].runs;
  job.splits = std::clamp<int64_t>(
      kConvPieces / 2 / std::max<int64_t>(job.sums(), 1), 1,
      std::max<int64_t>(static_cast<int64_t>(runs.size()), 1));
  int64_t row = 0;
  for (const simd::ConvRun& run : runs) {
    job.run_rows.push_back(row);
    row += run.length;
  }
  job.run_rows.push_back(row);
  // About 200 pixels of a panel of dy, which then stays in L1: one row where it
  // has more than kConvColumns.
  const int64_t columns = std::max<int64_t>(g.w.output, 1);
  job.block_rows = std::clamp<int64_t>((200 + columns / 2) / columns, 1,
                                       std::max<int64_t>(g.h.output, 1));
  return job;
}

void RunFilterPiece(const FilterJob& job, int64_t piece, const float* x,
                    const float* dy, float* sum, float* scratch) {
  const ConvPhase& phase = job.direct.phases[0];
  const ConvSource& source = job.direct.source;
  const int64_t num_runs = static_cast<int64_t>(phase.runs.size());
  const int64_t split = piece % job.splits;
  const int64_t first_run = num_runs * split / job.splits;
  const int64_t end_run = num_runs * (split + 1) / job.splits;
  const int64_t first_row = job.run_rows[first_run];
  std::fill(sum + first_row * job.y_channels,
            sum + job.run_rows[end_run] * job.y_channels, 0.0f);

  float* copy = scratch;
  float* panel = scratch + Aligned(source.copy_floats());
  const int64_t begin = piece / job.splits * job.images_each;
  const int64_t end = std::min(begin + job.images_each, job.images);
  for (int64_t image = begin; image < end; ++image) {
    for (int64_t group = 0; group < job.groups; ++group) {
      const float* in = x + image * job.x_image;
      if (source.copied) source.CopyRows(in, group, 0, source.height, copy);
      simd::ConvFilterGrad conv;
      conv.grid = job.direct.Grid(phase, source.Base(in, copy));
      conv.grid.runs += first_run;
      conv.grid.num_runs = end_run - first_run;
      conv.dy = dy + image * job.y_image + group * job.out;
      conv.dy_pixel_step = job.y_channels;
      conv.channels = job.out;
      conv.dfilter = sum + first_row * job.y_channels + group * job.out;
      conv.dfilter_stride = job.y_channels;
      conv.block_rows = job.block_rows;
      conv.scratch = panel;
      Simd().conv.filter_grad(conv);
    }
  }
}

void RunFilterJob(const FilterJob& job, const float* x, const float* dy,
                  float* dfilter, float* workspace) {
  // Without pixels there may be no memory to point into, either.
  if (job.images == 0 || job.x_image == 0 || job.y_image == 0) {
    std::fill(dfilter, dfilter + job.filter_floats, 0.0f);
    return;
  }
  float* partial = job.sums() > 1 ? workspace : dfilter;
  const int64_t partial_step = job.sums() > 1 ? Aligned(job.filter_floats) : 0;
  float* scratch = workspace + job.partial_floats();
  ParallelFor(job.pieces(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      RunFilterPiece(job, piece, x, dy,
                     partial + piece / job.splits * partial_step,
                     scratch + piece * job.scratch_floats());
    }
  });
  if (job.sums() == 1) return;
  ParallelFor(job.filter_floats, 1 << 13, [&](int64_t begin, int64_t end) {
    std::copy(partial + begin, partial + end, dfilter + begin);
    for (int64_t s = 1; s < job.sums(); ++s) {
      Simd().axpy(1.0f, partial + s * partial_step + begin, dfilter + begin,
                  end - begin);
    }
  });
}

KernelPtr KernelOfFilterJob(FilterJob job) {
  const size_t bytes =
      (job.partial_floats() + job.pieces() * job.scratch_floats()) *
      sizeof(float);
  return KernelOf(
      [job = std::move(job)](const KernelContext& c) {
        RunFilterJob(job, c.input<float>(0), c.input<float>(1),
                     c.output<float>(0), static_cast<float*>(c.workspace()));
      },
      bytes);
}

KernelPtr KernelOfPatches(const ConvGeometry& g) {
  Gemm<float> prepared = {.m = g.taps() * g.in,
                          .n = g.out,
                          .k = g.images * g.h.output * g.w.output,
                          .transpose_a = true,
                          .ldb = g.out,
                          .ldc = g.out};
  prepared.read_a = ConvPatches{&g, nullptr}.reader();
  return KernelOf(
      [g, prepared](const KernelContext& c) {
        const ConvPatches patches = {&g, c.input<float>(0)};
        Gemm<float> gemm = prepared;
        gemm.read_a = patches.reader();
        gemm.b = c.input<float>(1);
        gemm.c = c.output<float>(0);
        RunGemm(gemm, c.workspace());
      },
      GemmWorkspace(prepared));
}

Result<KernelPtr> MakeBackpropFilter(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry g, ConvGeometryOf(spec));
  if (IsMatrixProduct(g)) {
    return KernelOfProduct({.m = g.in,
                            .n = g.out,
                            .k = g.images * g.h.input * g.w.input,
                            .transpose_a = true,
                            .lda = g.in,
                            .ldb = g.out,
                            .ldc = g.out},
                           spec);
  }
  const bool apart = g.h.stride > 1 || g.w.stride > 1;
  if (HasPatches(g) && (apart || !CopiesFit(g, ConvPass::kFilter))) {
    return KernelOfPatches(g);
  }
  return KernelOfFilterJob(FilterJobOf(g));
}

}  // namespace

void RegisterConvFilterKernels(KernelTable& table) {
  table.Register({.op = "Conv2DBackpropFilter",
                  .priority = 10,
                  .provider = "simd",
                  .supports = TilesServe,
                  .dtypes = DType::kFloat32,
                  .make = MakeBackpropFilter});
}

}  // namespace sluice::cpu
