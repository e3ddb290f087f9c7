// The datasets that Interleave opens, read ahead. Internal to io.
#ifndef SLUICE_IO_PIPELINE_PARTS_AHEAD_H_
#define SLUICE_IO_PIPELINE_PARTS_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "io/pipeline/ahead_threads.h"
#include "io/pipeline/parts.h"

namespace sluice {

// Opens and reads them on several threads, each part by one of them at a time:
// those that are open, and the next ones, as many as there are threads. Gives
// what PartsInTurn gives and saves the same marks.
class PartsAhead : public Parts, private AheadThreads {
 public:
  // `cycle` parts are open at a time, `block` elements are taken of each in
  // turn. The input was opened with `opening`.
  PartsAhead(StreamPtr<Example> input, PartOpener open, int64_t cycle,
             int64_t block, MapThreads threads, const Opening& opening);
  ~PartsAhead() override;
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Part* part) override;
  void Save(std::span<const Place* const> open, Mark* mark) const override;
  Result<std::vector<Part>> Restore(MarkReader* mark) override;

 private:
  class PartStream;

  // The fields after `number` up to `stream` belong to the thread that has the
  // part in hand, or to the caller's while no thread runs; the rest is under
  // the lock.
  struct AheadPart {
    int64_t number = 0;         // of the input's element
    Mark before, after;         // of the input
    Example element;            // of the input, until it is opened
    StreamPtr<Example> stream;  // null before

    struct Ready {
      Example example;
      Mark end;         // where `stream` is behind it
      size_t held = 0;  // of bytes_
    };
    std::deque<Ready> ready;
    size_t held = 0;          // of bytes_, for the next one
    size_t element_held = 0;  // of input_bytes_
    Mark at;                  // where its reader is in it
    bool queued = false;
    bool in_hand = false;
    bool ended = false;
    Status error;  // behind what is ready
  };
  using AheadPartPtr = std::shared_ptr<AheadPart>;

  // More is read of a part when half of what it may have is taken.
  static constexpr int64_t kLeastAhead = 8;

  Status Start();
  Work TakeWork() override REQUIRES(mutex_);
  void ReadInput(size_t held);
  void ReadPart(const AheadPartPtr& part);
  Status OpenPart(AheadPart* part, Mark* begin);
  bool MayGoOn(AheadPart* part) REQUIRES(mutex_);
  void Queue(const AheadPartPtr& part) REQUIRES(mutex_);
  // Queues the part once half of what it may have ahead was taken.
  void QueueIfFew(const AheadPartPtr& part) REQUIRES(mutex_);
  Work ReadOf(const AheadPartPtr& part) REQUIRES(mutex_);
  bool MayHold(AheadPart* part) REQUIRES(mutex_);
  StreamPtr<Example> StreamOf(AheadPartPtr part);

  // For PartStream.
  Result<bool> Take(const AheadPartPtr& part, Example* example);
  void Drop(AheadPart* part);
  void SavePart(const AheadPart& part, Mark* mark) const;

  // Used by the thread that reads, while reading_ is set, else by the caller's.
  StreamPtr<Example> input_;
  int64_t next_ = 0;  // number of its next element
  Mark input_at_;     // where it is, while threads are running

  const PartOpener open_;
  const size_t cycle_;
  const size_t most_ahead_;  // elements of a part
  const bool marks_;
  uint64_t epoch_ = 0;
  int64_t taken_ = 0;  // parts
  Mark mark_;          // of the input behind them, while threads are running

  std::deque<AheadPartPtr> upcoming_ GUARDED_BY(mutex_);
  // Parts of which something is to be read; those that are not `queued` any
  // more were read, or were dropped.
  std::deque<AheadPartPtr> queue_ GUARDED_BY(mutex_);
  AheadPartPtr awaited_ GUARDED_BY(mutex_);  // before all others
  size_t parts_ GUARDED_BY(mutex_) = 0;      // that are open or upcoming
  bool next_awaited_ GUARDED_BY(mutex_) = false;
  AheadBytes input_bytes_ GUARDED_BY(mutex_);   // of elements opened or to be
  bool lacks_room_ GUARDED_BY(mutex_) = false;  // work waits for memory
  bool reading_ GUARDED_BY(mutex_) = false;
  bool input_ended_ GUARDED_BY(mutex_) = false;
  Status error_ GUARDED_BY(mutex_);  // of the input, behind upcoming_
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_PARTS_AHEAD_H_
