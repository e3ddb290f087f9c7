// The tensors of a tf.Example.
#include <fmt/format.h>

#include <algorithm>

#include "io/records/tf_example.h"

namespace sluice {
namespace {

bool AnyRows(const Shape& shape) {
  return shape.rank() > 0 && shape[0] == kUnknown;
}

Status CheckSpec(const FeatureSpec& spec) {
  const DType dtype = spec.dtype;
  if (dtype != DType::kFloat32 && dtype != DType::kInt64 &&
      dtype != DType::kUInt8) {
    return InvalidArgument(fmt::format(
        "feature '{}': wanted as {}, but features are float32, int64 or uint8",
        spec.name, NameOf(dtype)));
  }
  Shape shape = spec.shape;
  if (AnyRows(shape)) shape.set(0, 0);
  if (std::any_of(shape.begin(), shape.end(), [](auto d) { return d < 0; })) {
    return InvalidArgument(fmt::format(
        "feature '{}': wanted of shape {}, but only the first dimension may be "
        "unknown",
        spec.name, spec.shape.ToString()));
  }
  Status status = CheckTensorSize(dtype, shape);
  if (status.ok() && spec.missing) status = CheckHolds(dtype, *spec.missing);
  if (status.ok()) return status;
  return status.WithContext(fmt::format("feature '{}'", spec.name));
}

// The tensor that a spec asks for, of the values there are.
template <typename T>
Status FromValues(const FeatureSpec& spec, std::span<const T> values,
                  Tensor* out) {
  const auto count = static_cast<int64_t>(values.size());
  Shape shape = spec.shape;
  if (AnyRows(shape)) {
    const int64_t row = shape.elements(1, shape.rank());
    shape.set(0, row > 0 ? count / row : 0);
  }
  if (shape.elements() != count) {
    return InvalidArgument(
        fmt::format("feature '{}' holds {} {}, wanted {}{}", spec.name, count,
                    spec.dtype == DType::kUInt8 ? "bytes" : "values",
                    NameOf(spec.dtype), spec.shape.ToString()));
  }
  *out = Tensor::Array<T>(shape, values);
  return {};
}

// The tensor where there are none.
Status Fill(const FeatureSpec& spec, Tensor* out) {
  Shape shape = spec.shape;
  if (AnyRows(shape)) shape.set(0, 0);
  *out = Tensor::Full(spec.dtype, shape, *spec.missing);
  return {};
}

// No values where the feature is not there and may be missing.
template <typename T>
Result<std::vector<T>> OrMissing(const FeatureSpec& spec,
                                 Result<std::vector<T>> values) {
  const bool missing = values.status().code() == Code::kNotFound;
  if (missing && spec.missing) return std::vector<T>();
  return values;
}

template <typename T>
Status ParseNumbers(const FeatureSpec& spec, Result<std::vector<T>> found,
                    Tensor* out) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<T> values,
                          OrMissing(spec, std::move(found)));
  if (values.empty() && spec.missing) return Fill(spec, out);
  return FromValues<T>(spec, values, out);
}

Status ParseString(const FeatureSpec& spec, const TfExample& example,
                   Tensor* out) {
  SLUICE_ASSIGN_OR_RETURN(const auto strings,
                          OrMissing(spec, example.BytesList(spec.name)));
  if (strings.empty() && spec.missing) return Fill(spec, out);
  if (strings.size() != 1) {
    return InvalidArgument(fmt::format(
        "feature '{}' holds {} byte strings, wanted one as {}{}", spec.name,
        strings.size(), NameOf(spec.dtype), spec.shape.ToString()));
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(strings[0].data());
  return FromValues<uint8_t>(spec, {bytes, strings[0].size()}, out);
}

Status ParseFeature(const FeatureSpec& spec, const TfExample& example,
                    Tensor* out) {
  SLUICE_RETURN_IF_ERROR(CheckSpec(spec));
  switch (spec.dtype) {
    case DType::kFloat32:
      return ParseNumbers(spec, example.Floats(spec.name), out);
    case DType::kInt64:
      return ParseNumbers(spec, example.Ints(spec.name), out);
    default:
      return ParseString(spec, example, out);
  }
}

}  // namespace

Result<Example> ParseTfExample(std::string_view bytes,
                               std::span<const FeatureSpec> features) {
  SLUICE_ASSIGN_OR_RETURN(const TfExample parsed, TfExample::Parse(bytes));
  Example example;
  for (const FeatureSpec& spec : features) {
    Tensor tensor;
    SLUICE_RETURN_IF_ERROR(ParseFeature(spec, parsed, &tensor));
    example.Set(spec.name, std::move(tensor));
  }
  return example;
}

}  // namespace sluice
