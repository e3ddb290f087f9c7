// Streams of several inputs. Internal to io.
#ifndef SLUICE_IO_PIPELINE_COMBINED_STREAMS_H_
#define SLUICE_IO_PIPELINE_COMBINED_STREAMS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "io/pipeline/example_stream.h"

namespace sluice {

using Streams = std::vector<StreamPtr<Example>>;

class ZipStream : public Stream<Example> {
 public:
  explicit ZipStream(Streams inputs) : inputs_(std::move(inputs)) {}
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* example) override;
  Result<int64_t> Skip(int64_t n) override;
  void Save(Mark* mark) const override;
  Status Restore(MarkReader* mark) override;

 private:
  Streams inputs_;
};

class ConcatenateStream : public Stream<Example> {
 public:
  explicit ConcatenateStream(Streams inputs) : inputs_(std::move(inputs)) {}
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* example) override;
  Result<int64_t> Skip(int64_t n) override;
  void Save(Mark* mark) const override;
  Status Restore(MarkReader* mark) override;

 private:
  Streams inputs_;
  size_t current_ = 0;
};

class ChooseStream : public Stream<Example> {
 public:
  ChooseStream(Streams inputs, std::vector<double> weights, uint64_t seed)
      : inputs_(std::move(inputs)),
        weights_(std::move(weights)),
        seed_(seed),
        ended_(inputs_.size()) {}
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* example) override;
  Result<int64_t> Skip(int64_t n) override;
  void Save(Mark* mark) const override;
  Status Restore(MarkReader* mark) override;

 private:
  // Gives inputs to `use`, which says whether they have not ended, until it
  // does; false where none is left.
  template <typename Use>
  Result<bool> UseOne(const Use& use);
  size_t Draw() const;

  Streams inputs_;
  const std::vector<double> weights_;
  const uint64_t seed_;
  uint64_t epoch_ = 0;
  std::vector<bool> ended_;
  int64_t drawn_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_COMBINED_STREAMS_H_
