// Convolutions of float32, and their gradients with respect to the input, by
// register tiles over padded copies of the images (kernels/cpu/simd/conv.h).
// Work is cut by images, and by rows where there are few images.
#include <algorithm>

#include "engine/ceil_div.h"
#include "engine/threads.h"
#include "kernels/cpu/conv/conv_patches.h"
#include "kernels/cpu/conv/conv_product.h"
#include "kernels/cpu/conv/direct_conv.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/gemm_tile.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu {

void RegisterFastConvKernels(KernelTable& table);
void RegisterConvFilterKernels(KernelTable& table);  // conv_filter.cc

namespace {

// Piece i covers images [i / row_blocks * images_each, ...) and, of each grid,
// block i % row_blocks of its rows.
struct ConvJob {
  DirectConv direct;
  int64_t images = 0, groups = 0;
  int64_t source_image = 0, result_image = 0;  // floats
  int64_t images_each = 1, row_blocks = 1;
  std::vector<int64_t> packed;  // where each phase's filter begins, floats
  int64_t packed_group = 0;     // floats of one group's packed filter

  int64_t pieces() const { return CeilDiv(images, images_each) * row_blocks; }
};

int64_t PanelsOf(int64_t channels) {
  const int64_t width = Simd().conv.width;
  return CeilDiv(channels, width);
}

ConvJob JobOf(const ConvGeometry& g, DirectConv direct) {
  ConvJob job;
  job.images = g.images;
  job.groups = g.groups;
  job.source_image = direct.source.h * direct.source.w * direct.source.channels;
  job.images_each = CeilDiv(g.images, kConvPieces);
  int64_t rows = 1;
  for (const ConvPhase& phase : direct.phases) {
    job.packed.push_back(job.packed_group);
    job.packed_group +=
        Aligned(PanelsOf(direct.result_channels) * phase.k * Simd().conv.width);
    rows = std::max(rows, phase.rows);
  }
  job.row_blocks =
      g.images >= kConvPieces
          ? 1
          : std::clamp<int64_t>(kConvPieces / std::max<int64_t>(g.images, 1), 1,
                                rows);
  job.images_each = std::max<int64_t>(job.images_each, 1);
  job.direct = std::move(direct);
  return job;
}

// Brings the filter into panels, phase by phase and tap by tap.
void PackFilter(const ConvJob& job, const float* filter, float* packed) {
  const DirectConv& direct = job.direct;
  const int64_t in = direct.source.group_channels;
  const int64_t width = Simd().conv.width;
  const auto pack = Simd().gemm_f32.pack;
  for (int64_t group = 0; group < job.groups; ++group) {
    for (size_t p = 0; p < direct.phases.size(); ++p) {
      const ConvPhase& phase = direct.phases[p];
      float* panels = packed + group * job.packed_group + job.packed[p];
      const int64_t taps = static_cast<int64_t>(phase.taps.size());
      const int64_t per_tap = std::max<int64_t>(in * direct.result_channels, 1);
      ParallelFor(taps, std::max<int64_t>((1 << 14) / per_tap, 1),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t t = begin; t < end; ++t) {
                      pack(filter + phase.taps[t] * direct.tap_step +
                               group * direct.group_step,
                           direct.row_step, direct.column_step, in,
                           direct.result_channels, panels + t * in * width,
                           phase.k * width);
                    }
                  });
    }
  }
}

// One group of one image, a block of each grid's rows.
void RunImage(const ConvJob& job, int64_t group, int64_t block,
              const float* image, const float* packed, float* copy, float* y,
              const ConvEpilogue& epilogue) {
  const DirectConv& direct = job.direct;
  for (size_t p = 0; p < direct.phases.size(); ++p) {
    const ConvPhase& phase = direct.phases[p];
    const int64_t begin = phase.rows * block / job.row_blocks;
    const int64_t end = phase.rows * (block + 1) / job.row_blocks;
    if (begin == end) continue;
    // All phases of a whole image share one copy.
    if (direct.source.copied && (job.row_blocks > 1 || p == 0)) {
      const bool whole = job.row_blocks == 1;
      direct.source.CopyRows(
          image, group, whole ? 0 : begin * phase.row_stride + phase.first_row,
          whole ? direct.source.height
                : (end - 1) * phase.row_stride + phase.end_row,
          copy);
    }
    simd::ConvForward conv;
    conv.grid = direct.Grid(phase, direct.source.Base(image, copy));
    conv.grid.image += begin * conv.grid.row_step;
    conv.grid.rows = end - begin;
    conv.filter = packed + group * job.packed_group + job.packed[p];
    conv.k = phase.k;
    conv.channels = direct.result_channels;
    const int64_t channel = group * direct.result_channels;
    const int64_t offset = channel + phase.y_offset + begin * phase.y_row_step;
    conv.y = y + offset;
    conv.bias = epilogue.bias == nullptr ? nullptr : epilogue.bias + channel;
    conv.addend =
        epilogue.addend == nullptr ? nullptr : epilogue.addend + offset;
    conv.relu = epilogue.relu;
    conv.y_row_step = phase.y_row_step;
    conv.y_pixel_step = phase.y_pixel_step;
    Simd().conv.forward(conv);
  }
}

void RunJob(const ConvJob& job, const float* source, const float* packed,
            float* result, const ConvEpilogue& epilogue, float* copies) {
  if (job.result_image == 0) return;  // there may be no memory to point into
  if (job.direct.gaps) {
    ParallelFor(job.images * job.result_image, 1 << 16,
                [&](int64_t begin, int64_t end) {
                  std::fill(result + begin, result + end, 0.0f);
                });
  }
  const int64_t copy_floats = Aligned(job.direct.source.copy_floats());
  ParallelFor(job.pieces(), 1, [&](int64_t first, int64_t last) {
    for (int64_t piece = first; piece < last; ++piece) {
      const int64_t begin = piece / job.row_blocks * job.images_each;
      const int64_t end = std::min(begin + job.images_each, job.images);
      for (int64_t image = begin; image < end; ++image) {
        const int64_t offset = image * job.result_image;
        ConvEpilogue own = epilogue;
        if (own.addend != nullptr) own.addend += offset;
        for (int64_t group = 0; group < job.groups; ++group) {
          RunImage(job, group, piece % job.row_blocks,
                   source + image * job.source_image, packed,
                   copies + piece * copy_floats, result + offset, own);
        }
      }
    }
  });
}

KernelPtr KernelOfJob(ConvJob job, const KernelSpec& spec) {
  const ConvEpilogueOf epilogue(spec);
  const int64_t packed_floats = job.groups * job.packed_group;
  const int64_t copies_floats =
      job.pieces() * Aligned(job.direct.source.copy_floats());
  if (const Tensor* filter = ConstantInput(spec, 1)) {
    Tensor packed(DType::kFloat32, {packed_floats});
    PackFilter(job, filter->data<float>(), packed.data<float>());
    return KernelOf(
        [job = std::move(job), packed, epilogue](const KernelContext& c) {
          RunJob(job, c.input<float>(0), packed.data<float>(),
                 c.output<float>(0), epilogue(c),
                 static_cast<float*>(c.workspace()));
        },
        copies_floats * sizeof(float));
  }
  return KernelOf(
      [job = std::move(job), packed_floats, epilogue](const KernelContext& c) {
        float* const packed = static_cast<float*>(c.workspace());
        PackFilter(job, c.input<float>(1), packed);
        RunJob(job, c.input<float>(0), packed, c.output<float>(0), epilogue(c),
               packed + packed_floats);
      },
      (packed_floats + copies_floats) * sizeof(float));
}

// Where the filter is too large for L2, a product of patches reads it once for
// many pixels; the register tiles below would stream it for every few rows. And
// where copies would be far larger than the images.
bool PatchesServe(const ConvGeometry& g, const KernelSpec& spec) {
  if (!HasPatches(g)) return false;
  const auto filter_bytes =
      g.taps() * g.in * g.out * static_cast<int64_t>(sizeof(float));
  return !CopiesFit(g, ConvPass::kForward) ||
         (ConstantInput(spec, 1) != nullptr && filter_bytes >= simd::kFarBytes);
}

KernelPtr KernelOfPatches(const ConvGeometry& g, const KernelSpec& spec) {
  Gemm<float> prepared = {.m = g.images * g.h.output * g.w.output,
                          .n = g.out,
                          .k = g.taps() * g.in,
                          .ldb = g.out,
                          .ldc = g.out};
  prepared.read_a = ConvPatches{&g, nullptr}.reader();
  ConvProduct product(prepared, spec);
  const size_t bytes = product.workspace_bytes();
  return KernelOf(
      [g, product](const KernelContext& c) {
        const ConvPatches patches = {&g, c.input<float>(0)};
        product.Run(c, patches.reader());
      },
      bytes);
}

Result<KernelPtr> MakeForward(const KernelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const ConvGeometry g, ConvGeometryOf(spec));
  if (IsMatrixProduct(g)) {
    return KernelOfProduct({.m = g.images * g.h.input * g.w.input,
                            .n = g.out,
                            .k = g.in,
                            .lda = g.in,
                            .ldb = g.out,
                            .ldc = g.out},
                           spec);
  }
  if (PatchesServe(g, spec)) return KernelOfPatches(g, spec);
  ConvJob job = JobOf(g, ForwardConv(g));
  job.result_image = g.y_image();
  return KernelOfJob(std::move(job), spec);
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
                            .ldc = g.in},
                           spec);
  }
  ConvJob job = JobOf(g, BackpropInputConv(g));
  job.result_image = g.x_image();
  return KernelOfJob(std::move(job), spec);
}

}  // namespace

void RegisterFastConvKernels(KernelTable& table) {
  auto add = [&](const char* op, Result<KernelPtr> (*make)(const KernelSpec&)) {
    table.Register({.op = op,
                    .priority = 10,
                    .provider = "simd",
                    .supports = TilesServe,
                    .dtypes = DType::kFloat32,
                    .make = make});
  };
  for (const char* op : kConvolutions) add(op, MakeForward);
  add("Conv2DBackpropInput", MakeBackpropInput);
  RegisterConvFilterKernels(table);
}

}  // namespace sluice::cpu
