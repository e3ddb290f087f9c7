// tf.Example, the usual payload of TFRecord files
// (tensorflow/core/example/example.proto): features by name, each a list of
// byte strings, of floats or of integers.
#ifndef SLUICE_IO_RECORDS_TF_EXAMPLE_H_
#define SLUICE_IO_RECORDS_TF_EXAMPLE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"
#include "io/example.h"

namespace SLUICE_PUBLIC sluice {

// A view of a serialised tf.Example, which must outlive it: nothing is copied
// until it is asked for. Immutable, thread-safe.
class TfExample {
 public:
  // kDataLoss for bytes that are no tf.Example: where protobuf's own parser
  // says so. Where a feature comes twice the last one counts, as there.
  static Result<TfExample> Parse(std::string_view bytes);

  bool contains(std::string_view feature) const;
  // Sorted.
  std::vector<std::string> names() const;

  // The values of a feature, none where it is an empty list or of no kind.
  // kNotFound, listing the features there are; kInvalidArgument for one of
  // another kind.
  Result<std::vector<std::string_view>> BytesList(std::string_view name) const;
  Result<std::vector<int64_t>> Ints(std::string_view name) const;
  Result<std::vector<float>> Floats(std::string_view name) const;
  // The only value of a feature; kInvalidArgument where it has none or several.
  Result<std::string_view> Bytes(std::string_view name) const;
  Result<int64_t> Int(std::string_view name) const;

 private:
  struct Feature {
    std::string_view name;
    int kind = 0;            // its list's number in Feature's oneof; 0: none
    std::string_view entry;  // of the map, serialised
  };
  const Feature* Find(std::string_view name) const;
  template <typename T>
  Result<std::vector<T>> Values(std::string_view name) const;
  template <typename T>
  Result<T> Value(std::string_view name) const;

  std::vector<Feature> features_;  // sorted by name
};

// Which feature becomes which tensor.
struct FeatureSpec {
  std::string name;
  // kFloat32, kInt64, or kUInt8: the bytes of a single string.
  DType dtype;
  // The shape of one example's tensor. The first dimension may be kUnknown: as
  // many values as there are, a multiple of the other dimensions' product.
  Shape shape;
  // The value that fills the tensor of a feature that is not there, or has no
  // values (the tensor has no rows if the first dimension is kUnknown). Without
  // it, a feature that is not there is an error, and so is one of no values
  // where some are wanted.
  std::optional<double> missing = std::nullopt;
};

// The tensors of these features, in this order. kDataLoss, kNotFound, and
// kInvalidArgument naming the feature, what was got and what was wanted.
Result<Example> ParseTfExample(std::string_view bytes,
                               std::span<const FeatureSpec> features);
// The tensors of a batch, [examples, ...], whose rows are equal to the tensors
// ParseTfExample makes of each. A first dimension of kUnknown is that of the
// longest example; shorter ones are filled up with `missing`, or zeros. Errors
// name the example by its number in the batch.
Result<Example> ParseTfExamples(std::span<const std::string_view> examples,
                                std::span<const FeatureSpec> features);

using TfFeature = std::variant<std::vector<std::string>, std::vector<float>,
                               std::vector<int64_t>>;
// A serialised tf.Example, its features in the order of their names, so that
// equal examples have equal bytes. kInvalidArgument for a name that comes twice
// or is no UTF-8, and for more than 2 GiB; kUnimplemented without protobuf.
Result<std::string> EncodeTfExample(
    std::span<const std::pair<std::string, TfFeature>> features);

}  // namespace sluice

#endif  // SLUICE_IO_RECORDS_TF_EXAMPLE_H_
