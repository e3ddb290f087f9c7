#include "io/pipeline/example_stream.h"

#include <fmt/format.h>

#include <cstring>

#include "io/pipeline/dataset_node.h"

namespace sluice {
namespace {

// Batches of a stream that has no faster way.
class OneByOne : public Batcher {
 public:
  explicit OneByOne(Stream<Example>* input) : input_(input) {}

  Result<int64_t> NextBatch(int64_t n, Example* batch) override {
    examples_.clear();
    Example example;
    while (static_cast<int64_t>(examples_.size()) < n) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, input_->Next(&example));
      if (!more) break;
      examples_.push_back(std::move(example));
    }
    if (examples_.empty()) return 0;
    SLUICE_ASSIGN_OR_RETURN(*batch, Stack(examples_));
    return static_cast<int64_t>(examples_.size());
  }

 private:
  Stream<Example>* input_;
  std::vector<Example> examples_;
};

// The stream's own way to batch, else `*one_by_one`, which is then made.
Batcher* BatcherOf(Stream<Example>* input,
                   std::unique_ptr<Batcher>* one_by_one) {
  if (auto* own = dynamic_cast<Batcher*>(input)) return own;
  *one_by_one = std::make_unique<OneByOne>(input);
  return one_by_one->get();
}

}  // namespace

Rows::Rows(Example columns) : columns_(std::move(columns)) {
  if (columns_.empty()) {
    throw Error(Code::kInvalidArgument, "a dataset needs at least one tensor");
  }
  const auto& [first_name, first] = *columns_.begin();
  for (const auto& [name, column] : columns_) {
    if (column.shape().scalar()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("'{}' is a scalar; a dataset needs tensors whose "
                              "first dimension counts the examples",
                              name));
    }
    if (column.shape()[0] != first.shape()[0]) {
      throw Error(
          Code::kInvalidArgument,
          fmt::format("'{}' has {} examples, '{}' has {}; they must agree",
                      first_name, first.shape()[0], name, column.shape()[0]));
    }
  }
  size_ = first.shape()[0];
}

void Rows::Gather(std::span<const int64_t> rows, Example* batch) const {
  Example gathered;
  for (const auto& [name, column] : columns_) {
    Shape shape = column.shape();
    shape.set(0, static_cast<int64_t>(rows.size()));
    Tensor out(column.dtype(), shape);
    const size_t width = rows.empty() ? 0 : out.bytes() / rows.size();
    const char* from = static_cast<const char*>(column.raw());
    char* to = static_cast<char*>(out.raw());
    for (int64_t row : rows) {
      if (width > 0) std::memcpy(to, from + row * width, width);
      to += width;
    }
    gathered.Set(name, std::move(out));
  }
  *batch = std::move(gathered);
}

void Rows::Row(int64_t row, Example* example) const {
  Gather({&row, 1}, example);
  for (auto& [name, tensor] : *example) {
    tensor = tensor.Reshaped(tensor.shape().Slice(1, tensor.shape().rank()));
  }
}

Status RowStream::StartEpoch(uint64_t epoch) {
  return order_->StartEpoch(epoch);
}

Result<bool> RowStream::Next(Example* example) {
  int64_t row;
  SLUICE_ASSIGN_OR_RETURN(const bool more, order_->Next(&row));
  if (more) {
    SLUICE_RETURN_IF_ERROR(CatchErrors([&] { rows_->Row(row, example); }));
  }
  return more;
}

Result<int64_t> RowStream::NextBatch(int64_t n, Example* batch) {
  numbers_.clear();
  int64_t row;
  while (static_cast<int64_t>(numbers_.size()) < n) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, order_->Next(&row));
    if (!more) break;
    numbers_.push_back(row);
  }
  if (!numbers_.empty()) {
    SLUICE_RETURN_IF_ERROR(
        CatchErrors([&] { rows_->Gather(numbers_, batch); }));
  }
  return static_cast<int64_t>(numbers_.size());
}

RowwiseMapStream::RowwiseMapStream(StreamPtr<Example> input, RowwiseMap map)
    : input_(std::move(input)),
      batcher_(BatcherOf(input_.get(), &one_by_one_)),
      map_(std::move(map)) {}

Status RowwiseMapStream::StartEpoch(uint64_t epoch) {
  return input_->StartEpoch(epoch);
}

Result<bool> RowwiseMapStream::Next(Example* example) {
  SLUICE_ASSIGN_OR_RETURN(const bool more, input_->Next(example));
  if (!more) return false;
  SLUICE_RETURN_IF_ERROR(ApplyMap(example, [&] { map_.apply(*example); }));
  return true;
}

Result<int64_t> RowwiseMapStream::NextBatch(int64_t n, Example* batch) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, batcher_->NextBatch(n, batch));
  if (count == 0) return 0;
  SLUICE_RETURN_IF_ERROR(ApplyMap(batch, [&] { map_.apply(*batch); }));
  return count;
}

BatchStream::BatchStream(StreamPtr<Example> input, BatchRows rows,
                         bool drop_remainder)
    : input_(std::move(input)),
      batcher_(BatcherOf(input_.get(), &one_by_one_)),
      rows_(rows),
      drop_remainder_(drop_remainder) {}

Status BatchStream::StartEpoch(uint64_t epoch) {
  return input_->StartEpoch(epoch);
}

Result<bool> BatchStream::Next(Example* batch) {
  // The other workers' rows are passed over, to know how many there are.
  SLUICE_ASSIGN_OR_RETURN(int64_t whole, input_->Skip(rows_.begin));
  int64_t own = 0;
  if (whole == rows_.begin) {
    SLUICE_ASSIGN_OR_RETURN(
        own, batcher_->NextBatch(rows_.end - rows_.begin, batch));
    whole += own;
  }
  if (whole == rows_.end) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t after,
                            input_->Skip(rows_.n - rows_.end));
    whole += after;
  }
  if (drop_remainder_ ? whole < rows_.n : whole == 0) return false;
  if (own == 0) *batch = {};
  if (!rows_.all()) batch->set_whole_rows(whole);
  return true;
}

Result<int64_t> BatchStream::Skip(int64_t n) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t passed,
                          input_->Skip(Times(n, rows_.n)));
  return BatchesOf(passed, rows_.n, drop_remainder_);
}

}  // namespace sluice
