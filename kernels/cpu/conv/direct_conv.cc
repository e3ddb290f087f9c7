#include "kernels/cpu/conv/direct_conv.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "engine/ceil_div.h"
#include "kernels/cpu/conv/conv_patches.h"

namespace sluice::cpu {
namespace {

// One direction of a grid: result pixels first, first + step, ... and for each
// tap the source pixel it reads for the first of them; the next ones read
// `stride` further on.
struct Line {
  struct Tap {
    int64_t k;
    int64_t start;
  };
  int64_t first = 0, step = 1, count = 0;
  int64_t stride = 1;
  std::vector<Tap> taps;  // by rising start
};

std::vector<Line> ForwardLines(const WindowDim& d) {
  Line line = {.count = d.output, .stride = d.stride};
  for (int64_t k = 0; k < d.window; ++k) {
    line.taps.push_back({k, d.Start(0) + k * d.dilation});
  }
  return {line};
}

// Tap k of window o lies on pixel i = o * stride - pad_before + k * dilation.
// For i = first + j * stride that is o = start + j. Lines without a tap are
// left out: a stride may be far longer than the window.
std::vector<Line> BackpropLines(const WindowDim& d) {
  std::map<int64_t, std::vector<Line::Tap>> taps;  // by `first`
  for (int64_t k = d.window - 1; k >= 0; --k) {
    const int64_t i = k * d.dilation - d.pad_before;  // of window 0
    const int64_t first = (i % d.stride + d.stride) % d.stride;
    if (first < d.input) taps[first].push_back({k, (first - i) / d.stride});
  }
  std::vector<Line> lines;
  for (auto& [first, its] : taps) {
    lines.push_back({.first = first,
                     .step = d.stride,
                     .count = CeilDiv(d.input - first, d.stride),
                     .taps = std::move(its)});
  }
  return lines;
}

// Whether that are all pixels.
bool CoverAll(const std::vector<Line>& lines, const WindowDim& d) {
  return std::ssize(lines) == std::min(d.stride, d.input);
}

// The source pixels that some tap reads: [begin, end).
struct Span {
  int64_t begin = 0, end = 0;
};
Span SpanOf(const std::vector<Line>& lines) {
  Span span;
  bool any = false;
  for (const Line& line : lines) {
    if (line.count == 0) continue;  // of no result
    for (const Line::Tap& tap : line.taps) {
      const int64_t end = tap.start + (line.count - 1) * line.stride + 1;
      span.begin = any ? std::min(span.begin, tap.start) : tap.start;
      span.end = any ? std::max(span.end, end) : end;
      any = true;
    }
  }
  return span;
}

// Appends a run, or lengthens the last one where it goes on.
void AddRun(int64_t offset, int64_t length, std::vector<simd::ConvRun>* runs) {
  if (!runs->empty() && runs->back().offset + runs->back().length == offset) {
    runs->back().length += length;
  } else {
    runs->push_back({offset, length});
  }
}

// The result image is result_w pixels of result_channels wide, all groups.
ConvPhase PhaseOf(const ConvSource& source, const Line& h, const Line& w,
                  int64_t window_w, int64_t result_w, int64_t result_channels) {
  ConvPhase phase;
  phase.rows = h.count;
  phase.columns = w.count;
  phase.row_stride = h.stride;
  phase.column_stride = w.stride;
  if (!h.taps.empty()) {
    phase.first_row = h.taps.front().start - source.top;
    phase.end_row = h.taps.back().start - source.top + 1;
  }
  for (const Line::Tap& row : h.taps) {
    for (const Line::Tap& column : w.taps) {
      phase.taps.push_back(row.k * window_w + column.k);
      AddRun((row.start - source.top) * source.row_floats() +
                 (column.start - source.left) * source.pixel_floats(),
             source.group_channels, &phase.runs);
      phase.k += source.group_channels;
    }
  }
  phase.y_offset = (h.first * result_w + w.first) * result_channels;
  phase.y_row_step = h.step * result_w * result_channels;
  phase.y_pixel_step = w.step * result_channels;
  return phase;
}

// Fills the parts of the source that follow from the lines.
void Frame(const std::vector<Line>& h, const std::vector<Line>& w,
           ConvSource* source) {
  const Span rows = SpanOf(h), columns = SpanOf(w);
  source->top = rows.begin;
  source->left = columns.begin;
  source->height = rows.end - rows.begin;
  source->width = columns.end - columns.begin;
  source->copied = source->channels != source->group_channels ||
                   rows.begin < 0 || columns.begin < 0 ||
                   rows.end > source->h || columns.end > source->w;
}

}  // namespace

void ConvSource::CopyRows(const float* image, int64_t group, int64_t begin,
                          int64_t end, float* copy) const {
  // The columns that lie inside the image.
  const int64_t from = std::clamp<int64_t>(-left, 0, width);
  const int64_t to = std::clamp<int64_t>(w - left, from, width);
  for (int64_t row = begin; row < end; ++row) {
    float* out = copy + row * row_floats();
    const int64_t y = top + row;
    if (y < 0 || y >= h) {
      std::fill(out, out + row_floats(), 0.0f);
      continue;
    }
    std::fill(out, out + from * group_channels, 0.0f);
    std::fill(out + to * group_channels, out + width * group_channels, 0.0f);
    const float* in =
        image + (y * w + left + from) * channels + group * group_channels;
    out += from * group_channels;
    if (group_channels == channels) {
      std::copy(in, in + (to - from) * channels, out);
      continue;
    }
    for (int64_t x = from; x < to; ++x) {
      std::copy(in, in + group_channels, out);
      in += channels;
      out += group_channels;
    }
  }
}

bool CopiesFit(const ConvGeometry& g, ConvPass pass) {
  // A copy so many times what there is takes longer than plain loops, which
  // leave the padding out.
  constexpr double kMost = 16;
  const bool backprop = pass == ConvPass::kInput;
  const auto touched = [&](const WindowDim& d) {
    const Span span = SpanOf(backprop ? BackpropLines(d) : ForwardLines(d));
    return span.end - span.begin;
  };
  // In floating point: the product of two spans may be 2^64.
  const auto floats = [](int64_t h, int64_t w, int64_t channels) {
    return static_cast<double>(h) * static_cast<double>(w) *
           static_cast<double>(channels);
  };
  const int64_t channels = backprop ? g.out : g.in;
  return floats(touched(g.h), touched(g.w), channels) <=
         kMost * (floats(g.h.input, g.w.input, g.x_channels()) +
                  floats(g.h.output, g.w.output, g.y_channels()) +
                  floats(g.h.window, g.w.window, channels));
}

bool TilesServe(const KernelSpec& spec) {
  const Result<ConvGeometry> g = ConvGeometryOf(spec);
  // Of groups with few channels most of a panel would be empty.
  if (!g.ok() || (g->groups > 1 && std::min(g->in, g->out) < 4)) return false;
  const ConvPass pass = spec.conv.pass;
  return CopiesFit(*g, pass) || (pass != ConvPass::kInput && HasPatches(*g));
}

DirectConv ForwardConv(const ConvGeometry& g) {
  const std::vector<Line> h = ForwardLines(g.h), w = ForwardLines(g.w);
  DirectConv direct;
  direct.source = {.h = g.h.input,
                   .w = g.w.input,
                   .channels = g.x_channels(),
                   .group_channels = g.in};
  Frame(h, w, &direct.source);
  direct.phases.push_back(PhaseOf(direct.source, h[0], w[0], g.w.window,
                                  g.w.output, g.y_channels()));
  direct.result_channels = g.out;
  direct.tap_step = g.in * g.y_channels();
  direct.group_step = g.out;
  direct.row_step = g.y_channels();
  direct.column_step = 1;
  return direct;
}

DirectConv BackpropInputConv(const ConvGeometry& g) {
  const std::vector<Line> h = BackpropLines(g.h), w = BackpropLines(g.w);
  DirectConv direct;
  direct.source = {.h = g.h.output,
                   .w = g.w.output,
                   .channels = g.y_channels(),
                   .group_channels = g.out};
  Frame(h, w, &direct.source);
  direct.gaps = !CoverAll(h, g.h) || !CoverAll(w, g.w);
  for (const Line& row : h) {
    for (const Line& column : w) {
      direct.phases.push_back(PhaseOf(direct.source, row, column, g.w.window,
                                      g.w.input, g.x_channels()));
    }
  }
  direct.result_channels = g.in;
  direct.tap_step = g.in * g.y_channels();
  direct.group_step = g.out;
  direct.row_step = 1;
  direct.column_step = g.y_channels();
  return direct;
}

}  // namespace sluice::cpu
