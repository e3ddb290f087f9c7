// One stage of StageTimes, and what its streams tell it. Internal to io.
#ifndef SLUICE_IO_PIPELINE_STAGE_H_
#define SLUICE_IO_PIPELINE_STAGE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/thread_annotations.h"
#include "io/pipeline/example_stream.h"
#include "io/pipeline/stage_times.h"

namespace sluice {

// Thread-safe. Lives as long as the StageTimes it is of.
class Stage {
 public:
  struct Piece {
    std::thread::id thread;
    int64_t begin_ns, end_ns;
  };

  Stage(const StageTimes& times, const Stage* reader, int input,
        std::string name)
      : times_(times), reader_(reader), input_(input), name_(std::move(name)) {}

  const Stage* reader() const { return reader_; }
  int input() const { return input_; }
  const std::string& name() const { return name_; }
  bool measuring() const { return times_.measuring(); }

  void Gave(int64_t elements) {
    elements_.fetch_add(elements, std::memory_order_relaxed);
  }
  void Spent(int64_t begin_ns, int64_t end_ns);
  void SetThreads(int threads, bool chosen) {
    threads_.store(threads, std::memory_order_relaxed);
    chosen_.store(chosen, std::memory_order_relaxed);
  }
  StageTime Read() const;
  std::vector<Piece> TakePieces();

 private:
  const StageTimes& times_;
  const Stage* const reader_;
  const int input_;
  const std::string name_;
  std::atomic<int64_t> elements_ = 0, nanoseconds_ = 0;
  std::atomic<int> threads_ = 1;
  std::atomic<bool> chosen_ = false;
  Mutex mutex_;
  std::vector<Piece> pieces_ GUARDED_BY(mutex_);
};

// While it lives this thread is in `stage`, null for one that nobody watches,
// and not in the one that it was in before.
class InStage {
 public:
  explicit InStage(Stage* stage);
  ~InStage();
  InStage(const InStage&) = delete;
  InStage& operator=(const InStage&) = delete;

 private:
  Stage* outer_ = nullptr;
  bool measured_ = false;
};

// While it lives this thread waits, and is in none.
class Waiting {
 public:
  Waiting();
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Stage* const outer_;
};

// `stream`, whose calls are time in `stage`, one of `times`. A Batcher where it
// is one.
StreamPtr<Example> Measured(StreamPtr<Example> stream,
                            std::shared_ptr<StageTimes> times, Stage* stage);

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_STAGE_H_
