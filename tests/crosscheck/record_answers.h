// The driver's answers about TFRecord files, which tests/crosscheck compares
// with TensorFlow.
#ifndef SLUICE_TESTS_CROSSCHECK_RECORD_ANSWERS_H_
#define SLUICE_TESTS_CROSSCHECK_RECORD_ANSWERS_H_

#include <nlohmann/json.hpp>

namespace sluice {

// By what request["do"] is:
//
//   write_records  {path, examples, compression, sequences}: {}
//   read_records   {path}: {examples}
//   parse_records  {path, context, lists, sequences}: {examples}, of tensors
//
// An example is {feature: {kind: [value]}} with the kind "bytes", "floats" or
// "ints"; bytes are in hexadecimal digits. With "sequences" it is {context,
// lists}, the former an example and of the latter each a list of features.
// What is parsed, of sequences one by one, else of all as one batch, is {name:
// {shape, values}} by specs {name, kind, shape, missing} (FeatureSpec) of the
// context, and of the lists. Or {error}. Null for other requests.
nlohmann::json RecordAnswer(const nlohmann::json& request);

}  // namespace sluice

#endif  // SLUICE_TESTS_CROSSCHECK_RECORD_ANSWERS_H_
