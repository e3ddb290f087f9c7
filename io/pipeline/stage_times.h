// Measures how long the stages of a running pipeline take.
//
//   auto times = std::make_shared<StageTimes>();
//   Iterator batches = dataset.MakeIterator(times);
//   times->Measure(true);
//   ...
//   for (const StageTime& stage : times->Read()) Print(stage);
#ifndef SLUICE_IO_PIPELINE_STAGE_TIMES_H_
#define SLUICE_IO_PIPELINE_STAGE_TIMES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/thread_annotations.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

class Stage;

// What one stage did since its iterator was made.
struct StageTime {
  // "map", "batch", ..., MapOptions::name; where several have the same one
  // those after the first have a number: "map 2".
  std::string name;
  // Elements that it gave to the next stage, whether measured or not.
  int64_t elements = 0;
  // Seconds in the stage alone, on all its threads together, while it was
  // measured: not in the stages before it, and not while it waited for them or
  // for room.
  double seconds = 0;
  // Threads that it runs on now; where it has none of its own, those of the
  // stage that reads it count as one.
  int threads = 1;
  // Whether that number is chosen while it runs (MapOptions::threads = 0).
  bool chosen = false;
};

// A piece of time that one thread was in one stage alone.
struct StageSpan {
  std::string stage;
  int thread = 0;                    // of those of the stage, from 0 on
  int64_t begin_ns = 0, end_ns = 0;  // of the steady clock
};

// The stages of iterators that were made with it. Those of later iterators of
// the same pipeline go on counting where those of earlier ones were.
// Thread-safe. While nothing is measured no clock is read.
class StageTimes {
 public:
  StageTimes();
  ~StageTimes();
  StageTimes(const StageTimes&) = delete;
  StageTimes& operator=(const StageTimes&) = delete;

  // Whether to measure from now on; not at first. What is under way when that
  // changes counts as it was begun.
  void Measure(bool on) { measure_ = on; }
  // The stages in the order of the elements' way: sources first.
  std::vector<StageTime> Read() const;

  // Whether to measure and to keep the pieces as well.
  void Trace(bool on) { trace_ = on; }
  // The spans of at least 1 us that ended since the last call, stage by stage
  // in the order of Read.
  std::vector<StageSpan> TakeSpans();

  // For io alone.
  // The stage `name` that is input number `input` of `reader`, null for the
  // last of all. There is one of a kind.
  Stage* Find(const Stage* reader, int input, std::string_view name);
  bool measuring() const {
    return measure_.load(std::memory_order_relaxed) || tracing();
  }
  bool tracing() const { return trace_.load(std::memory_order_relaxed); }

 private:
  struct Named {
    Stage* stage;
    std::string name;
  };
  std::vector<Named> InOrder() const REQUIRES(mutex_);

  std::atomic<bool> measure_ = false, trace_ = false;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Stage>> stages_ GUARDED_BY(mutex_);
};

// The name of the stage that was busiest between two readings of the same
// StageTimes: that had most seconds on each of its threads. Empty where nothing
// was measured.
std::string BusiestStage(std::span<const StageTime> before,
                         std::span<const StageTime> now);

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_STAGE_TIMES_H_
