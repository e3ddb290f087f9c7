// Walks a dataset: counts what is consumed, and its position as text.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "io/pipeline/dataset.h"
#include "io/pipeline/dataset_node.h"
#include "io/pipeline/mark.h"

namespace sluice {
namespace {

constexpr char kEpoch[] = "epoch";
constexpr char kPassedOver[] = "passed_over";
constexpr char kMark[] = "at";
constexpr char kBatch[] = "batch_size";

// What SavePosition writes.
struct Position {
  std::string pipeline;
  int64_t epoch = 0;
  int64_t examples = 0;     // in the elements consumed, full ones counted
  int64_t passed_over = 0;  // bad ones before and within these
  Mark mark;                // where counting would not do
  int64_t batch_size = 0;   // of the elements; 0: it was not told
};

Result<Position> ReadPosition(const std::string& text) {
  const auto read = [&]() -> Result<Position> {
    SLUICE_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::Parse(text));
    Position position;
    SLUICE_ASSIGN_OR_RETURN(position.pipeline, json.String("pipeline"));
    SLUICE_ASSIGN_OR_RETURN(position.examples, json.Int("examples"));
    if (json.Has(kEpoch)) {
      SLUICE_ASSIGN_OR_RETURN(position.epoch, json.Int(kEpoch));
    }
    if (json.Has(kPassedOver)) {
      SLUICE_ASSIGN_OR_RETURN(position.passed_over, json.Int(kPassedOver));
    }
    if (json.Has(kBatch)) {
      SLUICE_ASSIGN_OR_RETURN(position.batch_size, json.Int(kBatch));
    }
    if (json.Has(kMark)) {
      SLUICE_ASSIGN_OR_RETURN(position.mark, json.Ints(kMark));
    }
    if (position.examples < 0 || position.passed_over < 0 ||
        position.epoch < 0 || position.batch_size < 0) {
      return InvalidArgument("a number of examples is negative");
    }
    return position;
  };
  Result<Position> position = read();
  SLUICE_RETURN_IF_ERROR(position.status().WithContext(
      fmt::format("'{}' is not the position of a dataset", text)));
  return position;
}

// The elements before it. Its last one may have had less than it counts, and
// is then the dataset's last: these end within it.
int64_t ElementsBefore(const Position& position, const DatasetNode& node) {
  const int64_t size = node.examples_per_element();
  const int64_t elements = position.examples / size;
  const int64_t all = node.cardinality();
  const bool ends_within =
      all >= 0 && all < elements &&
      Times(all, size) > position.examples - position.batch_size;
  return ends_within ? all : elements;
}

// One part of one is the whole, which positions did not always know.
std::string WithoutWholeShards(std::string pipeline) {
  constexpr std::string_view kWhole = " shard(0/1)";
  for (size_t at; (at = pipeline.find(kWhole)) != std::string::npos;) {
    pipeline.erase(at, kWhole.size());
  }
  return pipeline;
}

// Tensors of the same names, dtypes and further dimensions.
Example WithoutRows(const Example& batch) {
  Example out;
  for (const auto& [name, tensor] : batch) {
    Shape shape = tensor.shape();
    if (!shape.scalar()) shape.set(0, 0);
    out.Set(name, shape.scalar() ? tensor : Tensor(tensor.dtype(), shape));
  }
  return out;
}

}  // namespace

size_t Dataset::DefaultAheadBytes() {
  return sluice::DefaultAheadBytes();
}

Iterator Dataset::MakeIterator(std::shared_ptr<StageTimes> times,
                               size_t ahead_bytes) const {
  return std::move(MakeIterators({*this}, std::move(times), ahead_bytes)[0]);
}

std::vector<Iterator> Dataset::MakeIterators(
    const std::vector<Dataset>& datasets, std::shared_ptr<StageTimes> times,
    size_t ahead_bytes) {
  const auto ahead = std::make_shared<AheadBudget>(ahead_bytes);
  std::vector<Iterator> iterators;
  for (const Dataset& dataset : datasets) {
    iterators.push_back(Iterator(dataset.node_, INT64_MAX,
                                 std::exchange(times, nullptr), ahead));
  }
  return iterators;
}

Iterator::Iterator(std::shared_ptr<const DatasetNode> node, int64_t batch_limit,
                   std::shared_ptr<StageTimes> times,
                   std::shared_ptr<AheadBudget> ahead)
    : node_(std::move(node)),
      stream_(node_->Open({.batch_limit = batch_limit,
                           .marks = !node_->counted(),
                           .ahead = std::move(ahead),
                           .times = std::move(times)})) {
  ThrowIfError(stream_->StartEpoch(0));
}

Iterator::Iterator(Iterator&&) noexcept = default;
Iterator& Iterator::operator=(Iterator&&) noexcept = default;
Iterator::~Iterator() = default;

Result<bool> Iterator::Next(Example* element) {
  SLUICE_RETURN_IF_ERROR(error_);
  Result<bool> more = false;
  error_ = CatchErrors([&] {
    if (!node_->counted()) {
      mark_.clear();
      stream_->Save(&mark_);
    }
    more = stream_->Next(element);
  });
  if (error_.ok()) error_ = more.status();
  if (error_.ok() && *more && IsEmptyShare(*element)) {
    error_ = CatchErrors([&] { AddTensors(element); });
  }
  SLUICE_RETURN_IF_ERROR(error_);
  if (!*more) return false;
  ++consumed_;
  passed_over_ += element->passed_over();
  return true;
}

Status Iterator::NextEpoch() {
  SLUICE_RETURN_IF_ERROR(error_);
  if (consumed_ == 0) {
    return DataLoss(fmt::format("the dataset is empty in epoch {}", epoch_));
  }
  const uint64_t epoch = epoch_;
  const int64_t consumed = consumed_, passed_over = passed_over_;
  Mark end;
  SLUICE_RETURN_IF_ERROR(CatchErrors([&] {
    if (!node_->counted()) stream_->Save(&end);
  }));
  const Status begun = GoToBegin(epoch + 1);
  if (!begun.ok()) {
    // A stream that has not begun has no place. Whoever is restored at the end
    // of this epoch begins the next one once more.
    mark_ = std::move(end);
    epoch_ = epoch;
    consumed_ = consumed;
    passed_over_ = passed_over;
  }
  return begun;
}

void Iterator::AddTensors(Example* empty_share) {
  // This worker may have read no example so far, so it reads the first one.
  if (no_rows_.empty()) no_rows_ = WithoutRows(Dataset(node_).Sample());
  for (const auto& [name, tensor] : no_rows_) empty_share->Set(name, tensor);
}

std::string Iterator::SavePosition() const {
  Json position;
  if (!node_->counted()) {
    Mark mark = mark_;
    if (error_.ok()) {
      mark.clear();
      stream_->Save(&mark);
    }
    position[kMark] = mark;
  }
  position[kBatch] = node_->examples_per_element();
  if (epoch_ > 0) position[kEpoch] = epoch_;
  position["examples"] = Times(consumed_, node_->examples_per_element());
  if (passed_over_ > 0) position[kPassedOver] = passed_over_;
  position["pipeline"] = node_->description();
  return position.Text();
}

Status Iterator::Restore(const std::string& position) {
  SLUICE_ASSIGN_OR_RETURN(const Position saved, ReadPosition(position));
  if (WithoutWholeShards(saved.pipeline) != node_->description()) {
    return InvalidArgument(fmt::format(
        "the position was saved by another input pipeline: '{}', now '{}'; "
        "start anew or use the same data and seed",
        saved.pipeline, node_->description()));
  }
  const int64_t size = node_->examples_per_element();
  const bool other_size = saved.batch_size > 0 && saved.batch_size != size;
  if (other_size && node_->reorders_batches()) {
    return InvalidArgument(fmt::format(
        "the position is of batches of {}, whose order is changed; it cannot "
        "be restored for batches of {}",
        saved.batch_size, size));
  }
  // Whether a batch can be read hangs on which examples it has.
  if (other_size && node_->counted() && saved.passed_over > 0 &&
      node_->passes_over_batches()) {
    return InvalidArgument(fmt::format(
        "the position is behind {} bad batches of {} that were passed over; it "
        "cannot be restored for batches of {}",
        saved.passed_over, saved.batch_size, size));
  }
  const int64_t elements = ElementsBefore(saved, *node_);
  // Rounded down it would be before some of the bad ones, nobody knows which;
  // but not at the end of a pass.
  if (node_->counted() && saved.passed_over > 0 && saved.examples % size != 0 &&
      elements != node_->cardinality()) {
    return InvalidArgument(fmt::format(
        "the position is behind {} examples, where {} bad ones were passed "
        "over; it can be restored only for batches whose size divides that, "
        "not of {}",
        saved.examples, saved.passed_over, size));
  }
  SLUICE_RETURN_IF_ERROR(GoToBegin(static_cast<uint64_t>(saved.epoch)));
  const Status status = CatchErrors([&]() -> Status {
    if (node_->counted()) return SkipTo(elements * size, saved.passed_over);
    MarkReader mark(saved.mark);
    SLUICE_RETURN_IF_ERROR(stream_->Restore(&mark));
    if (mark.AtEnd()) return {};
    return InvalidArgument("the position has too many numbers");
  });
  if (!status.ok()) {
    SLUICE_RETURN_IF_ERROR(GoToBegin(0));
    return status;
  }
  consumed_ = elements;
  // Of what is less than one of these batches, too: the epoch has begun.
  if (!node_->counted() && saved.examples > 0) {
    consumed_ = std::max<int64_t>(consumed_, 1);
  }
  passed_over_ = saved.passed_over;
  return {};
}

Status Iterator::GoToBegin(uint64_t epoch) {
  mark_.clear();
  epoch_ = epoch;
  consumed_ = passed_over_ = 0;
  error_ = CatchErrors([&] { return stream_->StartEpoch(epoch); });
  return error_;
}

Status Iterator::SkipTo(int64_t examples, int64_t passed_over) {
  const int64_t elements = examples / node_->examples_per_element();
  SLUICE_ASSIGN_OR_RETURN(const int64_t skipped, stream_->Skip(elements));
  if (skipped == elements) return stream_->PassOver(passed_over);
  return OutOfRange(
      fmt::format("the position is behind element {}, the dataset has {}",
                  elements, skipped));
}

}  // namespace sluice
