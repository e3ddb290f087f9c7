// Classes that data number otherwise than the training did.
#ifndef SLUICE_APPS_SHARDS_CLASS_NUMBERS_H_
#define SLUICE_APPS_SHARDS_CLASS_NUMBERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "models/run_context.h"

namespace sluice::shards {

// The number of each class in training, by its number in `data`, which names
// its classes. Empty where the numbers are the same, or either has no names.
// Throws Error for a class that was not trained, or a name that is twice there;
// `what` begins its message, such as "the shards".
std::vector<int64_t> Renumbering(const std::string& what,
                                 const std::vector<std::string>& data,
                                 const std::vector<std::string>& training);

// For data with names of classes, called `what` in messages, where
// run.class_names has none though something was trained: names cannot tell
// which number is which class. Throws Error after a training on a labels.csv,
// whose numbers anybody chose; after one on records or tar shards, which
// usually have them in the order of names, it is said once that this is
// assumed.
void RequireNumbers(const RunContext& run, const std::string& what);

}  // namespace sluice::shards

#endif  // SLUICE_APPS_SHARDS_CLASS_NUMBERS_H_
