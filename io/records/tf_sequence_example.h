// tf.SequenceExample (tensorflow/core/example/example.proto): a sequence, as
// TFRecord files hold them: features of the whole, its context, and lists of
// one feature a step, all by name.
#ifndef SLUICE_IO_RECORDS_TF_SEQUENCE_EXAMPLE_H_
#define SLUICE_IO_RECORDS_TF_SEQUENCE_EXAMPLE_H_

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"
#include "io/example.h"
#include "io/records/tf_example.h"

namespace SLUICE_PUBLIC sluice {

// Tensors of these names, in this order. Of a context feature as by
// ParseTfExample; of a feature list [steps, shape...], where the spec's shape,
// `missing` and the padding are of steps as ParseTfExamples has them of
// examples. A list that is not there has zero steps if `missing` is set.
//
// kDataLoss for bytes that are no tf.SequenceExample, where protobuf's own
// parser says so; kNotFound, and kInvalidArgument naming the feature, the step,
// what was got and what was wanted, also for a name among both.
Result<Example> ParseTfSequenceExample(std::string_view bytes,
                                       std::span<const FeatureSpec> context,
                                       std::span<const FeatureSpec> lists);

using TfFeatureList = std::vector<TfFeature>;  // by step
// Serialised, as by EncodeTfExample, with its errors.
Result<std::string> EncodeTfSequenceExample(
    std::span<const std::pair<std::string, TfFeature>> context,
    std::span<const std::pair<std::string, TfFeatureList>> lists);

}  // namespace sluice

#endif  // SLUICE_IO_RECORDS_TF_SEQUENCE_EXAMPLE_H_
