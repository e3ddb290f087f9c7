#include "io/pipeline/rowwise_map.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "engine/status.h"

namespace sluice {
void RequireBytes(const BytesToFloats& map, DType dtype, const Shape& shape) {
  const auto n = static_cast<int64_t>(map.factor.size());
  const bool fits = n == 1 || (shape.rank() > 0 && shape[-1] == n);
  if (dtype == DType::kUInt8 && fits) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: '{}' is {}{}, wanted uint8{}", map.who, map.name,
                          NameOf(dtype), shape.ToString(),
                          n == 1 ? std::string() : fmt::format("[...,{}]", n)));
}

RowwiseMap MapBytes(BytesToFloats map) {
  if (map.factor.empty() || map.factor.size() != map.shift.size()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: {} factors and {} shifts", map.who,
                            map.factor.size(), map.shift.size()));
  }
  const auto apply = [map](Example& example) {
    Tensor& bytes = example[map.name];
    RequireBytes(map, bytes.dtype(), bytes.shape());
    Tensor floats(DType::kFloat32, bytes.shape());
    const uint8_t* from = bytes.data<uint8_t>();
    float* to = floats.data<float>();
    const int64_t elements = bytes.elements();
    const auto channels = static_cast<int64_t>(map.factor.size());
    if (channels == 1) {  // a loop that is vectorised
      const float factor = map.factor[0], shift = map.shift[0];
      for (int64_t i = 0; i < elements; ++i) {
        to[i] = static_cast<float>(from[i]) * factor + shift;
      }
    } else {
      const float* factor = map.factor.data();
      const float* shift = map.shift.data();
      for (int64_t i = 0; i < elements; i += channels) {
        for (int64_t c = 0; c < channels; ++c) {
          to[i + c] = static_cast<float>(from[i + c]) * factor[c] + shift[c];
        }
      }
    }
    bytes = std::move(floats);
  };
  return {.apply = apply, .bytes_to_floats = std::move(map)};
}

RowwiseMap ScaleTo01(std::string name) {
  return MapBytes({.who = "ScaleTo01",
                   .name = std::move(name),
                   .factor = {1.0f / 255},
                   .shift = {0.0f}});
}

}  // namespace sluice
