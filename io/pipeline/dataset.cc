#include "io/pipeline/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "io/pipeline/dataset_node.h"
#include "io/pipeline/prefetch.h"

namespace sluice {
namespace {

// What a step that changes the order makes of its input.
struct OrderFacts {
  const char* stage;
  int64_t cardinality;
  int64_t examples_per_epoch;
  std::string description;
  bool counted = true;         // if the input is
  bool epochs_differ = false;  // if the input's do not
};

// A step that changes which elements come and in which order: Wrap makes its
// stream of T from the input's.
template <typename Wrap>
class OrderNode : public DerivedNode {
 public:
  OrderNode(NodePtr input, OrderFacts facts, Wrap wrap)
      : DerivedNode(std::move(input)),
        facts_(std::move(facts)),
        wrap_(std::move(wrap)) {}
  // Rows in whatever order are read where they lie.
  std::string stage() const override {
    return rows() == nullptr ? facts_.stage : "tensors";
  }
  StreamPtr<Example> OpenStream(const Opening& opening) const override {
    if (rows() == nullptr) return wrap_(input_->Open(AllNeeded(opening)));
    return std::make_unique<RowStream>(rows(), OpenOrder());
  }
  int64_t cardinality() const override { return facts_.cardinality; }
  int64_t examples_per_epoch() const override {
    return facts_.examples_per_epoch;
  }
  std::string Describe(bool stages) const override {
    return input_->Describe(stages) + facts_.description;
  }
  bool reorders_batches() const override {
    return input_->batches() > 0 || input_->reorders_batches();
  }
  bool counted() const override { return facts_.counted && input_->counted(); }
  bool epochs_differ() const override {
    return facts_.epochs_differ || input_->epochs_differ();
  }
  std::shared_ptr<const Rows> rows() const override { return input_->rows(); }
  StreamPtr<int64_t> OpenOrder() const override {
    return wrap_(input_->OpenOrder());
  }

 private:
  const OrderFacts facts_;
  const Wrap wrap_;
};

template <typename Wrap>
NodePtr ReorderedNode(NodePtr input, OrderFacts facts, Wrap wrap) {
  if (NodePtr mapped = input->mapped()) {
    return input->MapOf(
        ReorderedNode(std::move(mapped), std::move(facts), std::move(wrap)));
  }
  return std::make_shared<OrderNode<Wrap>>(std::move(input), std::move(facts),
                                           std::move(wrap));
}

template <typename Wrap>
Dataset Reordered(NodePtr input, OrderFacts facts, Wrap wrap) {
  RefuseBadExamples(*input, "a change of the order");
  return Dataset(
      ReorderedNode(std::move(input), std::move(facts), std::move(wrap)));
}

class BatchNode : public DerivedNode {
 public:
  BatchNode(NodePtr input, int64_t n, bool drop_remainder)
      : DerivedNode(std::move(input)), n_(n), drop_remainder_(drop_remainder) {}
  std::string stage() const override { return "batch"; }
  StreamPtr<Example> OpenStream(const Opening& opening) const override {
    const int64_t n = std::min(n_, opening.batch_limit);
    Opening below = opening;
    below.needed = RowsOfShare(n, opening);
    return std::make_unique<BatchStream>(input_->Open(below), below.needed,
                                         drop_remainder_);
  }
  int64_t cardinality() const override {
    return BatchesOf(input_->cardinality(), n_, drop_remainder_);
  }
  int64_t examples_per_element() const override {
    return Times(n_, input_->examples_per_element());
  }
  int batches() const override { return input_->batches() + 1; }
  int64_t least_batch() const override {
    return Times(n_, input_->least_batch());
  }
  NodePtr LeaveBytes(std::vector<BytesToFloats>* left) const override {
    return Rebuilt<BatchNode>(left, n_, drop_remainder_);
  }

 private:
  const int64_t n_;
  const bool drop_remainder_;
};

class PrefetchNode : public DerivedNode {
 public:
  PrefetchNode(NodePtr input, int64_t depth)
      : DerivedNode(std::move(input)), depth_(depth) {}
  std::string stage() const override { return "prefetch"; }
  StreamPtr<Example> OpenStream(const Opening& opening) const override {
    const Opening below = OnThread(AllNeeded(opening));
    return std::make_unique<PrefetchStream>(input_->Open(below), depth_, below);
  }
  NodePtr LeaveBytes(std::vector<BytesToFloats>* left) const override {
    return Rebuilt<PrefetchNode>(left, depth_);
  }

 private:
  const int64_t depth_;
};

// Says for which worker the Batch below is opened.
class ShareNode : public DerivedNode {
 public:
  ShareNode(NodePtr input, int64_t rank, int64_t size)
      : DerivedNode(std::move(input)), rank_(rank), size_(size) {}
  std::string stage() const override { return ""; }
  StreamPtr<Example> OpenStream(const Opening& opening) const override {
    // Smaller batches are a sample, which is not shared out.
    if (opening.batch_limit < examples_per_element()) {
      return input_->Open(opening);
    }
    Opening share = opening;
    share.rank = rank_;
    share.size = size_;
    return input_->Open(share);
  }
  bool shared() const override { return true; }
  NodePtr LeaveBytes(std::vector<BytesToFloats>* left) const override {
    return Rebuilt<ShareNode>(left, rank_, size_);
  }

 private:
  const int64_t rank_;
  const int64_t size_;
};

void CheckCanShare(const DatasetNode& node, int64_t size) {
  const auto require = [](bool condition, const std::string& message) {
    if (!condition) throw Error(Code::kInvalidArgument, "Share: " + message);
  };
  require(!node.shared(), "the batches are shared out already");
  require(node.batches() > 0,
          "the pipeline must end with Batch; maps and Prefetch may follow");
  require(node.batches() == 1, "batches of batches cannot be shared out");
  const int64_t n = node.least_batch();
  require(n >= size, fmt::format("batches of {} cannot be shared out among {} "
                                 "workers",
                                 n, size));
  RefusePassingOver(node.bad_examples());
}

// The examples in the first n elements.
int64_t ExamplesIn(const DatasetNode& node, int64_t n) {
  const int64_t examples = Times(n, node.examples_per_element());
  const int64_t pass = node.examples_per_epoch();
  if (pass == kUnknownCardinality) return pass;
  return pass == kInfinite ? examples : std::min(pass, examples);
}

NodePtr TakeNode(const NodePtr& input, int64_t n) {
  const int64_t size = input->cardinality();
  const int64_t taken = size >= 0                     ? std::min(n, size)
                        : n == 0 || size == kInfinite ? n
                                                      : kUnknownCardinality;
  return ReorderedNode(
      input,
      {.stage = "take",
       .cardinality = taken,
       .examples_per_epoch = taken < 0 ? taken : ExamplesIn(*input, taken),
       .description = fmt::format(" take({})", n)},
      [=]<typename T>(StreamPtr<T> in) -> StreamPtr<T> {
        return std::make_unique<TakeStream<T>>(std::move(in), n);
      });
}

// The examples in a pass of `node` without its first n elements, of which
// `left` are left.
int64_t ExamplesBehind(const DatasetNode& node, int64_t n, int64_t left) {
  if (left == 0 || left == kUnknownCardinality) return left;
  const int64_t pass = node.examples_per_epoch();
  if (left == kInfinite || pass < 0) return pass;
  const int64_t per_element = node.examples_per_element();
  const bool several_passes =
      node.cardinality() > BatchesOf(pass, per_element, false);
  return several_passes ? ExamplesIn(node, left)
                        : std::max<int64_t>(pass - Times(n, per_element), 0);
}

}  // namespace

int64_t BatchesOf(int64_t examples, int64_t n, bool drop_remainder) {
  if (examples < 0) return examples;
  return examples / n + (examples % n > 0 && !drop_remainder ? 1 : 0);
}

BatchRows RowsOfShare(int64_t n, const Opening& opening) {
  // n * rank / size, where that product may be too large.
  const auto first_row = [n, size = opening.size](int64_t rank) {
    return n / size * rank + n % size * rank / size;
  };
  return {.n = n,
          .begin = first_row(opening.rank),
          .end = first_row(opening.rank + 1)};
}

void RefusePassingOver(const BadExamples* bad) {
  if (bad == nullptr || bad->limit() == 0) return;
  throw Error(Code::kInvalidArgument,
              "Share: passing over bad examples is for one worker");
}

void Require(bool condition, std::string_view who, int64_t got,
             std::string_view wanted) {
  if (condition) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: got {}, wanted {}", who, got, wanted));
}

void RequireThreads(std::string_view who, int threads, int max_threads) {
  Require(threads >= 0, who, threads,
          "a number of threads, or 0 to have it chosen");
  Require(max_threads >= 0, who, max_threads,
          "the most threads to choose, or 0 for one per core");
}

void RefuseBadExamples(const DatasetNode& input, std::string_view what) {
  if (input.bad_examples() == nullptr) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("a map that may pass over bad examples comes before "
                          "{}; it must come after",
                          what));
}

void RequireExamples(const DatasetNode& input, std::string_view who) {
  RefuseBadExamples(input, who);
  if (input.batches() == 0) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: it must come before Batch", who));
}

Dataset::Dataset(NodePtr node) : node_(std::move(node)) {}

Dataset Dataset::Shuffle(int64_t buffer, uint64_t seed) const {
  Require(buffer > 0 && buffer <= UINT32_MAX, "Shuffle", buffer,
          "a buffer of 1 to 2^32-1 elements");
  return Reordered(node_,
                   {.stage = "shuffle",
                    .cardinality = node_->cardinality(),
                    .examples_per_epoch = node_->examples_per_epoch(),
                    .description = fmt::format(" shuffle({},{})", buffer, seed),
                    .epochs_differ = true},
                   [=]<typename T>(StreamPtr<T> in) -> StreamPtr<T> {
                     return std::make_unique<ShuffleStream<T>>(std::move(in),
                                                               buffer, seed);
                   });
}

Dataset Dataset::Repeat(int64_t n) const {
  Require(n >= -1, "Repeat", n, "a number of passes, or -1 for ever");
  const int64_t size = node_->cardinality();
  const bool differs = node_->epochs_differ_in_size();
  int64_t repeated = size;
  if (n == 0 || size == 0) {
    repeated = 0;
  } else if (n < 0) {
    repeated = kInfinite;
  } else if (size > 0) {
    repeated = Times(size, n);
  }
  return Reordered(node_,
                   {.stage = "repeat",
                    .cardinality = repeated,
                    .examples_per_epoch = node_->examples_per_epoch(),
                    .description = fmt::format(" repeat({})", n),
                    .counted = size != kUnknownCardinality},
                   [=]<typename T>(StreamPtr<T> in) -> StreamPtr<T> {
                     return std::make_unique<RepeatStream<T>>(std::move(in), n,
                                                              size, differs);
                   });
}

Dataset Dataset::Shard(int64_t index, int64_t count) const {
  Require(count > 0, "Shard", count, "a positive count");
  Require(index >= 0 && index < count, "Shard", index,
          fmt::format("an index below {}", count));
  if (count == 1) return *this;
  const int64_t size = node_->cardinality();
  const int64_t part = size < 0       ? size
                       : size > index ? (size - index - 1) / count + 1
                                      : 0;
  const int64_t all = node_->examples_per_epoch();
  const bool several_passes =
      size < 0 ||
      (all >= 0 && size > BatchesOf(all, node_->examples_per_element(), false));
  int64_t examples = all;
  if (part == 0 || !several_passes) {
    examples = ExamplesIn(*node_, part);
  } else if (all > 0) {
    // The part of one of them; not nothing, which would be no pass at all.
    examples = std::max<int64_t>(all / count, 1);
  }
  return Reordered(node_,
                   {.stage = "shard",
                    .cardinality = part,
                    .examples_per_epoch = examples,
                    .description = fmt::format(" shard({}/{})", index, count)},
                   [=]<typename T>(StreamPtr<T> in) -> StreamPtr<T> {
                     return std::make_unique<ShardStream<T>>(std::move(in),
                                                             index, count);
                   });
}

Dataset Dataset::Take(int64_t n) const {
  Require(n >= 0, "Take", n, "a number of elements");
  RefuseBadExamples(*node_, "Take");
  return Dataset(TakeNode(node_, n));
}

Dataset Dataset::Skip(int64_t n) const {
  Require(n >= 0 && n <= MarkReader::kMost, "Skip", n,
          "0 to 2^62 - 1 elements");
  if (n == 0) return *this;
  const int64_t size = node_->cardinality();
  const int64_t left = size < 0 ? size : std::max<int64_t>(size - n, 0);
  return Reordered(node_,
                   {.stage = "skip",
                    .cardinality = left,
                    .examples_per_epoch = ExamplesBehind(*node_, n, left),
                    .description = fmt::format(" skip({})", n)},
                   [=]<typename T>(StreamPtr<T> in) -> StreamPtr<T> {
                     return std::make_unique<SkipStream<T>>(std::move(in), n);
                   });
}

Dataset Dataset::Batch(int64_t n, bool drop_remainder) const {
  Require(n > 0 && n <= kMostInBatch, "Batch", n, "a size of 1 to 2^53");
  if (node_->shared()) {
    throw Error(Code::kInvalidArgument, "Batch: it must come before Share");
  }
  return Dataset(std::make_shared<BatchNode>(node_, n, drop_remainder));
}

Dataset Dataset::Prefetch(int64_t depth) const {
  Require(depth > 0, "Prefetch", depth, "a positive depth");
  return Dataset(std::make_shared<PrefetchNode>(node_, depth));
}

Dataset Dataset::Share(int64_t rank, int64_t size) const {
  Require(size > 0, "Share", size, "a positive number of workers");
  Require(rank >= 0 && rank < size, "Share", rank,
          fmt::format("a rank below {}", size));
  if (size == 1) return *this;
  CheckCanShare(*node_, size);
  return Dataset(std::make_shared<ShareNode>(node_, rank, size));
}

int64_t Dataset::cardinality() const {
  return node_->cardinality();
}

int64_t Dataset::examples_per_epoch() const {
  return node_->examples_per_epoch();
}

Dataset Dataset::LeaveBytes(std::vector<BytesToFloats>* left) const {
  NodePtr bytes = node_->LeaveBytes(left);
  return bytes == nullptr ? *this : Dataset(std::move(bytes));
}

std::string Dataset::CacheTrouble() const {
  return node_->cache_trouble();
}

int64_t Dataset::batch_size() const {
  return node_->examples_per_element();
}

Example Dataset::First() const {
  return First(INT64_MAX);
}

Example Dataset::Sample() const {
  return First(1);
}

Example Dataset::First(int64_t batch_limit) const {
  Example example;
  Iterator first(TakeNode(node_, 1), batch_limit, nullptr,
                 std::make_shared<AheadBudget>(0));
  if (!first.Next(&example).ValueOrThrow()) {
    throw Error(
        Code::kInvalidArgument,
        node_->bad_examples() != nullptr && node_->examples_per_epoch() != 0
            ? "no example of the dataset can be read"
            : "the dataset is empty");
  }
  return example;
}

}  // namespace sluice
