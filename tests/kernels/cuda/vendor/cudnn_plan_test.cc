// Convolutions as cuDNN understands them: that there are plans for them, on an
// H200 that need not be there. Not which are fast, nor what they compute. Needs
// cuDNN 9.8 or newer, which is where it can plan for a GPU that is described.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "kernels/cuda/vendor/cudnn_conv_plan.h"

namespace sluice::cuda {
namespace {

// In cuDNN's own words, which it also writes.
constexpr std::string_view kH200 =
    R"({"deviceName":"NVIDIA H200","deviceVer":900,"driverVer":13000,)"
    R"("cudaDeviceId":0,"pciDeviceId":0,"multiProcessorCount":132,)"
    R"("warpSize":32,"maxGridSize":[2147483647,65535,65535],)"
    R"("maxBlockSize":[1024,1024,64],"maxThreadsPerBlock":1024,)"
    R"("maxThreadsPerSM":2048,"maxCtasPerSM":32,"regsPerBlock":65536,)"
    R"("maxRegistersPerSM":65536,"maxSharedMemoryPerBlock":49152,)"
    R"("maxSharedMemoryPerBlockOptin":232448,)"
    R"("reservedSharedMemoryPerBlock":1024,"l2CacheSize":62914560,)"
    R"("totalGlobalMem":150000000000,"smClockRateKHz":1980000,)"
    R"("memClockRateKHz":3201000,"isTccDriver":0,"supportCoopLaunch":1})";

struct Size {
  int64_t images, size, in, out, window, before, after, stride;
  int64_t dilation = 1, groups = 1;
};

ConvGeometry GeometryOf(const Size& s) {
  const int64_t extent = (s.window - 1) * s.dilation + 1;
  const WindowDim d = {
      .input = s.size,
      .output = (s.size + s.before + s.after - extent) / s.stride + 1,
      .window = s.window,
      .stride = s.stride,
      .dilation = s.dilation,
      .pad_before = s.before,
      .pad_after = s.after};
  return {.images = s.images,
          .h = d,
          .w = d,
          .groups = s.groups,
          .in = s.in / s.groups,
          .out = s.out / s.groups};
}

void CheckPlans(const DnnConv& conv, const DnnConditions& conditions,
                const DnnTarget& target) {
  const DnnConvGraph graph = DnnConvGraph::Make(conv, target).ValueOrThrow();
  for (DnnDescriptor& config : DnnSuggestions(graph, target, conditions)) {
    if (!MakeDnnPlan(std::move(config), target).ok()) continue;
    char memory[8] = {};  // never used: nothing is run
    DnnOperands operands = {memory, memory + 1, memory + 2};
    if (conv.sums) {
      operands.sum = memory + 5;
      operands.squares = memory + 6;
    }
    if (conv.bias) operands.bias = memory + 3;
    if (conv.addend) operands.addend = memory + 4;
    CHECK(MakeDnnPack(conv, operands).ok());
    return;
  }
  FAIL_CHECK("no plan");
}

// Nothing where there is no cuDNN that takes the description.
std::optional<DnnDescriptor> H200() {
  if (Dnn() == nullptr) {
    MESSAGE("skipped: no cuDNN");
    return std::nullopt;
  }
  DnnDescriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
             std::vector<char>(kH200.begin(), kH200.end()));
  if (!device.Finalize("a device").ok()) {
    MESSAGE("skipped: this cuDNN describes devices otherwise");
    return std::nullopt;
  }
  return device;
}

TEST_CASE("cuDNN has plans for convolutions of all kinds") {
  const std::optional<DnnDescriptor> device = H200();
  if (!device) return;
  const DnnTarget target = {nullptr, &*device};
  const Size sizes[] = {
      {32, 56, 64, 64, 3, 1, 1, 1},         // a residual block's
      {32, 56, 128, 128, 3, 0, 1, 2},       // SAME with stride 2: uneven
      {32, 56, 256, 512, 1, 0, 0, 2},       // a projection
      {32, 224, 3, 64, 7, 2, 3, 2},         // of images
      {32, 224, 4, 64, 7, 3, 3, 2},         // of images with a channel of zeros
      {64, 28, 1, 32, 5, 2, 2, 1},          // of digits
      {32, 28, 64, 64, 3, 2, 1, 1, 2},      // dilated
      {32, 28, 64, 64, 3, 1, 1, 1, 1, 4},   // grouped
      {32, 28, 32, 32, 3, 1, 1, 1, 1, 32},  // by channel
      {2, 7, 5, 7, 3, 1, 1, 1},             // of odd channels
  };
  for (const Size& size : sizes) {
    for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (bool deterministic : {false, true}) {
        for (bool tf32 : {false, true}) {
          if (tf32 && dtype != DType::kFloat32) continue;
          const DnnConditions conditions = {deterministic, tf32};
          CAPTURE(NameOf(dtype));
          CAPTURE(deterministic);
          CAPTURE(tf32);
          CAPTURE(size.in);
          CAPTURE(size.window);
          const auto check = [&](ConvPass pass, bool bias, bool addend,
                                 bool relu) {
            CAPTURE(static_cast<int>(pass));
            CAPTURE(bias);
            CAPTURE(addend);
            CAPTURE(relu);
            CheckPlans({GeometryOf(size), pass, dtype, bias, addend, relu},
                       conditions, target);
          };
          check(ConvPass::kForward, false, false, false);
          check(ConvPass::kForward, true, false, false);
          check(ConvPass::kForward, true, false, true);
          check(ConvPass::kForward, true, true, true);
          check(ConvPass::kInput, false, false, false);
          check(ConvPass::kFilter, false, false, false);
        }
      }
    }
  }
}

// What passes::FuseStatistics takes.
TEST_CASE("cuDNN has plans for convolutions that sum their results") {
  const std::optional<DnnDescriptor> device = H200();
  if (!device) return;
  const DnnTarget target = {nullptr, &*device};
  const Size sizes[] = {
      // ResNet-50's, at batch 256.
      {256, 56, 64, 64, 1, 0, 0, 1},
      {256, 56, 64, 64, 3, 1, 1, 1},
      {256, 56, 64, 256, 1, 0, 0, 1},
      {256, 56, 256, 64, 1, 0, 0, 1},
      {256, 56, 256, 128, 1, 0, 0, 1},
      {256, 56, 128, 128, 3, 1, 1, 2},
      {256, 28, 128, 512, 1, 0, 0, 1},
      {256, 56, 256, 512, 1, 0, 0, 2},
      {256, 28, 512, 128, 1, 0, 0, 1},
      {256, 28, 128, 128, 3, 1, 1, 1},
      {256, 28, 512, 256, 1, 0, 0, 1},
      {256, 28, 256, 256, 3, 1, 1, 2},
      {256, 14, 256, 1024, 1, 0, 0, 1},
      {256, 28, 512, 1024, 1, 0, 0, 2},
      {256, 14, 1024, 256, 1, 0, 0, 1},
      {256, 14, 256, 256, 3, 1, 1, 1},
      {256, 14, 1024, 512, 1, 0, 0, 1},
      {256, 14, 512, 512, 3, 1, 1, 2},
      {256, 7, 512, 2048, 1, 0, 0, 1},
      {256, 14, 1024, 2048, 1, 0, 0, 2},
      {256, 7, 2048, 512, 1, 0, 0, 1},
      {256, 7, 512, 512, 3, 1, 1, 1},
      // Others of its rule.
      {1, 1, 8, 8, 1, 0, 0, 1},
      {2, 9, 24, 40, 5, 2, 2, 3},
      {2, 9, 24, 40, 3, 2, 2, 1, 2},
      {2, 8, 16, 8, 2, 0, 0, 2},
      {2, 9, 8, 8, 4, 1, 1, 1},
  };
  for (const Size& size : sizes) {
    for (bool deterministic : {false, true}) {
      CAPTURE(size.size);
      CAPTURE(size.in);
      CAPTURE(size.out);
      CAPTURE(size.window);
      CAPTURE(deterministic);
      DnnConv conv = {.geometry = GeometryOf(size), .dtype = DType::kFloat16};
      conv.sums = true;
      CheckPlans(conv, {deterministic, false}, target);
    }
  }
}

// Anything small or large, of no size at all, padded beyond its window.
ConvGeometry AnyGeometry(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<int64_t> values) {
    return values.begin()[random() % values.size()];
  };
  const auto direction = [&] {
    WindowDim d;
    do {
      d = {.input = pick({0, 1, 2, 7, 14, 224, 1000, 70'000}),
           .window = pick({0, 1, 2, 3, 5, 7, 31, 200}),
           .stride = pick({1, 1, 2, 3, 100, 1'000'000}),
           .dilation = pick({1, 1, 2, 16, 1000}),
           .pad_before = pick({0, 0, 1, 3, 100, 40'000}),
           .pad_after = pick({0, 0, 1, 3, 100, 40'000})};
      const int64_t padded = d.input + d.pad_before + d.pad_after;
      d.output = padded < d.extent() ? 0 : (padded - d.extent()) / d.stride + 1;
    } while (d.output == 0 && random() % 8 != 0);
    return d;
  };
  return {.images = pick({0, 1, 1, 2, 32, 256, 65'536}),
          .h = direction(),
          .w = direction(),
          .groups = pick({0, 1, 1, 1, 2, 4, 32}),
          .in = pick({0, 1, 3, 4, 64, 512}),
          .out = pick({0, 1, 3, 4, 64, 512})};
}

TEST_CASE("cuDNN has words for whatever it is said to take") {
  const std::optional<DnnDescriptor> device = H200();
  if (!device) return;
  const DnnTarget target = {nullptr, &*device};
  std::mt19937 random(7);  // NOLINT: the same in every run
  int taken = 0, left = 0;
  while (taken < 40'000) {
    const ConvGeometry g = AnyGeometry(random);
    // Tensors of gigabytes are as good as any, beyond that there is no memory.
    if (g.images * std::max(g.x_image(), g.y_image()) > int64_t{1} << 33) {
      continue;
    }
    if (!DnnTakes(g)) {
      ++left;
      continue;
    }
    ++taken;
    DnnConv conv = {
        .geometry = g,
        .pass = static_cast<ConvPass>(random() % 3),
        .dtype = random() % 2 == 0 ? DType::kFloat32 : DType::kFloat16};
    if (conv.pass == ConvPass::kForward) {
      conv.bias = random() % 2 == 0;
      conv.addend = conv.bias && random() % 2 == 0;
      conv.relu = random() % 2 == 0;
    }
    const Status status = DnnConvGraph::Make(conv, target).status();
    CHECK_MESSAGE(status.ok(), status.message(), ": ", g.images, " images, ",
                  g.groups, " groups of ", g.in, " to ", g.out, ", ", g.h.input,
                  "x", g.w.input, " under ", g.h.window, "x", g.w.window,
                  ", padded by ", g.h.pad_before, "-", g.h.pad_after, " and ",
                  g.w.pad_before, "-", g.w.pad_after);
  }
  CHECK(left > 1000);
}

// A window of padding alone is of an image without lines, too.
TEST_CASE("cuDNN is not asked for images without pixels") {
  const auto geometry = [](int64_t lines, int64_t channels) {
    return ConvGeometry{.images = 2,
                        .h = {.input = lines,
                              .output = lines + 1,
                              .window = 2,
                              .pad_before = 1,
                              .pad_after = 1},
                        .w = {.input = 5, .output = 4, .window = 2},
                        .groups = channels,
                        .in = 1,
                        .out = 1};
  };
  CHECK(DnnTakes(geometry(1, 3)));
  CHECK_FALSE(DnnTakes(geometry(0, 3)));
  CHECK_FALSE(DnnTakes(geometry(1, 0)));
}

}  // namespace
}  // namespace sluice::cuda
