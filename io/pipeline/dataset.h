// Input pipelines: a Dataset describes a sequence of examples, an Iterator
// walks it.
//
//   Dataset digits = datasets::Mnist(dir, Mode::kTrain)
//       .Shuffle(60'000, seed).Repeat().Map(ScaleTo01("image")).Batch(100)
//       .Prefetch(2);
//   Iterator batches = digits.MakeIterator();
//   Example batch;
//   while (batches.Next(&batch).ValueOrThrow()) Use(batch["image"]);
//
// What an Iterator yields is a pure function of the pipeline and of how much
// was consumed, on every machine. Its saved position is that count or, where
// counting would not do (behind a Filter, say), where each stage stands; in
// both cases no example is lost or comes twice in a run that goes on from it.
#ifndef SLUICE_IO_PIPELINE_DATASET_H_
#define SLUICE_IO_PIPELINE_DATASET_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/number.h"
#include "engine/status.h"
#include "engine/visibility.h"
#include "io/example.h"
#include "io/pipeline/bad_examples.h"
#include "io/pipeline/rowwise_map.h"

namespace SLUICE_PUBLIC sluice {

class AheadBudget;
class DatasetNode;
class KeptExamples;
class StageTimes;
template <typename T>
class Stream;

// Cardinality of a dataset that never ends, and of one that must be read to
// know it.
inline constexpr int64_t kInfinite = -1;
inline constexpr int64_t kUnknownCardinality = -2;

// How a map is run.
struct MapOptions {
  // Examples for which it throws what says that they are bad are noted here and
  // passed over; the message tells one from another, so it names the example.
  // A batch then holds the next ones. Only one map of a pipeline may have it,
  // and behind that come only maps, Batch and Prefetch.
  std::shared_ptr<BadExamples> bad = nullptr;
  // How many threads run it, each on an example of its own and ahead of what
  // was asked for: at most two examples a thread. With several it must be safe
  // to call at the same time. They change neither the order nor which error
  // comes first. 0: as many as help, which is measured while it runs
  // (io/pipeline/map_threads.h).
  int threads = 1;
  // The most that `threads` = 0 may choose; 0: one per core of this process.
  int max_threads = 0;
  // What StageTimes calls it.
  std::string name = "map";
  // What its function keeps examples in (io/pipeline/kept_examples.h), for
  // CacheTrouble.
  std::shared_ptr<const KeptExamples> kept = nullptr;
  // Tensors that its function neither sees nor makes: they pass it by, and may
  // be bytes (LeaveBytes).
  std::vector<std::string> untouched = {};
};

// How examples of different shapes become a batch.
struct PaddingOptions {
  // The value that a tensor is filled up with, by its name; 0 for the others.
  std::map<std::string, Number> values = {};
  bool drop_remainder = false;
};

// Where Cache keeps elements.
struct CacheOptions {
  // The most bytes that are kept: in memory of the elements, in a folder of all
  // files there, those of other caches too. Elements beyond that are made anew.
  uint64_t max_bytes = uint64_t{1} << 30;
  // A folder of the local disk, where elements outlive the process and serve
  // others; empty: they are kept in memory.
  std::string folder = {};
  // With a folder: a name for what is kept, which must differ for other data
  // and for other functions before the cache. Nothing else tells apart what the
  // same steps make of sources of the same description, such as two sets of
  // tensors of the same size.
  std::string key = {};
  // What a folder holds beyond max_bytes already, as others have a greater
  // limit, stays there, and nothing is added: for a limit that nobody chose.
  // Otherwise elements that no living cache adds to go when it is opened.
  bool keeps_more = false;
};

// Walks a dataset once. Movable; one thread at a time; several iterators of a
// dataset are independent. Keeps the dataset alive. Destroying it stops its
// prefetch thread.
class Iterator {
 public:
  Iterator(Iterator&&) noexcept;
  Iterator& operator=(Iterator&&) noexcept;
  ~Iterator();

  // The next element, or false at the end. What a function of the user's threw
  // comes back as the Status, and again until Restore.
  Result<bool> Next(Example* element);

  // Goes to the first element of the next epoch, whatever was left of this one.
  // It yields what the next pass of a Repeat in its place would: random steps
  // draw anew. kDataLoss where this epoch had no element. Where the next epoch
  // cannot be begun the position stays in this one.
  Status NextEpoch();
  int64_t epoch() const { return static_cast<int64_t>(epoch_); }
  int64_t consumed() const { return consumed_; }  // elements, in the epoch

  // What has been consumed, as one line of JSON: the epoch and what of it, in
  // which nothing counts that is ready ahead. Restore gives an iterator of an
  // equal pipeline that goes on exactly there, after an error with what failed.
  // What maps do, threads, Prefetch and Share may differ, and so may the batch
  // size, unless Shuffle, Repeat, Shard, Take or Skip comes behind Batch: the
  // position is of examples. Where it is a count (DatasetNode::counted) it is
  // rounded down to whole batches, which is refused where bad examples were
  // passed over, and so is any other size where a map behind Batch passed over
  // bad batches. kInvalidArgument for these and when the text is no position or
  // of another pipeline, kOutOfRange where the input ends before it; the
  // iterator is then where it was, or at the begin of epoch 0.
  std::string SavePosition() const;
  Status Restore(const std::string& position);

 private:
  friend class Dataset;
  Iterator(std::shared_ptr<const DatasetNode> node, int64_t batch_limit,
           std::shared_ptr<StageTimes> times,
           std::shared_ptr<AheadBudget> ahead);
  void AddTensors(Example* empty_share);
  Status GoToBegin(uint64_t epoch);
  Status SkipTo(int64_t examples, int64_t passed_over);

  std::shared_ptr<const DatasetNode> node_;
  std::unique_ptr<Stream<Example>> stream_;
  uint64_t epoch_ = 0;
  int64_t consumed_ = 0;       // elements, in the epoch
  int64_t passed_over_ = 0;    // bad examples before and within them
  Example no_rows_;            // what a share of no examples is, once one came
  Status error_;               // of Next, or of the begin of an epoch
  std::vector<int64_t> mark_;  // before it, where positions are no counts
};

// An immutable description; copies share it. All member functions are const
// and thread-safe, and throw Error(kInvalidArgument) for arguments that can
// never work.
class Dataset {
 public:
  explicit Dataset(std::shared_ptr<const DatasetNode> node);

  // fn may change the example in place. It must be a pure function of it and
  // must not touch tensors it has kept; it may throw.
  Dataset Map(std::function<void(Example&)> fn, MapOptions options = {}) const;
  Dataset Map(RowwiseMap map) const;
  // Map for random augmentation: `key` is 64 random bits, a function of the
  // seed, the epoch and the element's place in it. Behind Batch it is the
  // batch's, one for all workers that have a share of it (Share), so that their
  // number changes nothing: what differs by example is to be drawn before
  // Batch.
  Dataset MapRandom(uint64_t seed,
                    std::function<void(Example&, uint64_t key)> fn,
                    MapOptions options = {}) const;
  // Draws from a buffer of that many elements; a buffer as large as the
  // dataset gives a uniform permutation. Every epoch (pass of a Repeat behind
  // it) has another order, from (seed, epoch).
  Dataset Shuffle(int64_t buffer, uint64_t seed) const;
  // n passes; for ever when n is -1, unless passes are empty.
  Dataset Repeat(int64_t n = -1) const;
  // Stacks n elements; the last batch of a pass may be smaller.
  Dataset Batch(int64_t n, bool drop_remainder = false) const;
  // Batch for examples that differ in the sizes of their dimensions: each
  // tensor is filled up behind its end to the largest of its batch.
  Dataset PaddedBatch(int64_t n, PaddingOptions padding = {}) const;
  // Padded batches of examples of about the same length: those whose length is
  // below boundaries[0], at least that but below boundaries[1], ..., and the
  // rest, in batches of batch_sizes[0], ... There is one size more than there
  // are boundaries, which ascend. What is left at the end of a pass comes as
  // smaller batches. (Positions restore for equal batch sizes.)
  Dataset BucketByLength(std::function<int64_t(const Example&)> length,
                         std::vector<int64_t> boundaries,
                         std::vector<int64_t> batch_sizes,
                         PaddingOptions padding = {}) const;
  // Elements index, index + count, ...
  Dataset Shard(int64_t index, int64_t count) const;
  // The first n elements; all but the first n.
  Dataset Take(int64_t n) const;
  Dataset Skip(int64_t n) const;
  // Computes up to `depth` elements ahead on a thread of its own.
  Dataset Prefetch(int64_t depth) const;

  // The following come before Batch and before maps that may pass over bad
  // examples. What they are given to call must be a pure function. An iterator
  // calls it from one thread at a time unless said otherwise, several iterators
  // at the same time.

  // The examples for which `keep` is true.
  Dataset Filter(std::function<bool(const Example&)> keep) const;
  // In place of each example the dataset that `open` makes of it, `cycle` of
  // them in turn, `block` elements each, as tf.data does: a dataset that ends
  // makes room for the next example's. Random steps within it differ from one
  // example to the next. With other `threads` than 1, as MapOptions has them
  // and max_threads, they are opened and read ahead on several: the elements of
  // each turn or eight, of those that are open and, one a thread, of the next
  // ones. `open` must then be safe to call at the same time, the same comes in
  // the same order, and positions restore for any number of threads.
  Dataset Interleave(std::function<Dataset(const Example&)> open, int64_t cycle,
                     int64_t block = 1, int threads = 1,
                     int max_threads = 0) const;
  // The elements of the dataset that `open` makes of each example, one dataset
  // after another.
  Dataset FlatMap(std::function<Dataset(const Example&)> open, int threads = 1,
                  int max_threads = 0) const;
  // Keeps what came from its input the first time for later epochs and other
  // iterators. What comes before must be the same in every epoch:
  // kInvalidArgument behind Shuffle, MapRandom and Choose, and behind a
  // generator that does not say that it is (GeneratorOptions).
  Dataset Cache(CacheOptions options = {}) const;
  // States the number of elements where it is not known. Iterators return
  // kDataLoss where there are more or fewer.
  Dataset ExpectSize(int64_t n) const;

  // What worker `rank` of `size` gets of every batch: of a Batch of n, its
  // examples n * rank / size up to n * (rank + 1) / size (integer division),
  // augmented as without workers. All workers together get each batch once.
  // Where a batch is smaller than n (the end of a pass), the last workers get
  // less, maybe nothing: a share of no examples has tensors whose first
  // dimension is 0. A padded batch of m is cut by its own m in place of n, so
  // that the first workers may get nothing. All workers' iterators yield as
  // many elements.
  // cardinality, examples_per_epoch and batch_size stay those of the whole, and
  // saved positions count whole batches: one restores for any number of workers
  // (and without Share). Sample() is that of the whole, too.
  // Maps behind Batch see the worker's share, and none of no examples. Other
  // workers' examples are not mapped, but by maps before a Prefetch, a Filter
  // or the like that comes before Batch, by random ones before a Shuffle, and
  // for padded batches. There must be one Batch, of `size` examples at least,
  // and no map may pass over bad examples: BadExamples with limit 0.
  Dataset Share(int64_t rank, int64_t size) const;

  // Elements the iterator yields, kInfinite or kUnknownCardinality.
  int64_t cardinality() const;
  // Examples (not batches) in one pass, Repeat not counted; or
  // kUnknownCardinality, or kInfinite of a source that never ends.
  int64_t examples_per_epoch() const;
  // Examples in an element, by what Batch was told, the most where batches
  // differ; 1 without Batch. The last of a pass may have fewer.
  int64_t batch_size() const;

  // `times`, unless null, are told what its stages do
  // (io/pipeline/stage_times.h). Elements that are there ahead of what was
  // asked for, of Prefetch and of what runs on several threads, take up to
  // ahead_bytes together, and one element for each of these steps whatever its
  // size; 0: DefaultAheadBytes(). That changes what is done ahead, never what
  // comes. (How large elements are is taken from those before, so that the
  // first ones may be more.)
  Iterator MakeIterator(std::shared_ptr<StageTimes> times = nullptr,
                        size_t ahead_bytes = 0) const;
  // Makes an iterator of each dataset; ahead of what was asked for they hold
  // ahead_bytes together. `times` are told of the first.
  static std::vector<Iterator> MakeIterators(
      const std::vector<Dataset>& datasets,
      std::shared_ptr<StageTimes> times = nullptr, size_t ahead_bytes = 0);
  // A quarter of the memory that was free when this process first asked, in
  // bytes: the rest is for the model, what is shuffled, and the pages of files.
  static size_t DefaultAheadBytes();
  // The first element. Throws Error, also when the dataset is empty.
  Example First() const;
  // The first element with batches of one example, to learn names, dtypes and
  // shapes without making a batch that may not fit into memory.
  Example Sample() const;

  // This dataset without the maps of bytes to numbers at its end, behind which
  // come only Batch, Prefetch, Share and maps that leave what they map
  // untouched: its batches have the bytes, a quarter of the size. Those maps
  // are added to `left`, in their order.
  Dataset LeaveBytes(std::vector<BytesToFloats>* left) const;

  // Why a Cache in it, or what a map keeps examples in, does not keep all that
  // comes, such as a full disk; "" while it does.
  std::string CacheTrouble() const;

  // For io alone.
  const std::shared_ptr<const DatasetNode>& node() const { return node_; }

 private:
  Example First(int64_t batch_limit) const;

  std::shared_ptr<const DatasetNode> node_;
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_DATASET_H_
