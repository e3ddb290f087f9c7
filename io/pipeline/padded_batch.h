// Batches of examples that differ in their tensors' sizes. Internal to io.
#ifndef SLUICE_IO_PIPELINE_PADDED_BATCH_H_
#define SLUICE_IO_PIPELINE_PADDED_BATCH_H_

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "io/pipeline/dataset_node.h"
#include "io/pipeline/revisit.h"

namespace sluice {

// Stacks examples of the same names, dtypes and ranks: each dimension of a
// tensor becomes the largest there is, and what an example lacks is behind its
// end. kInvalidArgument names the first that differs in more than sizes, or
// that cannot hold what it is to be filled up with.
Result<Example> StackPadded(std::span<const Example> examples,
                            const PaddingOptions& padding);

// Collects examples in buckets, each of which is a batch when it is full; at
// the end of the input those that are not empty come in their order.
class BucketStream : public Stream<Example> {
 public:
  using Length = std::function<int64_t(const Example&)>;
  // The length function, the boundaries and the batch sizes of the buckets: see
  // Dataset::BucketByLength. `length` is not called where there is one bucket.
  struct Buckets {
    Length length;
    std::vector<int64_t> boundaries;
    std::vector<int64_t> sizes;
  };
  BucketStream(StreamPtr<Example> input, Buckets buckets,
               PaddingOptions padding, const Opening& opening);
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* batch) override;
  Result<int64_t> Skip(int64_t n) override;
  void Save(Mark* mark) const override;
  Status Restore(MarkReader* mark) override;

 private:
  struct Held {
    Place place;
    Example example;
  };
  struct Bucket {
    int64_t size = 0;  // of a full batch
    std::vector<Held> held;
  };

  Result<Bucket*> BucketOf(const Example& example);
  Result<Bucket*> FullBucket();

  StreamPtr<Example> input_;
  const Buckets how_;
  const PaddingOptions padding_;
  const bool marks_;
  const int64_t rank_, workers_;
  std::vector<Bucket> buckets_;
  int64_t next_ = 0;  // number of the input's next element
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_PADDED_BATCH_H_
