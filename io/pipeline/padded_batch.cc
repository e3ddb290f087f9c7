#include "io/pipeline/padded_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace sluice {
namespace {

// The sizes that hold every example's tensor of a name.
Result<Shape> CommonShape(std::span<const Example> examples,
                          const std::string& name) {
  const Tensor& first = examples[0][name];
  Shape common = first.shape();
  for (size_t i = 0; i < examples.size(); ++i) {
    if (examples[i].size() != examples[0].size() ||
        !examples[i].contains(name)) {
      return InvalidArgument(fmt::format(
          "PaddedBatch: example {} has other tensors than example 0", i));
    }
    const Tensor& tensor = examples[i][name];
    if (tensor.dtype() != first.dtype() ||
        tensor.shape().rank() != first.shape().rank()) {
      return InvalidArgument(fmt::format(
          "PaddedBatch: '{}' differs within the batch in more than sizes: {}{} "
          "in example 0, {}{} in example {}",
          name, NameOf(first.dtype()), first.shape().ToString(),
          NameOf(tensor.dtype()), tensor.shape().ToString(), i));
    }
    for (int d = 0; d < common.rank(); ++d) {
      common.set(d, std::max(common[d], tensor.shape()[d]));
    }
  }
  return common;
}

// Copies an array of shape `from_shape` to the begin of each dimension of one
// of `to_shape`.
void CopyTo(const char* from, const Shape& from_shape, char* to,
            const Shape& to_shape, size_t element_bytes) {
  const int rank = from_shape.rank();
  if (from_shape.elements() == 0) return;
  const size_t row =
      rank == 0 ? element_bytes
                : element_bytes * static_cast<size_t>(from_shape[rank - 1]);
  std::vector<int64_t> at(static_cast<size_t>(std::max(rank - 1, 0)));
  for (;;) {
    int64_t offset = 0;
    for (int d = 0; d < rank; ++d) {
      offset = offset * to_shape[d] + (d < rank - 1 ? at[d] : 0);
    }
    std::memcpy(to + static_cast<size_t>(offset) * element_bytes, from, row);
    from += row;
    int d = rank - 2;
    while (d >= 0 && ++at[d] == from_shape[d]) at[d--] = 0;
    if (d < 0) return;
  }
}

Number PaddingOf(const std::string& name, const PaddingOptions& padding) {
  const auto found = padding.values.find(name);
  return found == padding.values.end() ? Number(0) : found->second;
}

}  // namespace

Result<Example> StackPadded(std::span<const Example> examples,
                            const PaddingOptions& padding) {
  SLUICE_CHECK(!examples.empty());
  for (const auto& [name, value] : padding.values) {
    if (examples[0].contains(name)) continue;
    return InvalidArgument(fmt::format(
        "PaddedBatch: there is a padding for '{}', but no such tensor", name));
  }
  Example batch;
  for (const auto& [name, first] : examples[0]) {
    SLUICE_ASSIGN_OR_RETURN(const Shape common, CommonShape(examples, name));
    if (common.rank() == Shape::kMaxRank) {
      return InvalidArgument(
          fmt::format("PaddedBatch: '{}' of shape {} has no room for another "
                      "dimension",
                      name, common.ToString()));
    }
    const DType dtype = first.dtype();
    const Number value = PaddingOf(name, padding);
    SLUICE_RETURN_IF_ERROR(CheckHolds(dtype, value)
                               .WithContext(fmt::format(
                                   "PaddedBatch: the padding of '{}'", name)));
    Shape shape{static_cast<int64_t>(examples.size())};
    for (const int64_t size : common) shape.push_back(size);
    Tensor stacked;
    SLUICE_RETURN_IF_ERROR(
        CatchErrors([&] { stacked = Tensor::Full(dtype, shape, value); }));
    const size_t bytes = stacked.bytes() / examples.size();
    auto* to = static_cast<char*>(stacked.raw());
    for (const Example& example : examples) {
      const Tensor& tensor = example[name];
      CopyTo(static_cast<const char*>(tensor.raw()), tensor.shape(), to, common,
             SizeOf(tensor.dtype()));
      to += bytes;
    }
    batch.Set(name, std::move(stacked));
  }
  return batch;
}

BucketStream::BucketStream(StreamPtr<Example> input, Buckets buckets,
                           PaddingOptions padding, const Opening& opening)
    : input_(std::move(input)),
      how_(std::move(buckets)),
      padding_(std::move(padding)),
      marks_(opening.marks),
      rank_(opening.rank),
      workers_(opening.size) {
  for (const int64_t size : how_.sizes) {
    buckets_.push_back(
        {.size = std::min(size, opening.batch_limit), .held = {}});
  }
}

Status BucketStream::StartEpoch(uint64_t epoch) {
  for (Bucket& bucket : buckets_) bucket.held.clear();
  next_ = 0;
  return input_->StartEpoch(epoch);
}

Result<BucketStream::Bucket*> BucketStream::BucketOf(const Example& example) {
  if (buckets_.size() == 1) return buckets_.data();
  int64_t length = 0;
  SLUICE_RETURN_IF_ERROR(CatchErrors([&] { length = how_.length(example); }));
  const auto& boundaries = how_.boundaries;
  return &buckets_[static_cast<size_t>(
      std::upper_bound(boundaries.begin(), boundaries.end(), length) -
      boundaries.begin())];
}

// The next batch to be made; null where there is nothing left.
Result<BucketStream::Bucket*> BucketStream::FullBucket() {
  for (;;) {
    Held held;
    held.place.number = next_;
    if (marks_) input_->Save(&held.place.before);
    SLUICE_ASSIGN_OR_RETURN(const bool more, input_->Next(&held.example));
    if (!more) break;
    ++next_;
    SLUICE_ASSIGN_OR_RETURN(Bucket* const bucket, BucketOf(held.example));
    bucket->held.push_back(std::move(held));
    if (static_cast<int64_t>(bucket->held.size()) == bucket->size) {
      return bucket;
    }
  }
  for (Bucket& bucket : buckets_) {
    // What is dropped is behind the position, which may be of a smaller batch.
    if (padding_.drop_remainder) bucket.held.clear();
    if (!bucket.held.empty()) return &bucket;
  }
  return nullptr;
}

Result<bool> BucketStream::Next(Example* batch) {
  SLUICE_ASSIGN_OR_RETURN(Bucket* const bucket, FullBucket());
  if (bucket == nullptr) return false;
  std::vector<Example> examples;
  for (Held& held : bucket->held) examples.push_back(std::move(held.example));
  bucket->held.clear();
  // All of it, whatever this worker's part is, since all are as wide.
  SLUICE_ASSIGN_OR_RETURN(const Example whole, StackPadded(examples, padding_));
  if (workers_ == 1) {
    *batch = whole;
    return true;
  }
  *batch = {};
  const auto count = static_cast<int64_t>(examples.size());
  const BatchRows rows = RowsOfShare(count, {.rank = rank_, .size = workers_});
  if (rows.begin < rows.end) {
    SLUICE_RETURN_IF_ERROR(CatchErrors([&] {
      for (const auto& [name, tensor] : whole) {
        batch->Set(name, tensor.Rows(rows.begin, rows.end));
      }
    }));
  }
  batch->set_whole_rows(count);
  return true;
}

Result<int64_t> BucketStream::Skip(int64_t n) {
  if (buckets_.size() == 1) {
    const int64_t size = buckets_[0].size;
    SLUICE_ASSIGN_OR_RETURN(const int64_t passed, input_->Skip(Times(n, size)));
    next_ += passed;
    return BatchesOf(passed, size, padding_.drop_remainder);
  }
  for (int64_t i = 0; i < n; ++i) {
    SLUICE_ASSIGN_OR_RETURN(Bucket* const bucket, FullBucket());
    if (bucket == nullptr) return i;
    bucket->held.clear();
  }
  return n;
}

void BucketStream::Save(Mark* mark) const {
  std::vector<const Place*> places;
  for (const Bucket& bucket : buckets_) {
    for (const Held& held : bucket.held) places.push_back(&held.place);
  }
  std::sort(places.begin(), places.end(), [](const Place* a, const Place* b) {
    return a->number < b->number;
  });
  SavePlaces(
      places, next_, [&](Mark* at) { input_->Save(at); }, mark);
}

Status BucketStream::Restore(MarkReader* mark) {
  return Revisit(
      mark, input_.get(),
      [&](Place place, Example example) -> Status {
        SLUICE_ASSIGN_OR_RETURN(Bucket* const bucket, BucketOf(example));
        if (static_cast<int64_t>(bucket->held.size()) + 1 >= bucket->size) {
          return InvalidArgument("the position is of larger batches");
        }
        bucket->held.push_back({std::move(place), std::move(example)});
        return {};
      },
      &next_);
}

}  // namespace sluice
