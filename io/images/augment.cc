#include "io/images/augment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "engine/parse_number.h"
#include "graph/near_misses.h"
#include "io/counter_random.h"
#include "io/images/random_ops.h"

namespace sluice {
namespace {

struct Argument {
  std::string_view name;
  double low, high;
  bool whole;
  double fallback;
  bool above_low = false;  // `low` itself is not possible
};

using Colour = std::array<uint8_t, 3>;
using Values = std::vector<double>;  // of all arguments

struct Kind {
  std::string_view name;
  std::span<const Argument> arguments;
  size_t required;  // of them
  // One of these three.
  Tensor (*apply)(const Tensor& image, const Values& values, const Colour& mean,
                  uint64_t key);
  std::optional<BatchMix::Kind> mix = std::nullopt;
  void (*cut)(const Values& values, RandomCut& cut) = nullptr;
};

Tensor ApplyRandAugment(const Tensor& image, const Values& values,
                        const Colour& /*mean*/, uint64_t key) {
  return RandAugment(image, static_cast<int>(values[0]),
                     static_cast<int>(values[1]), key);
}

Tensor ApplyErasing(const Tensor& image, const Values& values,
                    const Colour& mean, uint64_t key) {
  return RandomErasing(image, values[0], mean, key);
}

Tensor ApplyJitter(const Tensor& image, const Values& values,
                   const Colour& /*mean*/, uint64_t key) {
  return ColorJitter(image, {values[0], values[1], values[2], values[3]}, key);
}

void SetCrop(const Values& values, RandomCut& cut) {
  cut.pad.reset();
  cut.crop = {.scale_min = values[0],
              .scale_max = values[1],
              .ratio_min = values[2],
              .ratio_max = values[3],
              .flip = cut.crop.flip};
}

void SetPadCrop(const Values& values, RandomCut& cut) {
  cut.pad = static_cast<int64_t>(values[0]);
}

void SetFlip(const Values& values, RandomCut& cut) {
  cut.crop.flip = values[0];
}

constexpr double kInfinite = std::numeric_limits<double>::max();
constexpr RandomCrop kUsualCrop;

constexpr std::array kRandAugmentArguments = {
    Argument{"num_ops", 1, 14, true, 2},
    Argument{"magnitude", 0, kMaxMagnitude, true, 9}};
constexpr std::array kErasingArguments = {Argument{"p", 0, 1, false, 0.5}};
constexpr std::array kJitterArguments = {
    Argument{"brightness", 0, 10, false, 0},
    Argument{"contrast", 0, 10, false, 0},
    Argument{"saturation", 0, 10, false, 0}, Argument{"hue", 0, 0.5, false, 0}};
constexpr std::array kMixArguments = {
    Argument{"alpha", 0, kInfinite, false, 1, true}};
constexpr std::array kCropArguments = {
    Argument{"scale_min", 0, 1, false, kUsualCrop.scale_min, true},
    Argument{"scale_max", 0, 1, false, kUsualCrop.scale_max, true},
    Argument{"ratio_min", 0.01, 100, false, kUsualCrop.ratio_min},
    Argument{"ratio_max", 0.01, 100, false, kUsualCrop.ratio_max}};
// Of 32 pixels at least one is left.
constexpr std::array kPadCropArguments = {Argument{"pixels", 0, 31, true, 4}};
constexpr std::array kFlipArguments = {
    Argument{"p", 0, 1, false, kUsualCrop.flip}};

// A kind's place is part of its key: another place would change what runs drew.
constexpr std::array kKinds = {
    Kind{"randaugment", kRandAugmentArguments, 0, ApplyRandAugment},
    Kind{"erasing", kErasingArguments, 0, ApplyErasing},
    Kind{"jitter", kJitterArguments, 1, ApplyJitter},
    Kind{"mixup", kMixArguments, 0, nullptr, BatchMix::Kind::kMixup},
    Kind{"cutmix", kMixArguments, 0, nullptr, BatchMix::Kind::kCutmix},
    Kind{"crop", kCropArguments, 0, nullptr, std::nullopt, SetCrop},
    Kind{"pad-crop", kPadCropArguments, 0, nullptr, std::nullopt, SetPadCrop},
    Kind{"flip", kFlipArguments, 0, nullptr, std::nullopt, SetFlip}};

// "erasing(p)".
std::string Usage(const Kind& kind) {
  std::string names;
  for (const Argument& argument : kind.arguments) {
    if (!names.empty()) names += ',';
    names += argument.name;
  }
  return fmt::format("{}({})", kind.name, names);
}

Status NoSuchKind(std::string_view name) {
  std::vector<std::string_view> names;
  std::string usages;
  for (const Kind& kind : kKinds) {
    names.push_back(kind.name);
    if (!usages.empty()) usages += ", ";
    usages += Usage(kind);
  }
  return InvalidArgument(fmt::format("there is no '{}'{}; wanted some of {}",
                                     name, NearMisses(name, names), usages));
}

// "a whole number from 0 to 30".
std::string Possible(const Argument& argument) {
  const bool finite = argument.high == kInfinite;
  std::string range =
      argument.above_low
          ? fmt::format("greater than {}", argument.low)
          : fmt::format("from {} to {}", argument.low, argument.high);
  if (argument.above_low && !finite) {
    range += fmt::format(" and at most {}", argument.high);
  }
  return fmt::format("a {}number {}",
                     argument.whole ? "whole "
                     : finite       ? "finite "
                                    : "",
                     range);
}

Result<double> ParseArgument(std::string_view text, const Kind& kind,
                             const Argument& argument) {
  const auto value = ParseWhole<double>(text);
  if (value && *value >= argument.low && *value <= argument.high &&
      !(argument.above_low && *value == argument.low) &&
      !(argument.whole && *value != std::trunc(*value))) {
    return *value + 0.0;  // 0 for -0
  }
  return InvalidArgument(fmt::format("{} of {} is '{}', wanted {}",
                                     argument.name, Usage(kind), text,
                                     Possible(argument)));
}

Status WrongCount(const Kind& kind, size_t got) {
  const size_t most = kind.arguments.size();
  return InvalidArgument(fmt::format("{} got {} argument{}, wanted {} to {}",
                                     Usage(kind), got, got == 1 ? "" : "s",
                                     kind.required, most));
}

// Of what two arguments say the first must not be the greater.
Status CheckOrder(const Kind& kind, const Values& values, size_t first) {
  if (values[first] <= values[first + 1]) return Status::Ok();
  return InvalidArgument(
      fmt::format("{} of {} is {}, which is greater than {} {}",
                  kind.arguments[first].name, Usage(kind), values[first],
                  kind.arguments[first + 1].name, values[first + 1]));
}

}  // namespace

// Of the grammar in augment.h.
class Augmentation::Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Result<std::vector<Part>> Parts() {
    std::vector<Part> parts;
    SkipBlanks();
    if (rest_.empty()) return parts;
    do {
      SLUICE_RETURN_IF_ERROR(ReadPart(parts.emplace_back()));
    } while (Take(','));
    if (rest_.empty()) return parts;
    return Unexpected("',' or the end");
  }

 private:
  Status ReadPart(Part& part) {
    const std::string_view name = Word();
    const auto* const kind =
        std::find_if(kKinds.begin(), kKinds.end(),
                     [&](const Kind& k) { return k.name == name; });
    if (kind == kKinds.end()) return NoSuchKind(name);
    SLUICE_ASSIGN_OR_RETURN(const auto texts, Arguments());
    if (texts.size() < kind->required ||
        texts.size() > kind->arguments.size()) {
      return WrongCount(*kind, texts.size());
    }
    part.kind = static_cast<size_t>(kind - kKinds.begin());
    for (size_t i = 0; i < kind->arguments.size(); ++i) {
      double value = kind->arguments[i].fallback;
      if (i < texts.size()) {
        SLUICE_ASSIGN_OR_RETURN(
            value, ParseArgument(texts[i], *kind, kind->arguments[i]));
      }
      part.arguments.push_back(value);
    }
    return Status::Ok();
  }

  Result<std::vector<std::string_view>> Arguments() {
    std::vector<std::string_view> arguments;
    if (!Take('(') || Take(')')) return arguments;
    do {
      arguments.push_back(Word());
    } while (Take(','));
    if (Take(')')) return arguments;
    return Unexpected("',' or ')'");
  }

  // Up to the next "(", ")" or ",", without the blanks around; may be empty.
  std::string_view Word() {
    SkipBlanks();
    const size_t end = std::min(rest_.find_first_of("(),"), rest_.size());
    std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(end);
    while (word.ends_with(' ')) word.remove_suffix(1);
    return word;
  }

  bool Take(char token) {
    SkipBlanks();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(1);
    SkipBlanks();
    return true;
  }

  void SkipBlanks() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
  }

  Status Unexpected(std::string_view wanted) const {
    const std::string got =
        rest_.empty() ? "the end" : fmt::format("'{}'", rest_.substr(0, 12));
    return InvalidArgument(fmt::format("wanted {}, got {}", wanted, got));
  }

  std::string_view rest_;  // that is still to be read
};

Status Augmentation::TakeCut(const std::optional<RandomCut>& usual) {
  cut_ = usual.value_or(RandomCut());
  const Kind* cuts = nullptr;    // crop or pad-crop
  const Kind* flips = nullptr;   // flip
  const Kind* behind = nullptr;  // what is done to pictures already
  for (const Part& part : parts_) {
    const Kind& kind = kKinds[part.kind];
    if (kind.apply != nullptr) behind = &kind;
    if (kind.cut == nullptr) continue;
    if (!usual) {
      return InvalidArgument(fmt::format(
          "{} is not possible, as nothing is cut or flipped here", kind.name));
    }
    if (behind != nullptr) {
      return InvalidArgument(fmt::format(
          "{} stands behind {}, but pictures are cut and flipped before all "
          "else: write it first",
          kind.name, behind->name));
    }
    const Kind*& seen = kind.cut == SetFlip ? flips : cuts;
    if (seen != nullptr) {
      return InvalidArgument(seen == &kind
                                 ? fmt::format("{} is there twice", kind.name)
                                 : fmt::format("{} and {} exclude each other",
                                               seen->name, kind.name));
    }
    seen = &kind;
    if (kind.cut == SetCrop) {
      SLUICE_RETURN_IF_ERROR(CheckOrder(kind, part.arguments, 0));
      SLUICE_RETURN_IF_ERROR(CheckOrder(kind, part.arguments, 2));
    }
    kind.cut(part.arguments, cut_);
  }
  return Status::Ok();
}

Result<Augmentation> Augmentation::Parse(
    std::string_view text, const std::array<double, 3>& mean,
    const std::optional<RandomCut>& usual) {
  Result<std::vector<Part>> parts = Parser(text).Parts();
  const auto in_text = [&](const Status& status) {
    return status.WithContext(fmt::format("augmentation '{}'", text));
  };
  if (!parts.ok()) return in_text(parts.status());
  Augmentation augmentation;
  augmentation.parts_ = *std::move(parts);
  const Status cut = augmentation.TakeCut(usual);
  if (!cut.ok()) return in_text(cut);
  for (size_t c = 0; c < 3; ++c) {
    augmentation.mean_[c] =
        static_cast<uint8_t>(std::lrint(std::clamp(mean[c], 0.0, 1.0) * 255));
  }
  return augmentation;
}

std::string Augmentation::ToString() const {
  std::string text;
  for (const Part& part : parts_) {
    if (!text.empty()) text += ',';
    text += fmt::format("{}({})", kKinds[part.kind].name,
                        fmt::join(part.arguments, ","));
  }
  return text;
}

Tensor Augmentation::Apply(const Tensor& image, uint64_t key) const {
  if (image.dtype() != DType::kUInt8 || image.shape().rank() != 3 ||
      image.shape()[2] != 3) {
    throw Error(Code::kInvalidArgument,
                fmt::format("augmentation '{}': the image is {}{}, wanted "
                            "uint8[height,width,3]",
                            ToString(), NameOf(image.dtype()),
                            image.shape().ToString()));
  }
  Tensor augmented = image;
  std::array<uint64_t, kKinds.size()> seen{};
  for (const Part& part : parts_) {
    if (kKinds[part.kind].apply == nullptr) continue;
    const uint64_t part_key = HashKey(key, part.kind, seen[part.kind]++);
    augmented =
        kKinds[part.kind].apply(augmented, part.arguments, mean_, part_key);
  }
  return augmented;
}

std::vector<BatchMix> Augmentation::batch() const {
  std::vector<BatchMix> ways;
  for (const Part& part : parts_) {
    const auto& mix = kKinds[part.kind].mix;
    if (mix) ways.push_back({*mix, part.arguments[0]});
  }
  return ways;
}

}  // namespace sluice
