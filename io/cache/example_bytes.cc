#include "io/cache/example_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "engine/allocate.h"

namespace sluice {
namespace {

void AppendNumber(int64_t number, std::string* out) {
  out->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void AppendText(std::string_view text, std::string* out) {
  AppendNumber(static_cast<int64_t>(text.size()), out);
  out->append(text);
}

// In memory.
class BytesSource : public ExampleSource {
 public:
  explicit BytesSource(std::string_view bytes) : bytes_(bytes) {}

  uint64_t left() const override { return bytes_.size(); }
  Result<std::string_view> Take(size_t n) override {
    const std::string_view taken = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return taken;
  }
  Status Read(void* to, size_t n) override {
    if (n > 0) std::memcpy(to, bytes_.data(), n);
    bytes_.remove_prefix(n);
    return {};
  }

 private:
  std::string_view bytes_;
};

// What is left to be parsed.
class Rest {
 public:
  explicit Rest(ExampleSource& source) : source_(source) {}

  bool empty() const { return source_.left() == 0; }

  // None of them is negative.
  Result<int64_t> TakeNumber() {
    int64_t number = 0;
    SLUICE_ASSIGN_OR_RETURN(const std::string_view taken, Take(sizeof(number)));
    std::memcpy(&number, taken.data(), sizeof(number));
    if (number < 0) {
      return DataLoss(fmt::format(
          "the bytes of an example have the number {}, wanted 0 or more",
          number));
    }
    return number;
  }
  Result<std::string> TakeText() {
    SLUICE_ASSIGN_OR_RETURN(const int64_t length, TakeNumber());
    SLUICE_ASSIGN_OR_RETURN(const std::string_view text,
                            Take(static_cast<size_t>(length)));
    return std::string(text);
  }
  // Before there is memory for them.
  Status Require(size_t n) const {
    if (n <= source_.left()) return {};
    return DataLoss("the bytes of an example end too early");
  }
  Status Read(void* to, size_t n) { return source_.Read(to, n); }

 private:
  Result<std::string_view> Take(size_t n) {
    SLUICE_RETURN_IF_ERROR(Require(n));
    return source_.Take(n);
  }

  ExampleSource& source_;
};

Result<Shape> TakeShape(Rest& rest) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t rank, rest.TakeNumber());
  if (rank > Shape::kMaxRank) {
    return DataLoss(
        fmt::format("the bytes of an example have a tensor of {} dimensions, "
                    "wanted at most {}",
                    rank, Shape::kMaxRank));
  }
  Shape shape;
  for (int64_t i = 0; i < rank; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t dimension, rest.TakeNumber());
    shape.push_back(dimension);
  }
  return shape;
}

Result<Tensor> TakeTensor(Rest& rest) {
  SLUICE_ASSIGN_OR_RETURN(const std::string name, rest.TakeText());
  const auto dtype = ParseDType(name);
  if (!dtype.ok()) return DataLoss(dtype.status().message());
  SLUICE_ASSIGN_OR_RETURN(const Shape shape, TakeShape(rest));
  // Before elements(), which could overflow.
  if (const Status size = CheckTensorSize(*dtype, shape); !size.ok()) {
    return DataLoss(size.message());
  }
  const size_t bytes = shape.elements() * SizeOf(*dtype);
  SLUICE_RETURN_IF_ERROR(rest.Require(bytes));
  SLUICE_ASSIGN_OR_RETURN(Tensor tensor, AllocateTensor(*dtype, shape));
  auto* const data = static_cast<char*>(tensor.raw());
  SLUICE_RETURN_IF_ERROR(rest.Read(data, bytes));
  // Another value is undefined behaviour where it is read.
  if (*dtype == DType::kBool && std::any_of(data, data + bytes, [](char c) {
        return c != 0 && c != 1;
      })) {
    return DataLoss("the bytes of an example have a bool other than 0 and 1");
  }
  return tensor;
}

}  // namespace

void AppendExampleBytes(const Example& example, std::string* out) {
  AppendNumber(example.passed_over(), out);
  AppendNumber(example.whole_rows(), out);
  AppendNumber(static_cast<int64_t>(example.size()), out);
  for (const auto& [name, tensor] : example) {
    AppendText(name, out);
    AppendText(NameOf(tensor.dtype()), out);
    AppendNumber(tensor.shape().rank(), out);
    for (const int64_t dimension : tensor.shape()) {
      AppendNumber(dimension, out);
    }
    if (tensor.bytes() > 0) {
      out->append(static_cast<const char*>(tensor.raw()), tensor.bytes());
    }
  }
}

Result<Example> ParseExample(ExampleSource& source) {
  Rest rest(source);
  Example example;
  SLUICE_ASSIGN_OR_RETURN(const int64_t passed_over, rest.TakeNumber());
  example.set_passed_over(passed_over);
  SLUICE_ASSIGN_OR_RETURN(const int64_t whole_rows, rest.TakeNumber());
  example.set_whole_rows(whole_rows);
  SLUICE_ASSIGN_OR_RETURN(const int64_t entries, rest.TakeNumber());
  for (int64_t i = 0; i < entries; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const std::string name, rest.TakeText());
    SLUICE_ASSIGN_OR_RETURN(Tensor tensor, TakeTensor(rest));
    if (example.contains(name)) {
      return DataLoss(
          fmt::format("the bytes of an example have '{}' twice", name));
    }
    example.Set(name, std::move(tensor));
  }
  if (!rest.empty()) return DataLoss("there are bytes behind an example");
  return example;
}

Result<Example> ParseExampleBytes(std::string_view bytes) {
  BytesSource source(bytes);
  return ParseExample(source);
}

}  // namespace sluice
