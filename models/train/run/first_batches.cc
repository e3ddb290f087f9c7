#include "models/train/run/first_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/ceil_div.h"
#include "engine/text/json_object.h"
#include "io/sources/datasets.h"
#include "models/train/run/inference.h"

namespace sluice {
namespace {

void RequirePositive(int64_t batches) {
  if (batches > 0) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("wanted at least one batch, got {}", batches));
}

// At most `count` examples of a batch.
Example Part(const Example& batch, int64_t first, int64_t count) {
  const int64_t rows = RowsOf(batch);
  if (first == 0 && count >= rows) return batch;
  Example part;
  for (const auto& [name, tensor] : batch) {
    part.Set(name, tensor.Rows(first, std::min(first + count, rows)));
  }
  return part;
}

std::vector<Example> Read(const Dataset& input, int64_t batches) {
  // Where nobody knows how many there are, what is read tells, of an input that
  // ends; of one that repeats as many are read as were asked for.
  const int64_t examples = input.examples_per_epoch();
  int64_t left = examples < 0 ? INT64_MAX : examples;
  const int64_t pass =
      examples < 0 ? INT64_MAX : CeilDiv(examples, input.batch_size());
  std::vector<Example> read;
  Iterator iterator = input.MakeIterator();
  Example batch;
  while (static_cast<int64_t>(read.size()) < std::min(batches, pass) &&
         iterator.Next(&batch).ValueOrThrow()) {
    // Where batches go over from one pass into the next, without that one's.
    read.push_back(Part(batch, 0, left));
    left -= RowsOf(read.back());
    batch = {};
  }
  return read;
}

// What decides which examples the input yields in which order.
std::string PipelineOf(const Dataset& input) {
  return JsonObject::Parse(input.MakeIterator().SavePosition())
      .ValueOrThrow()
      .String("pipeline")
      .ValueOrThrow();
}

// The input's first batches, or those of a pass if these are fewer. Take would
// not do: a Repeat behind it tells the stages before which pass it is, and
// these shuffle and augment anew; nor can it follow a map that may pass over
// bad examples.
Dataset Kept(const Dataset& input, int64_t batches, int64_t workers) {
  const int64_t size = input.batch_size();
  const auto kept =
      std::make_shared<const std::vector<Example>>(Read(input, batches));
  for (size_t i = 0; workers > 1 && i + 1 < kept->size(); ++i) {
    if (RowsOf((*kept)[i]) == size) continue;
    throw Error(Code::kInvalidArgument,
                fmt::format("the first batches are for one process where their "
                            "sizes differ: batch {} has {} examples of {}",
                            i + 1, RowsOf((*kept)[i]), size));
  }
  // Batches of numbers, each of which stands for an example, so that the
  // dataset knows how many examples a batch and a pass have. Only the last may
  // be smaller: one in the middle counts as full.
  const auto count = static_cast<int64_t>(kept->size());
  const int64_t examples =
      count == 0 ? 0 : (count - 1) * size + RowsOf(kept->back());
  Tensor number(DType::kInt64, {examples});
  for (int64_t i = 0; i < examples; ++i) number.data<int64_t>()[i] = i;
  return datasets::FromTensors({{"number", number}},
                               fmt::format("first {} batches of {} of {}",
                                           count, size, PipelineOf(input)))
      .Batch(size)
      .Map([kept, size](Example& batch) {
        const Tensor& numbers = batch["number"];
        const int64_t first = numbers.IntAt(0);
        batch = Part((*kept)[static_cast<size_t>(first / size)], first % size,
                     numbers.elements());
      });
}

// What the input function is given when training calls it first.
RunContext ForTraining(const RunContext& run) {
  RunContext context = run;
  context.mode = Mode::kTrain;
  context.steps_per_epoch = 0;
  context.class_names.clear();
  context.trained_on.clear();
  return context;
}

}  // namespace

TrainerSpec OverfitBatches(const TrainerSpec& spec, int64_t batches) {
  RequirePositive(batches);
  TrainerSpec out = spec;
  out.input = [input = spec.input, batches](const RunContext& run) {
    if (run.mode == Mode::kPredict) return input(run);
    const Dataset kept = Kept(input(ForTraining(run)), batches, run.size);
    return run.training() ? kept.Repeat() : kept;
  };
  out.evaluated_on = [](const RunContext&) { return std::string("training"); };
  out.example_names = nullptr;  // they are of the evaluation's own input
  return out;
}

TrainerSpec FirstBatches(const TrainerSpec& spec, int64_t batches) {
  RequirePositive(batches);
  TrainerSpec out = spec;
  out.input = [input = spec.input, batches](const RunContext& run) {
    const Dataset whole = input(run);
    // One that never ends is a fault, which the trainer tells.
    const bool stays = run.training() || whole.cardinality() == kInfinite;
    return stays ? whole : Kept(whole, batches, run.size);
  };
  return out;
}

}  // namespace sluice
