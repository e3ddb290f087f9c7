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

  // Where the records are, for a training shuffled and repeated, else in their
  // order: what ToPicture is a map for. Records that are compressed are
  // themselves read, on run.input_threads, and shuffled by a buffer; where
  // nothing says how many there are, they are only repeated for so many steps,
  // or else an epoch ends where they do.
  Dataset Records(const RunContext& run) const;
  // For Dataset::MapRandom, on any number of threads: "image" and "label" of a
  // record. A label that is none of the classes, less --label-offset, is an
  // error that names the record.
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

// As labels.txt has them; of data that training has read, as it had them.
std::vector<std::string> RecordClassNames(const RunContext& run);

// How many of the pictures to train on each class has. Reads them all, which
// the first call says.
std::vector<int64_t> RecordClassCounts(const RunContext& run);

// What an evaluation is of: "test" or "training".
std::string RecordsEvaluatedOn(const RunContext& run);

}  // namespace sluice::resnet50

#endif  // SLUICE_APPS_RESNET50_RECORDS_H_
