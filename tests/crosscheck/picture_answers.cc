#include "tests/crosscheck/picture_answers.h"

#include <cstdint>
#include <string>
#include <vector>

#include "engine/tensor.h"
#include "io/counter_random.h"
#include "io/images/image.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

Tensor PictureOf(const Json& request) {
  const auto digits = request.at("pixels").get<std::string>();
  Tensor picture(DType::kUInt8, {request.at("rows").get<int64_t>(),
                                 request.at("columns").get<int64_t>(), 3});
  size_t i = 0;
  for (uint8_t& byte : picture.values<uint8_t>()) {
    byte =
        static_cast<uint8_t>(std::stoi(digits.substr(2 * i++, 2), nullptr, 16));
  }
  return picture;
}

std::string DigitsOf(const Tensor& picture) {
  std::string digits;
  for (int64_t i = 0; i < picture.elements(); ++i) {
    const uint8_t byte = picture.data<uint8_t>()[i];
    digits += "0123456789abcdef"[byte / 16];
    digits += "0123456789abcdef"[byte % 16];
  }
  return digits;
}

// More than ten attempts and a flip take.
std::vector<uint32_t> DrawsOf(uint64_t key) {
  constexpr int kDraws = 24;
  CounterRandom random(key);
  std::vector<uint32_t> draws;
  while (draws.size() < kDraws) draws.push_back(random.Next());
  return draws;
}

}  // namespace

Json PictureAnswer(const Json& request) {
  const auto what = request.at("do").get<std::string>();
  if (what != "random_crop" && what != "pad_crop") return nullptr;
  const Tensor picture = PictureOf(request);
  const auto key = request.at("key").get<uint64_t>();
  const auto flip = request.at("flip").get<double>();
  Json answer = {{"draws", DrawsOf(key)}};
  if (what == "pad_crop") {
    answer["pixels"] = DigitsOf(
        RandomPadCrop(picture, request.at("pad").get<int64_t>(), key, flip));
    return answer;
  }
  const Json& scale = request.at("scale");
  const Json& ratio = request.at("ratio");
  const RandomCrop crop = {.scale_min = scale[0],
                           .scale_max = scale[1],
                           .ratio_min = ratio[0],
                           .ratio_max = ratio[1],
                           .flip = flip};
  const auto [part, flipped] =
      DrawRandomPart(picture.shape()[0], picture.shape()[1], key, crop);
  answer["part"] = {part.top, part.left, part.height, part.width};
  answer["flipped"] = flipped;
  answer["pixels"] = DigitsOf(
      RandomResizedCrop(picture, request.at("side").get<int64_t>(), key, crop));
  return answer;
}

}  // namespace sluice
