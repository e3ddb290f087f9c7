// Examples that cannot be read, which a pipeline may pass over.
#ifndef SLUICE_IO_PIPELINE_BAD_EXAMPLES_H_
#define SLUICE_IO_PIPELINE_BAD_EXAMPLES_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// The bad examples of all pipelines that it is given to (Dataset::Map).
// Thread-safe.
class BadExamples {
 public:
  // `limit`: how many different bad examples are passed over before it is an
  // error; one that comes again, in another epoch, counts once.
  explicit BadExamples(int64_t limit) : limit_(limit) {}

  int64_t limit() const { return limit_; }

  // Whether an error says that one example is bad: kDataLoss, kNotFound,
  // kFailedPrecondition, which is a file that must not be read, and
  // kUnimplemented, a format that the build lacks. Not kUnavailable: that may
  // pass, and then the example would have been good.
  static bool IsOne(const Status& error);

  // Notes the one at a place of its pipeline, from 0. The error, which then
  // also says how many came before it, where it is one too many.
  Status Add(int64_t place, const Status& error);

  int64_t count() const;  // of different ones
  // The fault of each bad example, in the order in which they came. Know: that
  // these, messages() of a process whose work this one goes on with, were met
  // before, whatever the limit is. Of their bytes what is no UTF-8 may have
  // been replaced, as by Json::LenientText, so that several may be alike.
  std::vector<std::string> messages() const;
  void Know(const std::vector<std::string>& messages);
  // The fault of the bad example at a place; "" where there was none.
  std::string At(int64_t place) const;

 private:
  const int64_t limit_;
  mutable Mutex mutex_;
  std::vector<std::string> messages_ GUARDED_BY(mutex_);
  std::set<std::string> known_ GUARDED_BY(mutex_);  // by Add
  // By Know, and not yet by Add; as LenientText.
  std::multiset<std::string> from_before_ GUARDED_BY(mutex_);
  std::map<int64_t, std::string> by_place_ GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_BAD_EXAMPLES_H_
