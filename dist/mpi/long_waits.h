// Notes the collective that a rank has waited in for long, which MPI does not
// tell.
#ifndef SLUICE_DIST_MPI_LONG_WAITS_H_
#define SLUICE_DIST_MPI_LONG_WAITS_H_

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "engine/thread_annotations.h"

namespace sluice::dist {

// Says a line each time that so much more of a wait has passed, by a thread of
// its own, from construction to destruction. Time in which this process did not
// run itself does not count.
class LongWaits {
 public:
  // `who` begins each line: "rank 0 of 4"; `note` has it without a newline.
  LongWaits(std::string who, std::chrono::milliseconds after,
            std::function<void(std::string_view)> note);
  LongWaits(const LongWaits&) = delete;
  LongWaits& operator=(const LongWaits&) = delete;
  ~LongWaits();

  // While a Wait lives the process waits in `what`, which must outlive it; one
  // at a time. `waits` may be null: then nobody is told.
  class Wait {
   public:
    Wait(LongWaits* waits, const std::string& what) : waits_(waits) {
      if (waits_ != nullptr) waits_->Set(&what);
    }
    ~Wait() {
      if (waits_ != nullptr) waits_->Set(nullptr);
    }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    LongWaits* const waits_;
  };

 private:
  using Duration = std::chrono::steady_clock::duration;

  void Set(const std::string* what) EXCLUDES(mutex_);
  void Look();

  const std::string who_;
  const std::chrono::milliseconds after_;
  const std::function<void(std::string_view)> note_;
  Mutex mutex_;
  CondVar ends_;
  bool ended_ GUARDED_BY(mutex_) = false;
  const std::string* what_ GUARDED_BY(mutex_) = nullptr;
  Duration waited_ GUARDED_BY(mutex_){0};
  std::thread thread_;
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_MPI_LONG_WAITS_H_
