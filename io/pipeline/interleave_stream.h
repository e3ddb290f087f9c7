// Several datasets in turn, one for each element of the input. Internal to io.
#ifndef SLUICE_IO_PIPELINE_INTERLEAVE_STREAM_H_
#define SLUICE_IO_PIPELINE_INTERLEAVE_STREAM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "io/pipeline/dataset_node.h"
#include "io/pipeline/parts.h"

namespace sluice {

// Goes round `cycle` slots, `block` elements of each. An empty slot, and one
// whose dataset has ended, is filled when its turn comes; where one ends its
// turn ends. (The order of tf.data's Interleave.)
class InterleaveStream : public Stream<Example> {
 public:
  InterleaveStream(std::unique_ptr<Parts> parts, int64_t cycle, int64_t block,
                   StopFlagPtr stop)
      : block_(block),
        stop_(std::move(stop)),
        parts_(std::move(parts)),
        slots_(static_cast<size_t>(cycle)) {}
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* example) override;
  void Save(Mark* mark) const override;
  Status Restore(MarkReader* mark) override;

 private:
  void NextSlot();

  const int64_t block_;
  const StopFlagPtr stop_;
  const std::unique_ptr<Parts> parts_;
  bool ended_ = false;  // there are no more parts
  std::vector<std::optional<Part>> slots_;
  size_t turn_ = 0;
  int64_t in_block_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_INTERLEAVE_STREAM_H_
