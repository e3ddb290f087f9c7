// The datasets that Interleave opens, in the order of its input. Internal to
// io.
#ifndef SLUICE_IO_PIPELINE_PARTS_H_
#define SLUICE_IO_PIPELINE_PARTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "io/pipeline/dataset_node.h"
#include "io/pipeline/revisit.h"

namespace sluice {

// The elements of one dataset, and where the input's element stands that it
// was opened for.
struct Part {
  Place place;
  StreamPtr<Example> stream;
};

// Makes an element's dataset. Thread-safe if the function is.
class PartOpener {
 public:
  using Open = std::function<Dataset(const Example&)>;
  // The input is opened with `opening`.
  PartOpener(Open open, const Opening& opening);
  // Opens the stream of element `number` of that epoch of the input, at its
  // begin.
  Result<StreamPtr<Example>> operator()(const Example& element, int64_t number,
                                        uint64_t epoch) const;

 private:
  const Open open_;
  const Opening opening_;  // of what is opened
};

class Parts {
 public:
  virtual ~Parts() = default;
  virtual Status StartEpoch(uint64_t epoch) = 0;
  // The next one; false where the input has ended. It must not outlive this.
  virtual Result<bool> Next(Part* part) = 0;
  // Saves where this is, and the places of the earlier parts that are still
  // open.
  virtual void Save(std::span<const Place* const> open, Mark* mark) const = 0;
  // Goes there, right after StartEpoch, and gives those parts, at their begin.
  virtual Result<std::vector<Part>> Restore(MarkReader* mark) = 0;
};

// Reads the parts on the caller's thread.
class PartsInTurn : public Parts {
 public:
  PartsInTurn(StreamPtr<Example> input, PartOpener open)
      : input_(std::move(input)), open_(std::move(open)) {}
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Part* part) override;
  void Save(std::span<const Place* const> open, Mark* mark) const override;
  Result<std::vector<Part>> Restore(MarkReader* mark) override;

 private:
  StreamPtr<Example> input_;
  const PartOpener open_;
  uint64_t epoch_ = 0;
  int64_t taken_ = 0;  // elements of the input
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_PARTS_H_
