// Walks a dataset: counts what is consumed, and its position as text.
#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "engine/json_object.h"
#include "io/pipeline/dataset.h"
#include "io/pipeline/dataset_node.h"

namespace sluice {
namespace {

constexpr char kPassedOver[] = "passed_over";

// What SavePosition writes.
struct Position {
  std::string pipeline;
  int64_t examples = 0;     // in the elements consumed, full ones counted
  int64_t passed_over = 0;  // bad ones before and within these
};

Result<Position> ReadPosition(const std::string& text) {
  const auto read = [&]() -> Result<Position> {
    SLUICE_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::Parse(text));
    Position position;
    SLUICE_ASSIGN_OR_RETURN(position.pipeline, json.String("pipeline"));
    SLUICE_ASSIGN_OR_RETURN(position.examples, json.Int("examples"));
    if (json.Has(kPassedOver)) {
      SLUICE_ASSIGN_OR_RETURN(position.passed_over, json.Int(kPassedOver));
    }
    if (position.examples < 0 || position.passed_over < 0) {
      return InvalidArgument("a number of examples is negative");
    }
    return position;
  };
  Result<Position> position = read();
  SLUICE_RETURN_IF_ERROR(position.status().WithContext(
      fmt::format("'{}' is not the position of a dataset", text)));
  return position;
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

Iterator::Iterator(std::shared_ptr<const DatasetNode> node, int64_t batch_limit)
    : node_(std::move(node)),
      stream_(node_->Open({.batch_limit = batch_limit})) {
  ThrowIfError(stream_->StartEpoch(0));
}

Iterator::Iterator(Iterator&&) noexcept = default;
Iterator& Iterator::operator=(Iterator&&) noexcept = default;
Iterator::~Iterator() = default;

Result<bool> Iterator::Next(Example* element) {
  Result<bool> more = false;
  SLUICE_RETURN_IF_ERROR(CatchErrors([&] { more = stream_->Next(element); }));
  if (!more.ok() || !*more) return more;
  ++consumed_;
  passed_over_ += element->passed_over();
  if (IsEmptyShare(*element)) {
    SLUICE_RETURN_IF_ERROR(CatchErrors([&] { AddTensors(element); }));
  }
  return true;
}

void Iterator::AddTensors(Example* empty_share) {
  // This worker may have read no example so far, so it reads the first one.
  if (no_rows_.empty()) no_rows_ = WithoutRows(Dataset(node_).Sample());
  for (const auto& [name, tensor] : no_rows_) empty_share->Set(name, tensor);
}

std::string Iterator::SavePosition() const {
  nlohmann::json position = {
      {"pipeline", node_->description()},
      {"examples", consumed_ * node_->examples_per_element()}};
  if (passed_over_ > 0) position[kPassedOver] = passed_over_;
  return position.dump();
}

Status Iterator::Restore(const std::string& position) {
  SLUICE_ASSIGN_OR_RETURN(const Position saved, ReadPosition(position));
  if (WithoutWholeShards(saved.pipeline) != node_->description()) {
    return InvalidArgument(fmt::format(
        "the position was saved by another input pipeline: '{}', now '{}'; "
        "start anew or use the same data and seed",
        saved.pipeline, node_->description()));
  }
  const int64_t elements = saved.examples / node_->examples_per_element();
  SLUICE_RETURN_IF_ERROR(stream_->StartEpoch(0));
  consumed_ = 0;
  SLUICE_ASSIGN_OR_RETURN(consumed_, stream_->Skip(elements));
  if (consumed_ == elements) {
    passed_over_ = saved.passed_over;
    return stream_->PassOver(passed_over_);
  }
  return OutOfRange(
      fmt::format("the position is behind element {}, the dataset has {}",
                  elements, consumed_));
}

}  // namespace sluice
