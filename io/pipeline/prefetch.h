// A stream computed ahead on a thread. Internal to io.
#ifndef SLUICE_IO_PIPELINE_PREFETCH_H_
#define SLUICE_IO_PIPELINE_PREFETCH_H_

#include <cstddef>
#include <deque>
#include <thread>

#include "engine/thread_annotations.h"
#include "io/pipeline/dataset_node.h"
#include "io/pipeline/stream.h"

namespace sluice {

// The thread starts with the first Next and ends at the end of the epoch, at
// an error, or when the stream is moved or destroyed; it owns the input while
// it runs. An error is handed out after the elements before it.
class PrefetchStream : public Stream<Example> {
 public:
  // The input was opened with `opening`.
  PrefetchStream(StreamPtr<Example> input, int64_t depth,
                 const Opening& opening)
      : input_(std::move(input)),
        depth_(static_cast<size_t>(depth)),
        marks_(opening.marks),
        stop_input_(opening.stop),
        bytes_(opening.ahead) {}
  ~PrefetchStream() override;
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* element) override;
  Result<int64_t> Skip(int64_t n) override;
  Status PassOver(int64_t n) override;
  void Save(Mark* mark) const override;
  Status Restore(MarkReader* mark) override { return input_->Restore(mark); }

 private:
  void Run();
  bool MayRead(size_t* held) REQUIRES(mutex_);
  void Stop();

  StreamPtr<Example> input_;
  const size_t depth_;
  const bool marks_;
  const StopFlagPtr stop_input_;
  std::thread thread_;
  bool started_ = false;  // in this epoch
  Mark mark_;             // where this stream is, once it has started

  Mutex mutex_;
  CondVar changed_;
  struct Ready {
    Example element;
    Mark end;         // where this stream is behind it
    size_t held = 0;  // of bytes_
  };
  AheadBytes bytes_ GUARDED_BY(mutex_);
  std::deque<Ready> ready_ GUARDED_BY(mutex_);
  Status error_ GUARDED_BY(mutex_);
  bool ended_ GUARDED_BY(mutex_) = false;  // nothing will be added to ready_
  bool stop_ GUARDED_BY(mutex_) = false;
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_PREFETCH_H_
