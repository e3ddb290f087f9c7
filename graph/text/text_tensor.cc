#include "graph/text/text_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "engine/allocate.h"
#include "engine/parse_number.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensor bytes in the text form are little-endian");

constexpr int64_t kInlineElements = 32;  // longer tensors are printed in base64
// Equal elements are printed as one up to the first size; the second bounds
// what one text may make of it.
constexpr size_t kFilledBytes = size_t{1} << 20;
constexpr size_t kMaxFilledBytes = size_t{1} << 28;

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string EncodeBase64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) {
      group =
          group << 8 | (j < n ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      out += j <= n ? kBase64[group >> (18 - 6 * j) & 63] : '=';
    }
  }
  return out;
}

// False when `text` is not the base64 of exactly `size` bytes.
bool DecodeBase64(std::string_view text, char* out, size_t size) {
  if (text.size() != (size + 2) / 3 * 4) return false;
  size_t written = 0;
  for (size_t i = 0; i < text.size(); i += 4) {
    const size_t n = std::min<size_t>(3, size - written);
    uint32_t group = 0;
    for (size_t j = 0; j < 4; ++j) {
      const size_t digit = j <= n ? kBase64.find(text[i + j]) : 0;
      if (digit == kBase64.npos || (j > n && text[i + j] != '=')) return false;
      group = group << 6 | static_cast<uint32_t>(digit);
    }
    for (size_t j = 0; j < n; ++j) {
      out[written++] = static_cast<char>(group >> (16 - 8 * j));
    }
  }
  return true;
}

template <typename T>
std::string PrintElement(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return fmt::format("{}", static_cast<float>(value));
  } else {
    return fmt::format("{}", value);
  }
}

template <typename T>
bool ParseElement(std::string_view text, T* value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    float wide = 0;
    if (!ParseElement(text, &wide)) return false;
    *value = T(wide);
    return true;
  } else if constexpr (std::is_same_v<T, bool>) {
    *value = text == "true";
    return *value || text == "false";
  } else {
    const auto parsed = ParseWhole<T>(text);
    if (parsed) *value = *parsed;
    return parsed.has_value();
  }
}

template <typename T>
bool SameBits(const T& a, const T& b) {
  using Bytes = std::array<std::byte, sizeof(T)>;
  return std::bit_cast<Bytes>(a) == std::bit_cast<Bytes>(b);
}

// Whether the text of each element reads back to the same bits (NaNs differ).
template <typename T>
bool ReadsBack(const T& value) {
  T again;
  return ParseElement(PrintElement(value), &again) && SameBits(again, value);
}

template <typename T>
std::string PrintElements(const Tensor& tensor) {
  const std::span<const T> values = tensor.values<T>();
  const bool same = std::all_of(values.begin(), values.end(), [&](const T& v) {
    return SameBits(v, values[0]);
  });
  if (values.size() > 1 && same && tensor.bytes() <= kFilledBytes &&
      ReadsBack(values[0])) {
    return fmt::format("{{{} ...}}", PrintElement(values[0]));
  }
  if (tensor.elements() <= kInlineElements &&
      std::all_of(values.begin(), values.end(), ReadsBack<T>)) {
    std::string out;
    for (const T& value : values) {
      if (!out.empty()) out += ", ";
      out += PrintElement(value);
    }
    return "{" + out + "}";
  }
  const std::string_view bytes(static_cast<const char*>(tensor.raw()),
                               tensor.bytes());
  return fmt::format("base64 \"{}\"", EncodeBase64(bytes));
}

std::string PrintTensor(const Tensor& tensor) {
  return fmt::format("{}{} {}", NameOf(tensor.dtype()),
                     tensor.shape().ToString(),
                     DispatchDType(tensor.dtype(), [&]<typename T>(TypeTag<T>) {
                       return PrintElements<T>(tensor);
                     }));
}

template <typename T>
Result<T> NextElement(TextScanner& scanner) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, scanner.Literal());
  T value{};
  if (!ParseElement(text, &value)) {
    return scanner.Fail(
        fmt::format("'{}' is no {}", text, NameOf(DTypeOf<T>::value)));
  }
  return value;
}

template <typename T>
Result<Tensor> ParseElements(TextScanner& scanner, const Shape& shape,
                             size_t* filled) {
  std::vector<T> values;
  if (!scanner.Accept('}')) {
    do {
      SLUICE_ASSIGN_OR_RETURN(const T value, NextElement<T>(scanner));
      values.push_back(value);
    } while (scanner.Accept(','));
    if (values.size() == 1 && scanner.AcceptWord("...")) {
      SLUICE_RETURN_IF_ERROR(scanner.Expect('}'));
      const size_t bytes = shape.elements() * sizeof(T);
      if (bytes > kMaxFilledBytes - *filled) {
        return scanner.Fail("the tensors filled so far are too large");
      }
      *filled += bytes;
      SLUICE_ASSIGN_OR_RETURN(Tensor tensor,
                              AllocateTensor(DTypeOf<T>::value, shape));
      std::fill_n(tensor.data<T>(), tensor.elements(), T(values[0]));
      return tensor;
    }
    SLUICE_RETURN_IF_ERROR(scanner.Expect('}'));
  }
  if (static_cast<int64_t>(values.size()) != shape.elements()) {
    return scanner.Fail(fmt::format("{} elements for a tensor of shape {}",
                                    values.size(), shape.ToString()));
  }
  SLUICE_ASSIGN_OR_RETURN(Tensor tensor,
                          AllocateTensor(DTypeOf<T>::value, shape));
  std::copy(values.begin(), values.end(), tensor.data<T>());
  return tensor;
}

Result<Tensor> ParseTensor(TextScanner& scanner, size_t* filled) {
  SLUICE_ASSIGN_OR_RETURN(const DType dtype, scanner.Type());
  SLUICE_ASSIGN_OR_RETURN(const Shape shape, scanner.Dims());
  const Status possible = CheckTensorSize(dtype, shape);
  if (!possible.ok() || !shape.concrete()) {
    return scanner.Fail(
        fmt::format("no tensor has the shape {}", shape.ToString()));
  }
  if (scanner.Accept('{')) {
    return DispatchDType(dtype, [&]<typename T>(TypeTag<T>) {
      return ParseElements<T>(scanner, shape, filled);
    });
  }
  if (!scanner.AcceptWord("base64")) {
    return scanner.Fail("wanted '{' or base64");
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string text, scanner.String());
  const size_t bytes = shape.elements() * SizeOf(dtype);
  std::string decoded(std::min(bytes, text.size()), '\0');
  if (decoded.size() != bytes || !DecodeBase64(text, decoded.data(), bytes)) {
    return scanner.Fail(fmt::format("wanted the base64 of {} bytes", bytes));
  }
  if (dtype == DType::kBool &&
      std::any_of(decoded.begin(), decoded.end(),
                  [](char byte) { return byte != 0 && byte != 1; })) {
    return scanner.Fail("a bool is neither 0 nor 1");
  }
  SLUICE_ASSIGN_OR_RETURN(Tensor tensor, AllocateTensor(dtype, shape));
  if (bytes > 0) std::memcpy(tensor.raw(), decoded.data(), bytes);
  return tensor;
}

Result<std::vector<int64_t>> ParseInts(TextScanner& scanner) {
  std::vector<int64_t> ints;
  SLUICE_RETURN_IF_ERROR(scanner.Expect('['));
  if (scanner.Accept(']')) return ints;
  do {
    SLUICE_ASSIGN_OR_RETURN(const int64_t i, scanner.Int());
    ints.push_back(i);
  } while (scanner.Accept(','));
  SLUICE_RETURN_IF_ERROR(scanner.Expect(']'));
  return ints;
}

template <typename T>
Result<AttrValue> AsValue(Result<T> result) {
  if (!result.ok()) return result.status();
  return AttrValue(*std::move(result));
}

}  // namespace

std::string PrintValue(const AttrValue& value) {
  return std::visit(
      []<typename T>(const T& v) -> std::string {
        if constexpr (std::is_same_v<T, std::string>) {
          return QuotedText(v);
        } else if constexpr (std::is_same_v<T, DType>) {
          return std::string(NameOf(v));
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          return fmt::format("[{}]", fmt::join(v, ","));
        } else if constexpr (std::is_same_v<T, Shape>) {
          return v.ToString();
        } else if constexpr (std::is_same_v<T, Tensor>) {
          return PrintTensor(v);
        } else {
          return fmt::format("{}", v);
        }
      },
      value.variant());
}

// An integer where the text is one.
Result<AttrValue> ParseNumber(TextScanner& scanner) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, scanner.Literal());
  int64_t whole = 0;
  double real = 0;
  if (text != "-0" && ParseElement(text, &whole)) return AttrValue(whole);
  if (ParseElement(text, &real)) return AttrValue(Number(real));
  return scanner.Fail(fmt::format("'{}' is no number", text));
}

Result<AttrValue> ParseValue(TextScanner& scanner, AttrType type,
                             size_t* filled) {
  switch (type) {
    case AttrType::kBool:
      return AsValue(NextElement<bool>(scanner));
    case AttrType::kInt:
      return AsValue(scanner.Int());
    case AttrType::kFloat:
      return AsValue(NextElement<double>(scanner));
    case AttrType::kString:
      return AsValue(scanner.String());
    case AttrType::kDType:
      return AsValue(scanner.Type());
    case AttrType::kInts:
      return AsValue(ParseInts(scanner));
    case AttrType::kShape:
      return AsValue(scanner.Dims());
    case AttrType::kTensor:
      return AsValue(ParseTensor(scanner, filled));
    case AttrType::kNumber:
      return ParseNumber(scanner);
  }
  CheckFailed("attribute type", __FILE__, __LINE__);
}

}  // namespace sluice
