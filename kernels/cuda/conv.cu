// Convolutions as products (product_kernels.h): how packs of their operands
// are found in images and filters.
#include "kernels/cuda/conv.h"

#include "kernels/cuda/product_kernels.h"

namespace sluice::cuda {
namespace {

// ConvGeometry in the 32 bits that a GPU divides faster.
struct Axis {
  int input, output, window, stride, dilation, pad;

  // The element under tap k of window o, or -1 in the padding.
  __device__ int Under(int o, int k) const {
    const int i = o * stride - pad + k * dilation;
    return i < input ? i : -1;
  }
  // The window whose tap k lies on element i, or -1.
  __device__ int Over(int i, int k) const {
    const int start = i + pad - k * dilation;
    if (start < 0 || start % stride != 0) return -1;
    const int o = start / stride;
    return o < output ? o : -1;
  }
};
Axis AxisOf(const WindowDim& d) {
  const auto narrow = [](int64_t v) { return static_cast<int>(v); };
  return {narrow(d.input),  narrow(d.output),   narrow(d.window),
          narrow(d.stride), narrow(d.dilation), narrow(d.pad_before)};
}

// The four from `inner` on of `length` elements; at(i) points to one, or is
// null where it is 0. whole: the four are neighbours, and may be taken at once.
template <typename T, typename At>
__device__ Pack<T, 4> LoadFour(int inner, int length, bool whole, At at) {
  Pack<T, 4> pack = {};
  if (whole) {
    const T* const p = inner < length ? at(inner) : nullptr;
    return p != nullptr ? LoadPack<T, 4>(p, 4, true) : pack;
  }
  for (int i = 0; i < 4 && inner + i < length; ++i) {
    const T* const p = at(inner + i);
    if (p != nullptr) pack.at[i] = *p;
  }
  return pack;
}

// x as a matrix [pixels of y, (tap, i)].
template <typename T>
struct Patches {
  const T* x;
  Axis h, w;
  int pixels, channels;  // of y, of a group
  int64_t pitch;         // of x's pixels
  bool along_k;
  bool whole;

  __device__ Pack<T, 4> Load(int64_t base, int pixel, int inner) const {
    const int row = pixel / w.output, ow = pixel - row * w.output;
    const int image = row / h.output, oh = row - image * h.output;
    const int length = pixel < pixels ? h.window * w.window * channels : 0;
    return LoadFour<T>(inner, length, whole, [&](int at) -> const T* {
      const int tap = at / channels, i = at - tap * channels;
      const int kh = tap / w.window, kw = tap - kh * w.window;
      const int ih = h.Under(oh, kh), iw = w.Under(ow, kw);
      if (ih < 0 || iw < 0) return nullptr;
      const int64_t from = (static_cast<int64_t>(image) * h.input + ih);
      return x + base + (from * w.input + iw) * pitch + i;
    });
  }
};

// dy as a matrix [pixels of x, (tap, o)].
template <typename T>
struct Windows {
  const T* dy;
  Axis h, w;
  int pixels, channels;  // of x, of a group
  int64_t pitch;         // of dy's pixels
  bool along_k = true;
  bool whole;

  __device__ Pack<T, 4> Load(int64_t base, int pixel, int inner) const {
    const int row = pixel / w.input, iw = pixel - row * w.input;
    const int image = row / h.input, ih = row - image * h.input;
    const int length = pixel < pixels ? h.window * w.window * channels : 0;
    return LoadFour<T>(inner, length, whole, [&](int at) -> const T* {
      const int tap = at / channels, o = at - tap * channels;
      const int kh = tap / w.window, kw = tap - kh * w.window;
      const int oh = h.Over(ih, kh), ow = w.Over(iw, kw);
      if (oh < 0 || ow < 0) return nullptr;
      const int64_t from = static_cast<int64_t>(image) * h.output + oh;
      return dy + base + (from * w.output + ow) * pitch + o;
    });
  }
};

// The filter as a matrix [i, (tap, o)].
template <typename T>
struct FilterByInput {
  const T* filter;
  int taps, in, out;
  int64_t pitch;  // of the filter's rows: all groups' o
  bool along_k = true;
  bool whole;

  __device__ Pack<T, 4> Load(int64_t base, int i, int inner) const {
    const int length = i < in ? taps * out : 0;
    return LoadFour<T>(inner, length, whole, [&](int at) {
      const int tap = at / out, o = at - tap * out;
      return filter + base + (static_cast<int64_t>(tap) * in + i) * pitch + o;
    });
  }
};

template <typename T>
Patches<T> PatchesOf(const ConvGeometry& g, const void* x, bool along_k) {
  return {static_cast<const T*>(x),
          AxisOf(g.h),
          AxisOf(g.w),
          static_cast<int>(g.images * g.h.output * g.w.output),
          static_cast<int>(g.in),
          g.x_channels(),
          along_k,
          LinesAreWhole<T>(x, g.x_channels(), g.in)};
}

// [lines, out] of a matrix whose rows are all groups' output channels.
template <typename T>
MatrixOperand<T> ByOutput(const ConvGeometry& g, const void* matrix,
                          int64_t lines) {
  return {static_cast<const T*>(matrix),
          static_cast<int>(lines),
          static_cast<int>(g.out),
          g.y_channels(),
          /*along_k=*/false,
          LinesAreWhole<T>(matrix, g.y_channels(), g.out)};
}

template <typename T>
Status Forward(const ConvGeometry& g, const void* x, const void* filter,
               void* y, const Epilogue& epilogue, void* workspace,
               cudaStream_t stream) {
  return LaunchProduct<T>("Conv2D", ConvProductOf(g, ConvPass::kForward),
                          PatchesOf<T>(g, x, /*along_k=*/true),
                          ByOutput<T>(g, filter, g.taps() * g.in),
                          static_cast<T*>(y), epilogue, workspace, stream);
}

template <typename T>
Status BackpropInput(const ConvGeometry& g, const void* dy, const void* filter,
                     void* dx, const Epilogue& epilogue, void* workspace,
                     cudaStream_t stream) {
  const Windows<T> windows = {
      .dy = static_cast<const T*>(dy),
      .h = AxisOf(g.h),
      .w = AxisOf(g.w),
      .pixels = static_cast<int>(g.images * g.h.input * g.w.input),
      .channels = static_cast<int>(g.out),
      .pitch = g.y_channels(),
      .whole = LinesAreWhole<T>(dy, g.y_channels(), g.out)};
  const FilterByInput<T> by_input = {
      .filter = static_cast<const T*>(filter),
      .taps = static_cast<int>(g.taps()),
      .in = static_cast<int>(g.in),
      .out = static_cast<int>(g.out),
      .pitch = g.y_channels(),
      .whole = LinesAreWhole<T>(filter, g.y_channels(), g.out)};
  return LaunchProduct<T>("Conv2DBackpropInput",
                          ConvProductOf(g, ConvPass::kInput), windows, by_input,
                          static_cast<T*>(dx), epilogue, workspace, stream);
}

template <typename T>
Status BackpropFilter(const ConvGeometry& g, const void* x, const void* dy,
                      void* dfilter, const Epilogue& epilogue, void* workspace,
                      cudaStream_t stream) {
  return LaunchProduct<T>(
      "Conv2DBackpropFilter", ConvProductOf(g, ConvPass::kFilter),
      PatchesOf<T>(g, x, /*along_k=*/false),
      ByOutput<T>(g, dy, g.images * g.h.output * g.w.output),
      static_cast<T*>(dfilter), epilogue, workspace, stream);
}

}  // namespace

ConvLauncher FindConv(ConvPass pass, DType dtype) {
  return DispatchFloating(dtype, [&]<typename E>(TypeTag<E>) -> ConvLauncher {
    using T = DeviceTypeOf<E>;
    return pass == ConvPass::kForward ? Forward<T>
           : pass == ConvPass::kInput ? BackpropInput<T>
                                      : BackpropFilter<T>;
  });
}

}  // namespace sluice::cuda
