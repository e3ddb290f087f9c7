// A stream whose elements are kept. Internal to io.
#ifndef SLUICE_IO_PIPELINE_CACHE_STREAM_H_
#define SLUICE_IO_PIPELINE_CACHE_STREAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "io/cache/example_cache.h"
#include "io/pipeline/example_stream.h"

namespace sluice {

// The elements that the streams of one Cache share.
struct CachedElements {
  std::unique_ptr<ExampleCache> examples;
  bool outlives_process = false;
  std::atomic<int64_t> size;  // how many there are; negative: not known yet
};

// Reads the input only for what is not kept. How many elements there are is
// kept, too, under a number that no element has, where others may want it.
class CacheStream : public Stream<Example> {
 public:
  CacheStream(StreamPtr<Example> input, std::shared_ptr<CachedElements> kept)
      : input_(std::move(input)), kept_(std::move(kept)) {}
  Status StartEpoch(uint64_t epoch) override;
  Result<bool> Next(Example* example) override;
  Result<int64_t> Skip(int64_t n) override;
  void Save(Mark* mark) const override { mark->push_back(at_); }
  Status Restore(MarkReader* mark) override;

 private:
  Result<bool> BringInput(int64_t to);
  Status NoteSize(int64_t size);

  StreamPtr<Example> input_;
  const std::shared_ptr<CachedElements> kept_;
  bool read_ = false;     // the input, in this epoch
  int64_t at_ = 0;        // the next element
  int64_t input_at_ = 0;  // the input's next; input_at_ <= at_
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_CACHE_STREAM_H_
