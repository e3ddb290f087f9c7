// Streams of examples: rows of tensors, maps, batches. Internal to io.
#ifndef SLUICE_IO_EXAMPLE_STREAM_H_
#define SLUICE_IO_EXAMPLE_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "io/bad_examples.h"
#include "io/example.h"
#include "io/stream.h"

namespace sluice {

// What a stream of examples has when it makes several at once faster than one
// by one.
class Batcher {
 public:
  virtual ~Batcher() = default;
  // Up to n examples, stacked; returns how many, 0 at the end.
  virtual Result<int64_t> NextBatch(int64_t n, Example* batch) = 0;
};

// A share of no examples (Dataset::Share) comes without tensors, so that maps
// behind Batch need not work on nothing; the iterator adds the tensors.
inline bool IsEmptyShare(const Example& example) {
  return example.whole_rows() > 0 && example.empty();
}

// Runs fn, which is the user's or allocates tensors, and turns what it throws
// into a Status.
Status CatchErrors(const std::function<void()>& fn);

// Columns that have their first dimension in common. Immutable, thread-safe.
class Rows {
 public:
  // Throws Error(kInvalidArgument) for columns of different length.
  explicit Rows(Example columns);
  int64_t size() const { return size_; }
  // Copies rows into new tensors: stacked, or a single one without the leading
  // dimension.
  void Gather(std::span<const int64_t> rows, Example* batch) const;
  void Row(int64_t row, Example* example) const;

 private:
  Example columns_;
  int64_t size_ = 0;
};

class RowStream : public Stream<Example>, public Batcher {
 public:
  RowStream(std::shared_ptr<const Rows> rows, StreamPtr<int64_t> order)
      : rows_(std::move(rows)), order_(std::move(order)) {}
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* example) override;
  Result<int64_t> Skip(int64_t n) override { return order_->Skip(n); }
  Result<int64_t> NextBatch(int64_t n, Example* batch) override;

 private:
  std::shared_ptr<const Rows> rows_;
  StreamPtr<int64_t> order_;
  std::vector<int64_t> numbers_;  // of one batch
};

// The key is a function of the seed, the epoch and the place in it.
using KeyedMap = std::function<void(Example&, uint64_t key)>;

class MapStream : public Stream<Example> {
 public:
  // `bad`, unless null, has the examples that fn cannot read, of which up to
  // `most_in_a_row` may follow each other.
  MapStream(StreamPtr<Example> input, KeyedMap fn, uint64_t seed,
            std::shared_ptr<BadExamples> bad, int64_t most_in_a_row)
      : input_(std::move(input)),
        fn_(std::move(fn)),
        seed_(seed),
        bad_(std::move(bad)),
        most_in_a_row_(most_in_a_row) {}
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* example) override;
  Result<int64_t> Skip(int64_t n) override;
  Status PassOver(int64_t n) override;

 private:
  StreamPtr<Example> input_;
  const KeyedMap fn_;
  const uint64_t seed_;
  const std::shared_ptr<BadExamples> bad_;
  const int64_t most_in_a_row_;
  uint64_t epoch_ = 0;
  uint64_t place_ = 0;
};

class RowwiseMapStream : public Stream<Example>, public Batcher {
 public:
  RowwiseMapStream(StreamPtr<Example> input, RowwiseMap map);
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* example) override;
  Result<int64_t> Skip(int64_t n) override { return input_->Skip(n); }
  Status PassOver(int64_t n) override { return input_->PassOver(n); }
  Result<int64_t> NextBatch(int64_t n, Example* batch) override;

 private:
  StreamPtr<Example> input_;
  std::unique_ptr<Batcher> one_by_one_;
  Batcher* batcher_;
  const RowwiseMap map_;
};

// Which rows [begin, end) of its batches a stream yields.
struct BatchRows {
  int64_t n;  // of a whole batch
  int64_t begin;
  int64_t end;

  bool all() const { return end - begin == n; }
};

class BatchStream : public Stream<Example> {
 public:
  BatchStream(StreamPtr<Example> input, BatchRows rows, bool drop_remainder);
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* batch) override;
  Result<int64_t> Skip(int64_t n) override;
  Status PassOver(int64_t n) override { return input_->PassOver(n); }

 private:
  StreamPtr<Example> input_;
  std::unique_ptr<Batcher> one_by_one_;
  Batcher* batcher_;
  const BatchRows rows_;
  const bool drop_remainder_;
};

}  // namespace sluice

#endif  // SLUICE_IO_EXAMPLE_STREAM_H_
