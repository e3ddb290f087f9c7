// Steps of a pipeline that choose, open, keep and pad examples.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "io/pipeline/cache_stream.h"
#include "io/pipeline/dataset.h"
#include "io/pipeline/dataset_node.h"
#include "io/pipeline/filter_stream.h"
#include "io/pipeline/interleave_stream.h"
#include "io/pipeline/open_cache.h"
#include "io/pipeline/padded_batch.h"
#include "io/pipeline/parts.h"
#include "io/pipeline/parts_ahead.h"

namespace sluice {
namespace {

// A step behind which nobody knows how many examples there are.
class UncountedNode : public DerivedNode {
 public:
  using DerivedNode::DerivedNode;
  // One that is read for ever yields for ever, or nothing.
  int64_t cardinality() const override {
    return input_->cardinality() > 0 ? kUnknownCardinality
                                     : input_->cardinality();
  }
  int64_t examples_per_epoch() const override {
    return input_->cardinality() == 0 ? 0 : kUnknownCardinality;
  }
  bool counted() const override { return false; }
};

class FilterNode : public UncountedNode {
 public:
  FilterNode(NodePtr input, Predicate keep)
      : UncountedNode(std::move(input)), keep_(std::move(keep)) {}
  std::string stage() const override { return "filter"; }
  StreamPtr<Example> OpenStream(const Opening& opening) const override {
    return std::make_unique<FilterStream>(input_->Open(AllNeeded(opening)),
                                          keep_, opening.stop);
  }
  std::string Describe(bool stages) const override {
    return input_->Describe(stages) + " filter";
  }

 private:
  const Predicate keep_;
};

class InterleaveNode : public UncountedNode {
 public:
  InterleaveNode(NodePtr input, PartOpener::Open open, int64_t cycle,
                 int64_t block, int threads, int max_threads)
      : UncountedNode(std::move(input)),
        open_(std::move(open)),
        cycle_(cycle),
        block_(block),
        threads_(threads),
        max_threads_(max_threads) {}
  std::string stage() const override { return "interleave"; }
  StreamPtr<Example> OpenStream(const Opening& opening) const override {
    return std::make_unique<InterleaveStream>(OpenParts(AllNeeded(opening)),
                                              cycle_, block_, opening.stop);
  }
  // What is opened may be random, which is known when it is.
  bool epochs_differ_in_size() const override { return true; }
  std::string Describe(bool stages) const override {
    return fmt::format("{} interleave({},{})", input_->Describe(stages), cycle_,
                       block_);
  }

 private:
  std::unique_ptr<Parts> OpenParts(const Opening& opening) const {
    if (threads_ == 1) {
      return std::make_unique<PartsInTurn>(input_->Open(opening),
                                           PartOpener(open_, opening));
    }
    const Opening below = OnThread(opening);
    return std::make_unique<PartsAhead>(
        input_->Open(below), PartOpener(open_, below), cycle_, block_,
        MapThreads::Of(threads_, max_threads_), below);
  }

  const PartOpener::Open open_;
  const int64_t cycle_;
  const int64_t block_;
  const int threads_;
  const int max_threads_;
};

class ExpectSizeNode : public DerivedNode {
 public:
  ExpectSizeNode(NodePtr input, int64_t n, std::string source)
      : DerivedNode(std::move(input)), n_(n), source_(std::move(source)) {}
  std::string stage() const override { return ""; }
  StreamPtr<Example> OpenStream(const Opening& opening) const override {
    return std::make_unique<ExpectSizeStream>(input_->Open(AllNeeded(opening)),
                                              n_, source_);
  }
  int64_t cardinality() const override { return n_; }
  int64_t examples_per_epoch() const override { return n_; }
  std::string Describe(bool stages) const override {
    return input_->Describe(stages) + (stages ? " size" : "");
  }

 private:
  const int64_t n_;
  const std::string source_;
};

class CacheNode : public DerivedNode {
 public:
  CacheNode(NodePtr input, std::unique_ptr<ExampleCache> cache, bool on_disk)
      : DerivedNode(std::move(input)),
        kept_(std::make_shared<CachedElements>()) {
    kept_->examples = std::move(cache);
    kept_->outlives_process = on_disk;
    kept_->size = input_->cardinality();
  }
  std::string stage() const override { return "cache"; }
  StreamPtr<Example> OpenStream(const Opening& opening) const override {
    Opening below = AllNeeded(opening);
    below.cached = true;
    return std::make_unique<CacheStream>(input_->Open(below), kept_);
  }
  std::string Describe(bool stages) const override {
    return input_->Describe(stages) + (stages ? " cache" : "");
  }
  std::string cache_trouble() const override {
    const std::string trouble = kept_->examples->Trouble();
    return trouble.empty() ? input_->cache_trouble() : trouble;
  }

 private:
  const std::shared_ptr<CachedElements> kept_;
};

// PaddedBatch and, where there are several buckets, BucketByLength.
class BucketNode : public DerivedNode {
 public:
  BucketNode(NodePtr input, BucketStream::Buckets buckets,
             PaddingOptions padding)
      : DerivedNode(std::move(input)),
        buckets_(std::move(buckets)),
        padding_(std::move(padding)) {}
  std::string stage() const override { return "batch"; }
  StreamPtr<Example> OpenStream(const Opening& opening) const override {
    return std::make_unique<BucketStream>(input_->Open(AllNeeded(opening)),
                                          buckets_, padding_, opening);
  }
  int64_t cardinality() const override {
    const int64_t size = input_->cardinality();
    if (size > 0 && !one()) return kUnknownCardinality;
    return BatchesOf(size, buckets_.sizes[0], padding_.drop_remainder);
  }
  // Of several buckets a pass is not so many batches of examples_per_element.
  int64_t examples_per_epoch() const override {
    const int64_t examples = input_->examples_per_epoch();
    return one() || examples <= 0 ? examples : kUnknownCardinality;
  }
  int64_t examples_per_element() const override {
    return *std::max_element(buckets_.sizes.begin(), buckets_.sizes.end());
  }
  std::string Describe(bool stages) const override {
    if (one()) return input_->Describe(stages) + (stages ? " padded" : "");
    return fmt::format("{} buckets({};{})", input_->Describe(stages),
                       fmt::join(buckets_.boundaries, ","),
                       fmt::join(buckets_.sizes, ","));
  }
  bool counted() const override { return one() && input_->counted(); }
  int batches() const override { return 1; }
  int64_t least_batch() const override {
    return *std::min_element(buckets_.sizes.begin(), buckets_.sizes.end());
  }

 private:
  bool one() const { return buckets_.sizes.size() == 1; }

  const BucketStream::Buckets buckets_;
  const PaddingOptions padding_;
};

}  // namespace

void RefuseToCache(const DatasetNode& node) {
  if (!node.epochs_differ()) return;
  throw Error(Code::kInvalidArgument,
              "Cache: what comes before it differs from epoch to epoch, but "
              "would stay as it is in the first; Shuffle, MapRandom and Choose "
              "must come after, and a generator must say that it does not "
              "(same_in_every_epoch)");
}

Dataset Dataset::Filter(std::function<bool(const Example&)> keep) const {
  RequireExamples(*node_, "Filter");
  return Dataset(std::make_shared<FilterNode>(node_, std::move(keep)));
}

Dataset Dataset::Interleave(std::function<Dataset(const Example&)> open,
                            int64_t cycle, int64_t block, int threads,
                            int max_threads) const {
  RequireExamples(*node_, "Interleave");
  RequireThreads("Interleave", threads, max_threads);
  Require(cycle > 0 && cycle <= UINT16_MAX, "Interleave", cycle,
          "a cycle of 1 to 65535");
  Require(block > 0, "Interleave", block, "a positive block");
  return Dataset(std::make_shared<InterleaveNode>(node_, std::move(open), cycle,
                                                  block, threads, max_threads));
}

Dataset Dataset::FlatMap(std::function<Dataset(const Example&)> open,
                         int threads, int max_threads) const {
  return Interleave(std::move(open), 1, 1, threads, max_threads);
}

Dataset Dataset::ExpectSize(int64_t n) const {
  return ExpectSizeOf(*this, n, "");
}

Dataset ExpectSizeOf(const Dataset& dataset, int64_t n,
                     const std::string& source) {
  RequireExamples(*dataset.node(), "ExpectSize");
  Require(n >= 0, "ExpectSize", n, "a number of elements");
  return Dataset(std::make_shared<ExpectSizeNode>(dataset.node(), n, source));
}

// By value as all options are.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
Dataset Dataset::Cache(CacheOptions options) const {
  RequireExamples(*node_, "Cache");
  RefuseToCache(*node_);
  return Dataset(std::make_shared<CacheNode>(
      node_, OpenCache("Cache", options, node_->description()),
      !options.folder.empty()));
}

Dataset Dataset::PaddedBatch(int64_t n, PaddingOptions padding) const {
  RequireExamples(*node_, "PaddedBatch");
  Require(n > 0 && n <= kMostInBatch, "PaddedBatch", n, "a size of 1 to 2^53");
  return Dataset(std::make_shared<BucketNode>(
      node_,
      BucketStream::Buckets{.length = nullptr, .boundaries = {}, .sizes = {n}},
      std::move(padding)));
}

Dataset Dataset::BucketByLength(std::function<int64_t(const Example&)> length,
                                std::vector<int64_t> boundaries,
                                std::vector<int64_t> batch_sizes,
                                PaddingOptions padding) const {
  RequireExamples(*node_, "BucketByLength");
  Require(batch_sizes.size() == boundaries.size() + 1, "BucketByLength",
          static_cast<int64_t>(batch_sizes.size()),
          fmt::format("{} batch sizes for {} boundaries", boundaries.size() + 1,
                      boundaries.size()));
  for (const int64_t size : batch_sizes) {
    Require(size > 0 && size <= kMostInBatch, "BucketByLength", size,
            "batch sizes of 1 to 2^53");
  }
  for (size_t i = 1; i < boundaries.size(); ++i) {
    Require(boundaries[i] > boundaries[i - 1], "BucketByLength", boundaries[i],
            fmt::format("a boundary above {}", boundaries[i - 1]));
  }
  return Dataset(std::make_shared<BucketNode>(
      node_,
      BucketStream::Buckets{.length = std::move(length),
                            .boundaries = std::move(boundaries),
                            .sizes = std::move(batch_sizes)},
      std::move(padding)));
}

}  // namespace sluice
