// Maps over streams of examples, on the caller's thread or on several. Internal
// to io.
#ifndef SLUICE_IO_PIPELINE_MAP_STREAM_H_
#define SLUICE_IO_PIPELINE_MAP_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "engine/thread_annotations.h"
#include "io/pipeline/bad_examples.h"
#include "io/pipeline/dataset_node.h"
#include "io/pipeline/example_stream.h"
#include "io/pipeline/map_threads.h"
#include "io/pipeline/stage.h"

namespace sluice {

// The key is a function of the seed, the epoch and the place in it.
using KeyedMap = std::function<void(Example&, uint64_t key)>;

// What a map made of one element of its input.
struct Attempt {
  Example example;
  uint64_t place = 0;  // in the epoch
  Status status;       // of the map
};

// Maps element by element as they are asked for.
class SerialAttempts : public Stream<Attempt> {
 public:
  SerialAttempts(StreamPtr<Example> input, KeyedMap fn, uint64_t seed)
      : input_(std::move(input)), fn_(std::move(fn)), seed_(seed) {}
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Attempt* attempt) override;
  Result<int64_t> Skip(int64_t n) override;
  Status PassOver(int64_t n) override { return input_->PassOver(n); }
  void Save(Mark* mark) const override;
  Status Restore(MarkReader* mark) override;

 private:
  StreamPtr<Example> input_;
  const KeyedMap fn_;
  const uint64_t seed_;
  uint64_t epoch_ = 0;
  uint64_t place_ = 0;
};

// The same in the same order, mapped ahead on several threads, which one by one
// take an element from the input. They start with the first Next, or when
// `threads` says that more are wanted, and end when the stream is moved, ends
// or is destroyed. Elements that are not `needed` are passed over in the input,
// which was opened with `opening`, and can only be skipped.
class ParallelAttempts : public Stream<Attempt> {
 public:
  ParallelAttempts(StreamPtr<Example> input, KeyedMap fn, uint64_t seed,
                   MapThreads threads, const Opening& opening)
      : input_(std::move(input)),
        fn_(std::move(fn)),
        seed_(seed),
        threads_(std::move(threads)),
        needed_(opening.needed),
        marks_(opening.marks),
        stop_input_(opening.stop),
        stage_(opening.stage),
        wanted_(threads_.begin) {}
  ~ParallelAttempts() override;
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Attempt* attempt) override;
  Result<int64_t> Skip(int64_t n) override;
  Status PassOver(int64_t n) override;
  void Save(Mark* mark) const override;
  Status Restore(MarkReader* mark) override;

 private:
  // A piece of the input, in its order: elements that are not needed, or one
  // that is being or has been mapped.
  struct Piece {
    int64_t passed = 0;  // 0: one to be mapped
    Attempt attempt;
    bool mapped = false;
    Mark end;  // where this stream is behind it
  };
  using PiecePtr = std::shared_ptr<Piece>;

  // Windows double from the first size, so that the first batches come soon, to
  // a number of whole batches: between two of them the reader may pause.
  static constexpr int64_t kFirstWindow = 8;
  static constexpr int64_t kLeastWindow = 64;

  Status Start();
  void AddThreads();
  void Run(int number);
  bool MayRead() const REQUIRES(mutex_);
  // Until `ready()`; measures it for the window.
  template <typename Ready>
  void WaitUntil(const Ready& ready) REQUIRES(mutex_);
  void Adapt();
  Status ReadPiece(Piece* piece, bool* more);
  void Stop();
  void SaveInput(Mark* mark) const;

  // Of the thread that reads, while reading_ is set, else of the caller's.
  StreamPtr<Example> input_;
  uint64_t place_ = 0;  // of its next element
  uint64_t first_ = 0;  // place of the first one of a batch

  const KeyedMap fn_;
  const uint64_t seed_;
  const MapThreads threads_;
  const BatchRows needed_;
  const bool marks_;
  const StopFlagPtr stop_input_;
  Stage* const stage_;
  uint64_t epoch_ = 0;
  std::vector<std::thread> running_;
  Mark mark_;  // where this stream is, while threads are running
  // Of the window under way, where threads are adapted.
  int64_t window_size_ = kFirstWindow;
  int64_t window_begin_ns_ = 0;

  Mutex mutex_;
  CondVar changed_;
  CondVar more_wanted_;  // for the threads that are not now
  // Threads whose number is below take elements.
  int wanted_ GUARDED_BY(mutex_);
  MapWindow window_ GUARDED_BY(mutex_);
  std::deque<PiecePtr> ahead_ GUARDED_BY(mutex_);
  bool reading_ GUARDED_BY(mutex_) = false;
  bool ended_ GUARDED_BY(mutex_) = false;  // nothing will be added to ahead_
  Status error_ GUARDED_BY(mutex_);        // of the input, behind ahead_
  bool stop_ GUARDED_BY(mutex_) = false;
};

// What the attempts succeeded in. `bad`, unless null, has those that the map
// cannot read, of which up to `most_in_a_row` may follow each other.
class MapStream : public Stream<Example> {
 public:
  MapStream(StreamPtr<Attempt> attempts, std::shared_ptr<BadExamples> bad,
            int64_t most_in_a_row)
      : attempts_(std::move(attempts)),
        bad_(std::move(bad)),
        most_in_a_row_(most_in_a_row) {}
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* example) override;
  Result<int64_t> Skip(int64_t n) override { return attempts_->Skip(n); }
  Status PassOver(int64_t n) override;
  void Save(Mark* mark) const override { attempts_->Save(mark); }
  Status Restore(MarkReader* mark) override { return attempts_->Restore(mark); }

 private:
  StreamPtr<Attempt> attempts_;
  const std::shared_ptr<BadExamples> bad_;
  const int64_t most_in_a_row_;
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_MAP_STREAM_H_
