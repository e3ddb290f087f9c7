// Classes that data number otherwise than the training did.
#ifndef SLUICE_APPS_SHARDS_CLASS_NUMBERS_H_
#define SLUICE_APPS_SHARDS_CLASS_NUMBERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "models/run_context.h"

namespace sluice::shards {

// By the number that a class has in `data`, which names its classes: the number
// that it has in training. Empty where these are the same, or either has no
// names. Throws Error for a class that was not trained, or a name that is twice
// there; `what` begins its message, such as "the shards".
std::vector<int64_t> Renumbering(const std::string& what,
                                 const std::vector<std::string>& data,
                                 const std::vector<std::string>& training);

// For data with names of classes, `what` of the message or note, where
// run.class_names has none though something was trained: which number is which
// class the names do not tell. Throws Error after a training on a labels.csv,
// whose numbers anybody chose; after one on records or tar shards, which
// usually have them in the order of names, it is said once that this is
// assumed.
void RequireNumbers(const RunContext& run, const std::string& what);

}  // namespace sluice::shards

#endif  // SLUICE_APPS_SHARDS_CLASS_NUMBERS_H_
