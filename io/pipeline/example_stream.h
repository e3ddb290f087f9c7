// Streams of examples: rows of tensors, maps, batches. Internal to io.
#ifndef SLUICE_IO_PIPELINE_EXAMPLE_STREAM_H_
#define SLUICE_IO_PIPELINE_EXAMPLE_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/catch_errors.h"
#include "io/example.h"
#include "io/pipeline/stream.h"

namespace sluice {

// Implemented by a stream of examples that makes several at once faster than
// one by one.
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

// Runs a map, `fn`, on the example. Whatever it puts there stands for the same
// examples: what was passed over and the size of the whole batch stay. Not run
// on a share of no examples.
template <typename Fn>
Status ApplyMap(Example* example, const Fn& fn) {
  if (IsEmptyShare(*example)) return {};
  const int64_t passed_over = example->passed_over();
  const int64_t whole_rows = example->whole_rows();
  Status status = CatchErrors(fn);
  example->set_passed_over(passed_over);
  example->set_whole_rows(whole_rows);
  return status;
}

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
  void Save(Mark* mark) const override { order_->Save(mark); }
  Status Restore(MarkReader* mark) override { return order_->Restore(mark); }
  Result<int64_t> NextBatch(int64_t n, Example* batch) override;

 private:
  std::shared_ptr<const Rows> rows_;
  StreamPtr<int64_t> order_;
  std::vector<int64_t> numbers_;  // of one batch
};

class RowwiseMapStream : public Stream<Example>, public Batcher {
 public:
  RowwiseMapStream(StreamPtr<Example> input, RowwiseMap map);
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* example) override;
  Result<int64_t> Skip(int64_t n) override { return input_->Skip(n); }
  Status PassOver(int64_t n) override { return input_->PassOver(n); }
  void Save(Mark* mark) const override { input_->Save(mark); }
  Status Restore(MarkReader* mark) override { return input_->Restore(mark); }
  Result<int64_t> NextBatch(int64_t n, Example* batch) override;

 private:
  StreamPtr<Example> input_;
  std::unique_ptr<Batcher> one_by_one_;
  Batcher* batcher_;
  const RowwiseMap map_;
};

// Which elements are meant: of every n in turn, those from `begin` to before
// `end`.
struct BatchRows {
  int64_t n = 1;
  int64_t begin = 0;
  int64_t end = 1;

  bool all() const { return end - begin == n; }
};

class BatchStream : public Stream<Example> {
 public:
  BatchStream(StreamPtr<Example> input, BatchRows rows, bool drop_remainder);
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* batch) override;
  Result<int64_t> Skip(int64_t n) override;
  Status PassOver(int64_t n) override { return input_->PassOver(n); }
  void Save(Mark* mark) const override { input_->Save(mark); }
  Status Restore(MarkReader* mark) override { return input_->Restore(mark); }

 private:
  StreamPtr<Example> input_;
  std::unique_ptr<Batcher> one_by_one_;
  Batcher* batcher_;
  const BatchRows rows_;
  const bool drop_remainder_;
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_EXAMPLE_STREAM_H_
