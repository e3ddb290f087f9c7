// The nodes of the pipeline that a Dataset describes. Internal to io.
#ifndef SLUICE_IO_PIPELINE_DATASET_NODE_H_
#define SLUICE_IO_PIPELINE_DATASET_NODE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/pipeline/ahead_bytes.h"
#include "io/pipeline/bad_examples.h"
#include "io/pipeline/example_stream.h"
#include "io/pipeline/rowwise_map.h"
#include "io/pipeline/stage_times.h"

namespace sluice {

// Set when the thread that reads a stream is to end, which the stream notices
// where it may read for ever and yield nothing. Thread-safe.
class StopFlag {
 public:
  // A flag that is also set where `outer`, which may be null, is.
  explicit StopFlag(std::shared_ptr<const StopFlag> outer)
      : outer_(std::move(outer)) {}
  void Set(bool stop) { stop_ = stop; }
  Status Check() const {
    if (stop_) return Cancelled("nobody reads the dataset any more");
    return outer_ == nullptr ? Status() : outer_->Check();
  }

 private:
  const std::shared_ptr<const StopFlag> outer_;
  std::atomic<bool> stop_ = false;
};
using StopFlagPtr = std::shared_ptr<StopFlag>;

// What a pipeline is opened for.
struct Opening {
  int64_t batch_limit = INT64_MAX;  // no batch gets more examples
  // Which part of each batch to read: that of worker `rank` of `size`
  // (Dataset::Share). Where `size` is not 1, there is one Batch, of `size`
  // examples at least.
  int64_t rank = 0;
  int64_t size = 1;
  // Which elements are asked for; the others are only skipped.
  BatchRows needed = {};
  // Whether a Cache keeps what comes, which then must not differ among epochs.
  bool cached = false;
  // Whether Stream::Save will be called: what reads ahead must remember marks.
  bool marks = false;
  StopFlagPtr stop = std::make_shared<StopFlag>(nullptr);
  // The budget of all that is held ahead.
  std::shared_ptr<AheadBudget> ahead = std::make_shared<AheadBudget>(0);
  // Where to count and measure what the stages do; null: nothing is.
  std::shared_ptr<StageTimes> times = nullptr;
  // For Open the stage that reads what is opened, as its input number `input`;
  // for OpenStream the stage itself. Null for the last of all and without
  // `times`.
  Stage* stage = nullptr;
  int input = 0;
};

// More examples fit into no batch.
inline constexpr int64_t kMostInBatch = int64_t{1} << 53;

class DatasetNode;
using NodePtr = std::shared_ptr<const DatasetNode>;

// One step of a pipeline. Immutable, thread-safe, shared.
class DatasetNode {
 public:
  virtual ~DatasetNode() = default;
  // A stream of its elements, which tells opening.times of itself.
  StreamPtr<Example> Open(const Opening& opening) const;
  // The node's name in StageTimes; empty where it is no stage of its own.
  virtual std::string stage() const = 0;
  virtual int64_t cardinality() const = 0;
  virtual int64_t examples_per_epoch() const = 0;
  // Examples in one (full) element.
  virtual int64_t examples_per_element() const { return 1; }
  // All that decides which examples come in which order, but for what maps do;
  // positions are only valid for a pipeline of the same description. `stages`:
  // with the other steps that have numbers in a mark.
  virtual std::string Describe(bool stages) const = 0;
  std::string description() const { return Describe(!counted()); }

  // Whether an element is found by counting. Where it is not, since how many
  // there are in a pass is not known before they are read, or since counting
  // would read them all, an iterator's position is a mark (io/pipeline/mark.h).
  virtual bool counted() const { return true; }
  // Whether another epoch has other elements, or the same in another order.
  virtual bool epochs_differ() const { return false; }

  // Whether one epoch may be empty and another not.
  virtual bool epochs_differ_in_size() const { return epochs_differ(); }

  // The BadExamples of a map in it that may pass over some: then which element
  // is the n-th depends on which can be read. Null without such a map.
  virtual const BadExamples* bad_examples() const { return nullptr; }
  // Whether that map stands behind a Batch, so that they are batches.
  virtual bool passes_over_batches() const { return false; }
  // The number of Batch steps in it, one within the other.
  virtual int batches() const { return 0; }
  // Whether a change of the order comes behind a Batch, so that a position is
  // of batches of that size.
  virtual bool reorders_batches() const { return false; }
  // Why a Cache in it does not keep all; "" while it does.
  virtual std::string cache_trouble() const { return ""; }
  // Examples in the smallest of its (full) batches.
  virtual int64_t least_batch() const { return examples_per_element(); }
  // Whether its batches are one worker's part of them.
  virtual bool shared() const { return false; }

  // The rows and their order where the elements are rows of tensors in memory;
  // else null.
  virtual std::shared_ptr<const Rows> rows() const { return nullptr; }
  virtual StreamPtr<int64_t> OpenOrder() const { return nullptr; }

  // For a map that makes the same of an element wherever it stands, the node
  // that it maps, and the same map of another node; else null. Steps that
  // change the order are then put before the map, where less is moved and
  // nothing is mapped in vain.
  virtual NodePtr mapped() const { return nullptr; }
  virtual NodePtr MapOf(NodePtr /*other*/) const { return nullptr; }

  // As Dataset::LeaveBytes; null where nothing is left.
  virtual NodePtr LeaveBytes(std::vector<BytesToFloats>* /*left*/) const {
    return nullptr;
  }

 private:
  virtual StreamPtr<Example> OpenStream(const Opening& opening) const = 0;
};

// A step that has an input; says what the input says.
class DerivedNode : public DatasetNode {
 public:
  explicit DerivedNode(NodePtr input) : input_(std::move(input)) {}
  int64_t cardinality() const override { return input_->cardinality(); }
  int64_t examples_per_epoch() const override {
    return input_->examples_per_epoch();
  }
  int64_t examples_per_element() const override {
    return input_->examples_per_element();
  }
  std::string Describe(bool stages) const override {
    return input_->Describe(stages);
  }
  bool counted() const override { return input_->counted(); }
  bool epochs_differ() const override { return input_->epochs_differ(); }
  bool epochs_differ_in_size() const override {
    return epochs_differ() || input_->epochs_differ_in_size();
  }
  const BadExamples* bad_examples() const override {
    return input_->bad_examples();
  }
  bool passes_over_batches() const override {
    return input_->passes_over_batches();
  }
  int batches() const override { return input_->batches(); }
  int64_t least_batch() const override { return input_->least_batch(); }
  bool reorders_batches() const override { return input_->reorders_batches(); }
  std::string cache_trouble() const override { return input_->cache_trouble(); }
  bool shared() const override { return input_->shared(); }

 protected:
  // For LeaveBytes: makes a Node of what LeaveBytes of the input gives, and of
  // the arguments.
  template <typename Node, typename... Arguments>
  NodePtr Rebuilt(std::vector<BytesToFloats>* left,
                  const Arguments&... arguments) const {
    NodePtr below = input_->LeaveBytes(left);
    if (below == nullptr) return nullptr;
    return std::make_shared<Node>(std::move(below), arguments...);
  }

  const NodePtr input_;
};

// The opening for the input of a step that reads it on threads of its own.
inline Opening OnThread(Opening opening) {
  opening.stop = std::make_shared<StopFlag>(std::move(opening.stop));
  return opening;
}

// The opening for the input of a step that asks for all elements, whatever is
// needed.
inline Opening AllNeeded(Opening opening) {
  opening.needed = {};
  return opening;
}

// How many batches of n there are in so many examples, a number or kInfinite or
// kUnknownCardinality.
int64_t BatchesOf(int64_t examples, int64_t n, bool drop_remainder);
// The rows of a batch of n that are the worker's that it is opened for.
BatchRows RowsOfShare(int64_t n, const Opening& opening);

// Throws Error where the condition does not hold.
void Require(bool condition, std::string_view who, int64_t got,
             std::string_view wanted);
// Numbers of threads as MapOptions has them.
void RequireThreads(std::string_view who, int threads, int max_threads);
// Throws Error behind a map that passes over bad examples: there, an element's
// place among all is not known without reading them.
void RefuseBadExamples(const DatasetNode& input, std::string_view what);
// Throws Error for Share of a map that passes over bad examples: workers read
// different examples, so that they would pass over different ones.
void RefusePassingOver(const BadExamples* bad);
// For Cache: throws Error where the node's epochs differ.
void RefuseToCache(const DatasetNode& node);
// Throws Error unless the input is of single examples, none of which a map may
// pass over.
void RequireExamples(const DatasetNode& input, std::string_view who);

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_DATASET_NODE_H_
