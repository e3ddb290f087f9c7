// The driver's answers about TFRecord files, which tests/crosscheck compares
// with TensorFlow.
#ifndef SLUICE_TESTS_CROSSCHECK_RECORD_ANSWERS_H_
#define SLUICE_TESTS_CROSSCHECK_RECORD_ANSWERS_H_

#include <nlohmann/json.hpp>

namespace sluice {

// By what request["do"] is:
//
//   write_records  {path, examples}: {}; the file is not compressed
//   read_records   {path}: {examples}
//
// An example is {feature: {kind: [value]}} with the kind "bytes", "floats" or
// "ints"; bytes are in hexadecimal digits. Or {error}. Null for other requests.
nlohmann::json RecordAnswer(const nlohmann::json& request);

}  // namespace sluice

#endif  // SLUICE_TESTS_CROSSCHECK_RECORD_ANSWERS_H_
