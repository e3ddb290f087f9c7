// Convolutions as products (product_kernels.h): how packs of their operands
// are found in images and filters.
#include "kernels/cuda/ops/conv/conv.h"

#include "kernels/cuda/ops/gemm/product_kernels.h"

namespace sluice::cuda {
namespace {

// Is an operand read for y from x, under windows, or for dx from dy, of
// windows?
enum class Way : uint8_t { kForward, kBackward };

// ConvGeometry in the 32 bits that a GPU divides faster (IsServedConv).
template <Way kWay>
struct Axis {
  int to, from;  // sizes: of what is computed and of what is read for it
  int window, stride, dilation, pad;

  // The element that is read for element i by tap k; negative if there is none.
  __device__ int At(int i, int k) const {
    if constexpr (kWay == Way::kForward) {
      const int under = i * stride - pad + k * dilation;
      return under < from ? under : -1;
    } else {
      const int start = i + pad - k * dilation;
      if (start < 0 || start % stride != 0) return -1;
      const int over = start / stride;
      return over < from ? over : -1;
    }
  }
};
template <Way kWay>
Axis<kWay> AxisOf(const WindowDim& d) {
  const auto narrow = [](int64_t v) { return static_cast<int>(v); };
  const bool forward = kWay == Way::kForward;
  return {narrow(forward ? d.output : d.input),
          narrow(forward ? d.input : d.output),
          narrow(d.window),
          narrow(d.stride),
          narrow(d.dilation),
          narrow(d.pad_before)};
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

// x as a matrix [pixels of y, (tap, i)], or dy as [pixels of x, (tap, o)].
template <typename T, Way kWay>
struct Patches {
  const T* image;
  Axis<kWay> h, w;
  int pixels, channels;  // of what is computed; of a group of what is read
  int64_t pitch;         // of the image's pixels
  bool along_k;
  bool whole;

  __device__ Pack<T, 4> Load(int64_t base, int pixel, int inner) const {
    const int row = pixel / w.to, at_w = pixel - row * w.to;
    const int n = row / h.to, at_h = row - n * h.to;
    const int length = pixel < pixels ? h.window * w.window * channels : 0;
    return LoadFour<T>(inner, length, whole, [&](int at) -> const T* {
      const int tap = at / channels, channel = at - tap * channels;
      const int kh = tap / w.window, kw = tap - kh * w.window;
      const int from_h = h.At(at_h, kh), from_w = w.At(at_w, kw);
      if (from_h < 0 || from_w < 0) return nullptr;
      const int64_t from = static_cast<int64_t>(n) * h.from + from_h;
      return image + base + (from * w.from + from_w) * pitch + channel;
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

template <typename T, Way kWay>
Patches<T, kWay> PatchesOf(const ConvGeometry& g, const void* image,
                           bool along_k) {
  const bool forward = kWay == Way::kForward;
  const auto h = AxisOf<kWay>(g.h), w = AxisOf<kWay>(g.w);
  const int64_t pitch = forward ? g.x_channels() : g.y_channels();
  const int64_t channels = forward ? g.in : g.out;
  return {static_cast<const T*>(image),
          h,
          w,
          static_cast<int>(g.images * h.to * w.to),
          static_cast<int>(channels),
          pitch,
          along_k,
          LinesAreWhole<T>(image, pitch, channels)};
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
                          PatchesOf<T, Way::kForward>(g, x, /*along_k=*/true),
                          ByOutput<T>(g, filter, g.taps() * g.in),
                          static_cast<T*>(y), epilogue, workspace, stream);
}

template <typename T>
Status BackpropInput(const ConvGeometry& g, const void* dy, const void* filter,
                     void* dx, const Epilogue& epilogue, void* workspace,
                     cudaStream_t stream) {
  const FilterByInput<T> by_input = {
      .filter = static_cast<const T*>(filter),
      .taps = static_cast<int>(g.taps()),
      .in = static_cast<int>(g.in),
      .out = static_cast<int>(g.out),
      .pitch = g.y_channels(),
      .whole = LinesAreWhole<T>(filter, g.y_channels(), g.out)};
  return LaunchProduct<T>(
      "Conv2DBackpropInput", ConvProductOf(g, ConvPass::kInput),
      PatchesOf<T, Way::kBackward>(g, dy, /*along_k=*/true), by_input,
      static_cast<T*>(dx), epilogue, workspace, stream);
}

template <typename T>
Status BackpropFilter(const ConvGeometry& g, const void* x, const void* dy,
                      void* dfilter, const Epilogue& epilogue, void* workspace,
                      cudaStream_t stream) {
  return LaunchProduct<T>(
      "Conv2DBackpropFilter", ConvProductOf(g, ConvPass::kFilter),
      PatchesOf<T, Way::kForward>(g, x, /*along_k=*/false),
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
