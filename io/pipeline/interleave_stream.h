// Several datasets in turn, one for each element of the input. Internal to io.
#ifndef SLUICE_IO_PIPELINE_INTERLEAVE_STREAM_H_
#define SLUICE_IO_PIPELINE_INTERLEAVE_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "io/pipeline/dataset_node.h"
#include "io/pipeline/revisit.h"

namespace sluice {

// Goes round `cycle` slots, `block` elements of each. An empty slot, and one
// whose dataset has ended, is filled when its turn comes; where one ends its
// turn ends. (The order of tf.data's Interleave.)
class InterleaveStream : public Stream<Example> {
 public:
  using Open = std::function<Dataset(const Example&)>;
  InterleaveStream(StreamPtr<Example> input, Open open, int64_t cycle,
                   int64_t block, const Opening& opening);
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* example) override;
  void Save(Mark* mark) const override;
  Status Restore(MarkReader* mark) override;

 private:
  struct Slot {
    Place place;  // of the input's element
    NodePtr node;
    StreamPtr<Example> stream;
  };

  Result<bool> Fill(std::optional<Slot>* slot);
  Status OpenSlot(Place place, const Example& element, Slot* slot) const;
  void NextSlot();

  StreamPtr<Example> input_;
  const Open open_;
  const int64_t block_;
  const bool cached_;
  const StopFlagPtr stop_;
  const std::shared_ptr<StageTimes> times_;
  Stage* const stage_;

  uint64_t epoch_ = 0;
  int64_t taken_ = 0;  // elements of the input
  bool ended_ = false;
  std::vector<std::optional<Slot>> slots_;
  size_t turn_ = 0;
  int64_t in_block_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_INTERLEAVE_STREAM_H_
