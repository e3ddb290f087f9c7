#include "engine/semantics/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "engine/ceil_div.h"

namespace sluice {
namespace {

// Beyond it nothing is an image: libraries count in 32 bits, and no product of
// one with a position overflows.
constexpr int64_t kMaxWindowStep = std::numeric_limits<int32_t>::max();

// Fills output and, for SAME, the padding.
Status Place(std::string_view padding, WindowDim* d) {
  if (d->stride < 1 || d->dilation < 1 || d->pad_before < 0 ||
      d->pad_after < 0 ||
      std::max({d->stride, d->dilation, d->pad_before, d->pad_after}) >
          kMaxWindowStep) {
    return InvalidArgument(fmt::format(
        "strides and dilations must be from 1, paddings from 0 to {}, got "
        "stride {}, dilation {}, padding {} and {}",
        kMaxWindowStep, d->stride, d->dilation, d->pad_before, d->pad_after));
  }
  if (d->window == 0) return InvalidArgument("the window is empty");
  if (d->window > 0 && (d->window - 1) > (kMaxWindowStep - 1) / d->dilation) {
    return InvalidArgument(fmt::format(
        "a window of {} with dilation {} spans more than {} elements",
        d->window, d->dilation, kMaxWindowStep));
  }
  d->output = kUnknown;
  if (d->input < 0 || d->window < 0) return {};
  if (padding == "SAME") {
    d->output = CeilDiv(d->input, d->stride);
    const int64_t total = std::max<int64_t>(
        (d->output - 1) * d->stride + d->extent() - d->input, 0);
    d->pad_before = total / 2;
    d->pad_after = total - d->pad_before;
    return {};
  }
  const int64_t padded = d->input + d->pad_before + d->pad_after;
  if (padded < d->extent()) {
    return InvalidArgument(fmt::format(
        "a window of {} does not fit into {} (padding {} and {}, dilation {})",
        d->window, d->input, d->pad_before, d->pad_after, d->dilation));
  }
  d->output = (padded - d->extent()) / d->stride + 1;
  return {};
}

}  // namespace

Result<Window2D> WindowOf(const Attributes& attrs, const Shape& image,
                          int64_t window_h, int64_t window_w) {
  const std::vector<int64_t> ones = {1, 1};
  const std::vector<int64_t>& strides = attrs.Ints("strides");
  const std::vector<int64_t>& dilations =
      attrs.Has("dilations") ? attrs.Ints("dilations") : ones;
  const std::string& padding = attrs.String("padding");
  const std::vector<int64_t>& amounts = attrs.Ints("explicit_padding");
  if (strides.size() != 2 || dilations.size() != 2 || amounts.size() != 4) {
    return InvalidArgument(
        "strides and dilations are pairs, explicit_padding has four amounts");
  }
  if (padding != "SAME" && padding != "VALID" && padding != "EXPLICIT") {
    return InvalidArgument(fmt::format(
        "padding is '{}', wanted SAME, VALID or EXPLICIT", padding));
  }
  Window2D window;
  window.h = {.input = image[1],
              .window = window_h,
              .stride = strides[0],
              .dilation = dilations[0]};
  window.w = {.input = image[2],
              .window = window_w,
              .stride = strides[1],
              .dilation = dilations[1]};
  if (padding == "EXPLICIT") {
    window.h.pad_before = amounts[0];
    window.h.pad_after = amounts[1];
    window.w.pad_before = amounts[2];
    window.w.pad_after = amounts[3];
  }
  SLUICE_RETURN_IF_ERROR(Place(padding, &window.h));
  SLUICE_RETURN_IF_ERROR(Place(padding, &window.w));
  return window;
}

}  // namespace sluice
