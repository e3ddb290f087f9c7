// What a Dataset describes. Internal to io.
#ifndef SLUICE_IO_DATASET_NODE_H_
#define SLUICE_IO_DATASET_NODE_H_

#include <memory>
#include <string>

#include "io/example_stream.h"

namespace sluice {

// One step of a pipeline. Immutable, thread-safe, shared.
class DatasetNode {
 public:
  virtual ~DatasetNode() = default;
  // No batch in it gets more than `batch_limit` examples.
  virtual StreamPtr<Example> Open(int64_t batch_limit) const = 0;
  virtual int64_t cardinality() const = 0;
  virtual int64_t examples_per_epoch() const = 0;
  // Examples in one (full) element.
  virtual int64_t examples_per_element() const { return 1; }
  // All that decides which examples come in which order; positions are only
  // valid for a pipeline of the same description.
  virtual std::string description() const = 0;

  // Whether a map in it may pass over bad examples: then which element is the
  // n-th depends on what can be read.
  virtual bool passes_over() const { return false; }

  // Where the elements are rows of tensors in memory, in some order: those
  // rows and the order. Else null.
  virtual std::shared_ptr<const Rows> rows() const { return nullptr; }
  virtual StreamPtr<int64_t> OpenOrder() const { return nullptr; }
};

}  // namespace sluice

#endif  // SLUICE_IO_DATASET_NODE_H_
