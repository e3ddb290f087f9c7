// What a Dataset describes. Internal to io.
#ifndef SLUICE_IO_DATASET_NODE_H_
#define SLUICE_IO_DATASET_NODE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "io/pipeline/bad_examples.h"
#include "io/pipeline/example_stream.h"

namespace sluice {

// What a pipeline is opened for.
struct Opening {
  int64_t batch_limit = INT64_MAX;  // no batch gets more examples
  // Of each batch, the part of worker `rank` of `size` (Dataset::Share). Where
  // `size` is not 1, there is one Batch, of `size` examples at least.
  int64_t rank = 0;
  int64_t size = 1;
  // Which elements are asked for; the others are only skipped.
  BatchRows needed = {};
};

// One step of a pipeline. Immutable, thread-safe, shared.
class DatasetNode {
 public:
  virtual ~DatasetNode() = default;
  virtual StreamPtr<Example> Open(const Opening& opening) const = 0;
  virtual int64_t cardinality() const = 0;
  virtual int64_t examples_per_epoch() const = 0;
  // Examples in one (full) element.
  virtual int64_t examples_per_element() const { return 1; }
  // All that decides which examples come in which order; positions are only
  // valid for a pipeline of the same description.
  virtual std::string description() const = 0;

  // What a map in it that may pass over bad examples has for them: then which
  // element is the n-th depends on what can be read. Else null.
  virtual const BadExamples* bad_examples() const { return nullptr; }
  // How many times it batches, one within the other.
  virtual int batches() const { return 0; }
  // Whether its batches are one worker's part of them.
  virtual bool shared() const { return false; }

  // Where the elements are rows of tensors in memory, in some order: those
  // rows and the order. Else null.
  virtual std::shared_ptr<const Rows> rows() const { return nullptr; }
  virtual StreamPtr<int64_t> OpenOrder() const { return nullptr; }
};

}  // namespace sluice

#endif  // SLUICE_IO_DATASET_NODE_H_
