// Maps over streams of examples, on the caller's thread or on several. Internal
// to io.
#ifndef SLUICE_IO_PIPELINE_MAP_STREAM_H_
#define SLUICE_IO_PIPELINE_MAP_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "engine/thread_annotations.h"
#include "io/pipeline/ahead_threads.h"
#include "io/pipeline/bad_examples.h"
#include "io/pipeline/dataset_node.h"
#include "io/pipeline/example_stream.h"
#include "io/pipeline/map_threads.h"

namespace sluice {

// The key is a function of the seed, the epoch and the place in it.
using KeyedMap = std::function<void(Example&, uint64_t key)>;

// The result of a map for one element of its input.
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

// The attempts of a map in the input's order, made ahead on several threads,
// which one by one take an element from the input. Elements that are not
// `needed` are passed over in the input, which was opened with `opening`, and
// can only be skipped.
class ParallelAttempts : public Stream<Attempt>, private AheadThreads {
 public:
  ParallelAttempts(StreamPtr<Example> input, KeyedMap fn, uint64_t seed,
                   MapThreads threads, const Opening& opening)
      : AheadThreads(std::move(threads), opening),
        input_(std::move(input)),
        fn_(std::move(fn)),
        seed_(seed),
        needed_(opening.needed),
        marks_(opening.marks) {}
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
    bool skipped = false;  // maybe while it is mapped
    Mark end;              // where this stream is behind it
    size_t held = 0;       // of bytes_
  };
  using PiecePtr = std::shared_ptr<Piece>;

  Status Start();
  Work TakeWork() override REQUIRES(mutex_);
  void ReadAndMap(size_t held);
  PiecePtr Read(size_t held, int64_t* since_ns);
  Status ReadPiece(Piece* piece, bool* more);
  void SaveInput(Mark* mark) const;

  // Used by the thread that reads, while reading_ is set, else by the caller's.
  StreamPtr<Example> input_;
  uint64_t place_ = 0;  // of its next element
  uint64_t first_ = 0;  // place of the first one of a batch

  const KeyedMap fn_;
  const uint64_t seed_;
  const BatchRows needed_;
  const bool marks_;
  uint64_t epoch_ = 0;
  Mark mark_;  // where this stream is, while threads are running

  std::deque<PiecePtr> ahead_ GUARDED_BY(mutex_);
  bool reading_ GUARDED_BY(mutex_) = false;
  Status error_ GUARDED_BY(mutex_);  // of the input, behind ahead_
};

// The elements of the attempts that succeeded. `bad`, unless null, gets those
// that the map cannot read, of which up to `most_in_a_row` may follow each
// other.
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
