// Streams that pass some of their input on. Internal to io.
#ifndef SLUICE_IO_PIPELINE_FILTER_STREAM_H_
#define SLUICE_IO_PIPELINE_FILTER_STREAM_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "io/pipeline/dataset_node.h"

namespace sluice {

using Predicate = std::function<bool(const Example&)>;

class FilterStream : public Stream<Example> {
 public:
  FilterStream(StreamPtr<Example> input, Predicate keep,
               std::shared_ptr<const StopFlag> stop)
      : input_(std::move(input)),
        keep_(std::move(keep)),
        stop_(std::move(stop)) {}
  Status StartEpoch(uint64_t epoch) override {
    return input_->StartEpoch(epoch);
  }
  Result<bool> Next(Example* example) override;
  void Save(Mark* mark) const override { input_->Save(mark); }
  Status Restore(MarkReader* mark) override { return input_->Restore(mark); }

 private:
  StreamPtr<Example> input_;
  const Predicate keep_;
  const std::shared_ptr<const StopFlag> stop_;
};

// All of it, and an error where that are not n.
class ExpectSizeStream : public Stream<Example> {
 public:
  // `source`, unless empty, is what said how many there are, for messages.
  ExpectSizeStream(StreamPtr<Example> input, int64_t n,
                   const std::string& source = "");
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* example) override;
  Result<int64_t> Skip(int64_t n) override;
  void Save(Mark* mark) const override;
  Status Restore(MarkReader* mark) override;

 private:
  // Notes that `got` of `wanted` elements came.
  Status Count(int64_t got, int64_t wanted);

  StreamPtr<Example> input_;
  const int64_t n_;
  const std::string by_;
  int64_t seen_ = 0;
};

// Dataset::ExpectSize, whose errors name `source`.
Dataset ExpectSizeOf(const Dataset& dataset, int64_t n,
                     const std::string& source);

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_FILTER_STREAM_H_
