// Facts that are found out anew in each epoch.
#ifndef SLUICE_APPS_RESNET50_EACH_EPOCH_H_
#define SLUICE_APPS_RESNET50_EACH_EPOCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/thread_annotations.h"
#include "models/run_context.h"

namespace sluice::resnet50 {

// How many of `examples` examples this process asks for in an epoch.
inline size_t CallsOf(size_t examples, const RunContext& run) {
  return examples * static_cast<size_t>(run.own) /
         static_cast<size_t>(run.size);
}

// A T that is made when the first of so many examples is asked for, and again
// when the first is asked for a second time, and so on: that is once an epoch,
// for epochs of a part of the examples, too. One of several processes has
// another part of a shuffled epoch each time, and may see none a second time
// for long: there it is made anew after an epoch's calls at the latest. What is
// asked for a second time before half an epoch's calls does not end one: a
// Dataset::Sample was before it, or an epoch that was left, and what is counted
// is counted from there on. Thread-safe.
template <typename T>
class EachEpoch {
 public:
  // `calls`: of this process in an epoch, where these are not for all examples;
  // too few only make more.
  EachEpoch(size_t examples, std::function<T()> make, size_t calls = SIZE_MAX)
      : make_(std::move(make)),
        calls_of_epoch_(std::max<size_t>(std::min(calls, examples), 1)),
        counts_calls_(calls < examples),
        times_(examples) {}

  std::shared_ptr<const T> For(size_t example) {
    const MutexLock lock(mutex_);
    if (made_ > 0 && times_[example] >= made_ &&
        2 * (calls_ - calls_at_make_) <= calls_of_epoch_) {
      times_.assign(times_.size(), 0);
      calls_ = made_ = 0;
    }
    // No epoch has an example twice, so that the times count no epoch that was
    // not; calls do where times are behind. For all examples their second times
    // tell, whichever thread is late.
    const uint64_t time = ++times_[example], before = calls_++;
    const uint64_t by_calls = counts_calls_ ? before / calls_of_epoch_ + 1 : 1;
    const uint64_t epoch = std::max(time, by_calls);
    // An example of the epoch before, on a slower thread, makes none.
    if (epoch > made_) {
      value_ = std::make_shared<const T>(make_());
      made_ = epoch;
      calls_at_make_ = before;
    }
    return value_;
  }

 private:
  const std::function<T()> make_;
  const uint64_t calls_of_epoch_;
  const bool counts_calls_;
  Mutex mutex_;
  std::vector<uint64_t> times_ GUARDED_BY(mutex_);
  uint64_t made_ GUARDED_BY(mutex_) = 0;  // for this epoch, from 1 on
  uint64_t calls_ GUARDED_BY(mutex_) = 0;
  uint64_t calls_at_make_ GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const T> value_ GUARDED_BY(mutex_);
};

}  // namespace sluice::resnet50

#endif  // SLUICE_APPS_RESNET50_EACH_EPOCH_H_
