// Pictures of digits in shards, of which --data-dir may name a folder.
#ifndef SLUICE_APPS_MNIST_RECORDS_H_
#define SLUICE_APPS_MNIST_RECORDS_H_

#include <string>

#include "apps/shards/labelled_shards.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "io/pipeline/dataset.h"
#include "models/run_context.h"

namespace sluice::mnist {

inline constexpr int64_t kClasses = 10;
// Digits are small: 60,000 of them are some 20 MB.
inline constexpr auto kCompressed = shards::IfCompressed::kInMemory;

// Whether the folder holds shards of records (io/records/image_records.h), or
// of tar archives; so it is for a pattern of them. Throws Error where the
// folder holds MNIST's own files, too, and where the pattern fits no shard.
bool HasShards(const std::string& path);

// uint8 [28,28,1] of a JPEG or PNG of 28 x 28 grey pixels, white on black as
// MNIST's. Errors of DecodeImage; kInvalidArgument for another picture, `name`
// is for messages.
Result<Tensor> DecodeDigit(std::string_view bytes, const std::string& name);

// What run.mode reads of the shards in run.data_dir. Labels are digits, less
// --label-offset; where the shards name their classes "0" to "9", or some of
// them, these say which digit a label is. Nothing here throws but Error.
class RecordDigits {
 public:
  explicit RecordDigits(const RunContext& run);

  // The numbers of the pictures, in their order: the elements that Read maps.
  Dataset Numbers() const;
  // A map for Dataset::Map, on any number of threads: reads "image", as of
  // DecodeDigit, and "label".
  void Read(Example& example) const;

 private:
  shards::LabelledShards shards_;
};

}  // namespace sluice::mnist

#endif  // SLUICE_APPS_MNIST_RECORDS_H_
