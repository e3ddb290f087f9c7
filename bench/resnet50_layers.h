// The convolutions of ResNet-50 v1.5 on images of 224 x 224 (He et al., 2015;
// v1.5 has the strides in the 3x3 windows, as torchvision does).
#ifndef SLUICE_BENCH_RESNET50_LAYERS_H_
#define SLUICE_BENCH_RESNET50_LAYERS_H_

#include <cstdint>

namespace sluice {

// Images of size x size, windows of kernel x kernel with kernel / 2 zeros on
// all sides.
struct Resnet50Layer {
  const char* name;
  int64_t size, in, out, kernel, stride;
  int count;  // layers of this shape in the network

  int64_t output_size() const { return (size - 1) / stride + 1; }
};

// All 53, in the order of their first appearance. "2.1" is the first
// convolution of a block of stage 2 (56 x 56), "2.s" its shortcut.
inline constexpr Resnet50Layer kResnet50Layers[] = {
    {"1", 224, 3, 64, 7, 2, 1},           {"2.1 first", 56, 64, 64, 1, 1, 1},
    {"2.2", 56, 64, 64, 3, 1, 3},         {"2.3 and 2.s", 56, 64, 256, 1, 1, 4},
    {"2.1", 56, 256, 64, 1, 1, 2},        {"3.1 first", 56, 256, 128, 1, 1, 1},
    {"3.2 first", 56, 128, 128, 3, 2, 1}, {"3.3", 28, 128, 512, 1, 1, 4},
    {"3.s", 56, 256, 512, 1, 2, 1},       {"3.1", 28, 512, 128, 1, 1, 3},
    {"3.2", 28, 128, 128, 3, 1, 3},       {"4.1 first", 28, 512, 256, 1, 1, 1},
    {"4.2 first", 28, 256, 256, 3, 2, 1}, {"4.3", 14, 256, 1024, 1, 1, 6},
    {"4.s", 28, 512, 1024, 1, 2, 1},      {"4.1", 14, 1024, 256, 1, 1, 5},
    {"4.2", 14, 256, 256, 3, 1, 5},       {"5.1 first", 14, 1024, 512, 1, 1, 1},
    {"5.2 first", 14, 512, 512, 3, 2, 1}, {"5.3", 7, 512, 2048, 1, 1, 3},
    {"5.s", 14, 1024, 2048, 1, 2, 1},     {"5.1", 7, 2048, 512, 1, 1, 2},
    {"5.2", 7, 512, 512, 3, 1, 2},
};

}  // namespace sluice

#endif  // SLUICE_BENCH_RESNET50_LAYERS_H_
