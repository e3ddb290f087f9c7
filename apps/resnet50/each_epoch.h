// What is found out anew in each epoch.
#ifndef SLUICE_APPS_RESNET50_EACH_EPOCH_H_
#define SLUICE_APPS_RESNET50_EACH_EPOCH_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/thread_annotations.h"
#include "models/run_context.h"

namespace sluice::resnet50 {

// For how many of so many examples this process asks in an epoch.
inline size_t CallsOf(size_t examples, const RunContext& run) {
  return examples * static_cast<size_t>(run.own) /
         static_cast<size_t>(run.size);
}

// A T that is made when the first of so many examples is asked for, and again
// when the first is asked for a second time, and so on: that is once an epoch,
// for epochs of a part of the examples, too. One of several processes has
// another part of a shuffled epoch each time, and may see none a second time
// for long: there it is made anew after an epoch's calls at the latest.
// Thread-safe.
template <typename T>
class EachEpoch {
 public:
  // `calls`: of this process in an epoch, where these are not for all examples;
  // too few only make more. make() may throw; then it is called again for the
  // next example.
  EachEpoch(size_t examples, std::function<T()> make, size_t calls = SIZE_MAX)
      : make_(std::move(make)),
        // For all of them their second times tell, whichever thread is late.
        most_calls_(calls < examples ? std::max<size_t>(calls, 1) : SIZE_MAX),
        times_(examples) {}

  std::shared_ptr<const T> For(size_t example) {
    const uint32_t time = ++times_[example];
    const MutexLock lock(mutex_);
    // An example of the epoch before, on a slower thread, makes none.
    if (time > made_ || calls_ >= most_calls_) {
      value_ = std::make_shared<const T>(make_());
      made_ = std::max(made_, time);
      calls_ = 0;
    }
    ++calls_;
    return value_;
  }

 private:
  const std::function<T()> make_;
  const size_t most_calls_;
  std::vector<std::atomic<uint32_t>> times_;
  Mutex mutex_;
  uint32_t made_ GUARDED_BY(mutex_) = 0;  // for examples of so many times
  size_t calls_ GUARDED_BY(mutex_) = 0;   // since then
  std::shared_ptr<const T> value_ GUARDED_BY(mutex_);
};

}  // namespace sluice::resnet50

#endif  // SLUICE_APPS_RESNET50_EACH_EPOCH_H_
