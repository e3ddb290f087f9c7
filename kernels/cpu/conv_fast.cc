// Convolutions of float32 by register tiles over padded copies of the images
// (kernels/cpu/simd/conv.h); those of 1x1 windows are plain matrix products.
//
// Work is cut by images, and rows where there are few images; gradients of
// filters are summed within groups of images and then over the groups in order.
// Both depend on shapes alone, so the bits do not depend on threads.
#include <algorithm>

#include "engine/threads.h"
#include "kernels/cpu/conv_pass.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {

void RegisterFastConvKernels(KernelTable& table);

namespace {

constexpr int64_t kPieces = 16;  // of work, at least, where sizes allow

int64_t RoundUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
// Buffers within a workspace start on cache lines.
int64_t Aligned(int64_t floats) {
  return RoundUp(floats, kAlignment / static_cast<int64_t>(sizeof(float)));
}

// --- Forward and the gradient of the input -----------------------------------

// Piece i covers images [i / row_blocks * images_each, ...) and, of each grid,
// block i % row_blocks of its rows.
struct ConvJob {
  ConvPass pass;
  int64_t images = 0, groups = 0;
  int64_t source_image = 0, result_image = 0;  // floats
  int64_t images_each = 1, row_blocks = 1;
  std::vector<int64_t> packed;  // where each phase's filter begins, floats
  int64_t packed_group = 0;     // floats of one group's packed filter

  int64_t pieces() const {
    return (images + images_each - 1) / images_each * row_blocks;
  }
  int64_t workspace_floats() const {
    return groups * packed_group +
           pieces() * Aligned(pass.source.copy_floats());
  }
};

int64_t PanelsOf(int64_t channels) {
  const int64_t width = Simd().conv.width;
  return (channels + width - 1) / width;
}

ConvJob JobOf(const ConvGeometry& g, ConvPass pass) {
  ConvJob job;
  job.images = g.images;
  job.groups = g.groups;
  job.source_image = pass.source.h * pass.source.w * pass.source.channels;
  job.images_each = (g.images + kPieces - 1) / kPieces;
  int64_t rows = 1;
  for (const ConvPhase& phase : pass.phases) {
    job.packed.push_back(job.packed_group);
    job.packed_group +=
        Aligned(PanelsOf(pass.result_channels) * phase.k * Simd().conv.width);
    rows = std::max(rows, phase.rows);
  }
  job.row_blocks = g.images >= kPieces
                       ? 1
                       : std::clamp<int64_t>(
                             kPieces / std::max<int64_t>(g.images, 1), 1, rows);
  job.images_each = std::max<int64_t>(job.images_each, 1);
  job.pass = std::move(pass);
  return job;
}

// Brings the filter into panels, phase by phase and tap by tap.
void PackFilter(const ConvJob& job, const float* filter, float* packed) {
  const ConvPass& pass = job.pass;
  const int64_t in = pass.source.group_channels;
  const int64_t width = Simd().conv.width;
  const auto pack = Simd().gemm_f32.pack;
  for (int64_t group = 0; group < job.groups; ++group) {
    for (size_t p = 0; p < pass.phases.size(); ++p) {
      const ConvPhase& phase = pass.phases[p];
      float* panels = packed + group * job.packed_group + job.packed[p];
      const int64_t taps = static_cast<int64_t>(phase.taps.size());
      const int64_t per_tap = std::max<int64_t>(in * pass.result_channels, 1);
      ParallelFor(taps, std::max<int64_t>((1 << 14) / per_tap, 1),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t t = begin; t < end; ++t) {
                      pack(filter + phase.taps[t] * pass.tap_step +
                               group * pass.group_step,
                           pass.row_step, pass.column_step, in,
                           pass.result_channels, panels + t * in * width,
                           phase.k * width);
                    }
                  });
    }
  }
}

// One group of one image, a block of each grid's rows.
void RunImage(const ConvJob& job, int64_t group, int64_t block,
              const float* image, const float* packed, float* copy, float* y) {
  const ConvPass& pass = job.pass;
  for (size_t p = 0; p < pass.phases.size(); ++p) {
    const ConvPhase& phase = pass.phases[p];
    const int64_t begin = phase.rows * block / job.row_blocks;
    const int64_t end = phase.rows * (block + 1) / job.row_blocks;
    if (begin == end) continue;
    // All phases of a whole image share one copy.
    if (pass.source.copied && (job.row_blocks > 1 || p == 0)) {
      const bool whole = job.row_blocks == 1;
      pass.source.CopyRows(
          image, group, whole ? 0 : begin * phase.row_stride + phase.first_row,
          whole ? pass.source.height
                : (end - 1) * phase.row_stride + phase.end_row,
          copy);
    }
    simd::ConvForward conv;
    conv.grid = pass.Grid(phase, pass.source.Base(image, copy));
    conv.grid.image += begin * conv.grid.row_step;
    conv.grid.rows = end - begin;
    conv.filter = packed + group * job.packed_group + job.packed[p];
    conv.k = phase.k;
    conv.channels = pass.result_channels;
    conv.y = y + group * pass.result_channels + phase.y_offset +
             begin * phase.y_row_step;
    conv.y_row_step = phase.y_row_step;
    conv.y_pixel_step = phase.y_pixel_step;
    Simd().conv.forward(conv);
  }
}

void RunJob(const ConvJob& job, const float* source, const float* filter,
            float* result, float* workspace) {
  float* packed = workspace;
  float* copies = packed + job.groups * job.packed_group;
  const int64_t copy_floats = Aligned(job.pass.source.copy_floats());
  PackFilter(job, filter, packed);
  ParallelFor(job.pieces(), 1, [&](int64_t first, int64_t last) {
    for (int64_t piece = first; piece < last; ++piece) {
      const int64_t begin = piece / job.row_blocks * job.images_each;
      const int64_t end = std::min(begin + job.images_each, job.images);
      for (int64_t image = begin; image < end; ++image) {
        for (int64_t group = 0; group < job.groups; ++group) {
          RunImage(job, group, piece % job.row_blocks,
                   source + image * job.source_image, packed,
                   copies + piece * copy_floats,
                   result + image * job.result_image);
        }
      }
    }
  });
}

KernelPtr KernelOfJob(ConvJob job) {
  const size_t bytes = job.workspace_floats() * sizeof(float);
  return KernelOf(
      [job = std::move(job)](const KernelContext& c) {
        RunJob(job, c.input<float>(0), c.input<float>(1), c.output<float>(0),
               static_cast<float*>(c.workspace()));
      },
      bytes);
}

// --- The gradient of the filter ----------------------------------------------

// Piece i covers images [i / splits * images_each, ...) and block i % splits of
// the runs.
struct FilterJob {
  ConvPass pass;
  int64_t images = 0, groups = 0;
  int64_t x_image = 0, y_image = 0;  // floats
  int64_t out = 0, y_channels = 0;
  int64_t images_each = 1, splits = 1;
  std::vector<int64_t> run_rows;  // where each run begins in the filter's rows
  int64_t filter_floats = 0;
  int64_t block_rows = 1;  // of y, summed at a time

  int64_t sums() const { return (images + images_each - 1) / images_each; }
  int64_t pieces() const { return sums() * splits; }
  int64_t scratch_floats() const {
    return Aligned(pass.source.copy_floats()) +
           Aligned(block_rows * pass.phases[0].columns * Simd().conv.width);
  }
  // One sum goes straight to the result.
  int64_t partial_floats() const {
    return sums() > 1 ? sums() * Aligned(filter_floats) : 0;
  }
};

FilterJob FilterJobOf(const ConvGeometry& g) {
  FilterJob job;
  job.pass = ForwardPass(g);
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
      std::min(kPieces, std::max<int64_t>(g.images, 1)));
  job.images_each = std::max<int64_t>((g.images + sums - 1) / sums, 1);
  const std::vector<simd::ConvRun>& runs = job.pass.phases[0].runs;
  job.splits = std::clamp<int64_t>(
      kPieces / 2 / std::max<int64_t>(job.sums(), 1), 1,
      std::max<int64_t>(static_cast<int64_t>(runs.size()), 1));
  int64_t row = 0;
  for (const simd::ConvRun& run : runs) {
    job.run_rows.push_back(row);
    row += run.length;
  }
  job.run_rows.push_back(row);
  // About 200 pixels of a panel of dy, which then stays in L1.
  const int64_t columns = std::max<int64_t>(g.w.output, 1);
  job.block_rows = std::clamp<int64_t>((200 + columns / 2) / columns, 1,
                                       std::max<int64_t>(g.h.output, 1));
  return job;
}

void RunFilterPiece(const FilterJob& job, int64_t piece, const float* x,
                    const float* dy, float* sum, float* scratch) {
  const ConvPhase& phase = job.pass.phases[0];
  const ConvSource& source = job.pass.source;
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
      conv.grid = job.pass.Grid(phase, source.Base(in, copy));
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
  if (job.images == 0) {
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

// --- 1x1 windows -------------------------------------------------------------

bool IsMatrixProduct(const ConvGeometry& g) {
  auto plain = [](const WindowDim& d) {
    return d.window == 1 && d.stride == 1 && d.pad_before + d.pad_after == 0;
  };
  return g.groups == 1 && plain(g.h) && plain(g.w);
}

KernelPtr KernelOfProduct(const Gemm<float>& prepared) {
  return KernelOf(
      [prepared](const KernelContext& c) {
        Gemm<float> gemm = prepared;
        gemm.a = c.input<float>(0);
        gemm.b = c.input<float>(1);
        gemm.c = c.output<float>(0);
        RunGemm(gemm, c.workspace());
      },
      GemmWorkspace(prepared));
}

// --- Kernels -----------------------------------------------------------------

Result<KernelPtr> MakeForward(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry g, ConvGeometryOf(spec));
  if (IsMatrixProduct(g)) {
    return KernelOfProduct({.m = g.images * g.h.input * g.w.input,
                            .n = g.out,
                            .k = g.in,
                            .lda = g.in,
                            .ldb = g.out,
                            .ldc = g.out});
  }
  ConvJob job = JobOf(g, ForwardPass(g));
  job.result_image = g.y_image();
  return KernelOfJob(std::move(job));
}

Result<KernelPtr> MakeBackpropInput(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry g, ConvGeometryOf(spec));
  if (IsMatrixProduct(g)) {
    return KernelOfProduct({.m = g.images * g.h.input * g.w.input,
                            .n = g.in,
                            .k = g.out,
                            .transpose_b = true,
                            .lda = g.out,
                            .ldb = g.out,
                            .ldc = g.in});
  }
  ConvJob job = JobOf(g, BackpropInputPass(g));
  job.result_image = g.x_image();
  return KernelOfJob(std::move(job));
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
                            .ldc = g.out});
  }
  return KernelOfFilterJob(FilterJobOf(g));
}

// Groups of few channels would leave most of a panel empty.
bool WideEnough(const KernelSpec& spec) {
  const Result<ConvGeometry> g = ConvGeometryOf(spec);
  return g.ok() && (g->groups == 1 || std::min(g->in, g->out) >= 4);
}

}  // namespace

void RegisterFastConvKernels(KernelTable& table) {
  auto add = [&](const char* op, Result<KernelPtr> (*make)(const KernelSpec&)) {
    table.Register({.op = op,
                    .priority = 10,
                    .provider = "simd",
                    .supports = WideEnough,
                    .dtypes = DType::kFloat32,
                    .make = make});
  };
  add("Conv2D", MakeForward);
  add("Conv2DBackpropInput", MakeBackpropInput);
  add("Conv2DBackpropFilter", MakeBackpropFilter);
}

}  // namespace sluice::cpu
