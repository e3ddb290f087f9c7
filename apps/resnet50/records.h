// Pictures in records or in tar archives, of either of which --data may name a
// folder.
#ifndef SLUICE_APPS_RESNET50_RECORDS_H_
#define SLUICE_APPS_RESNET50_RECORDS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/resnet50/picture_cache.h"
#include "apps/resnet50/sizing.h"
#include "apps/shards/labelled_shards.h"
#include "io/pipeline/dataset.h"
#include "models/run_context.h"

namespace sluice::resnet50 {

// What run.mode reads of them. Nothing here throws but Error.
class RecordPictures {
 public:
  explicit RecordPictures(const RunContext& run);

  // The records, for a training shuffled and repeated, else in their order: the
  // elements that ToPicture maps. Records that are compressed are themselves
  // read, on run.input_threads, and shuffled by a buffer; where nothing says
  // how many there are, they are only repeated for so many steps, or else an
  // epoch ends where they do.
  Dataset Records(const RunContext& run) const;
  // A map for Dataset::MapRandom, on any number of threads: makes "image" and
  // "label" of a record. A label that is none of the classes, less
  // --label-offset, is an error that names the record.
  std::function<void(Example&, uint64_t key)> ToPicture(
      const RunContext& run) const;

 private:
  Dataset InOrder(const RunContext& run) const;
  std::function<void(Example&, uint64_t key)> InOrderToPicture(
      const Sizing& sizing) const;
  std::function<void(Example&, uint64_t key)> InOrderFromCache(
      std::shared_ptr<PictureCache> cache, const Sizing& sizing) const;
  std::function<void(Example&, uint64_t key)> FromCache(
      std::shared_ptr<PictureCache> cache, const Sizing& sizing,
      const RunContext& run) const;

  shards::LabelledShards shards_;
  std::string described_;
};

// The names of the classes, as in labels.txt; for data that training has read,
// as it had them.
std::vector<std::string> RecordClassNames(const RunContext& run);

// The number of pictures to train on of each class. Reads all pictures, with a
// note at the first call.
std::vector<int64_t> RecordClassCounts(const RunContext& run);

// The data that an evaluation is of: "test" or "training".
std::string RecordsEvaluatedOn(const RunContext& run);

}  // namespace sluice::resnet50

#endif  // SLUICE_APPS_RESNET50_RECORDS_H_
