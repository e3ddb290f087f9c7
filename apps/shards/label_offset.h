// Finds the label that the first class has in records of pictures.
#ifndef SLUICE_APPS_SHARDS_LABEL_OFFSET_H_
#define SLUICE_APPS_SHARDS_LABEL_OFFSET_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "engine/status.h"
#include "models/run_context.h"

namespace sluice::shards {

// The labels of pictures, numbered from 0 to before `size`.
struct LabelsOfPictures {
  int64_t size = 0;
  std::function<Result<int64_t>(int64_t number)> label;  // on any thread
  std::function<std::string(int64_t number)> place;      // for messages
};

// Throws Error where --label-offset is neither "auto" nor a whole number, and
// where it is another than 0 though there are no shards, which are what `data`
// names, such as "--data".
void CheckLabelOffset(const RunContext& run, bool of_shards, const char* data);

// The label that the first of `classes` has: what --label-offset says or, where
// that is "auto", 0 or 1, as the labels tell: 0 is one of them only where they
// begin with 0, `classes` only where they begin with 1. Looked at are
// 1,000 pictures, spread evenly, and as long as neither was seen 1,000 more, up
// to 10,000, then as many of `others`; bad ones are passed over. Where neither
// is seen, labels begin as those of the training did, unless the classes are
// `renumbered` by their names; without any it is 0. It is said, and of a
// training recorded (RunContext::found_flags). Throws Error naming two pictures
// where both are seen, naming one where the training had the other unless the
// classes are renumbered, and for labels that cannot be read now.
int64_t LabelOffset(const RunContext& run, const LabelsOfPictures& labels,
                    int64_t classes, bool renumbered,
                    const std::function<LabelsOfPictures()>& others);

// The label of the first class in the training that an evaluation is of, where
// that was of shards.
std::optional<int64_t> LabelOffsetOfTraining(const RunContext& run);

// The flags that say how labels are, for messages of labels that cannot be.
std::string LabelFlags(const RunContext& run);

// The offset in a data set's description, which tells trainings apart.
std::string DescribeLabelOffset(int64_t offset);

}  // namespace sluice::shards

#endif  // SLUICE_APPS_SHARDS_LABEL_OFFSET_H_
