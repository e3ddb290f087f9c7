#include "io/pipeline/stage.h"

#include <utility>

#include "engine/runtime/trace.h"
#include "io/pipeline/dataset_node.h"

namespace sluice {
namespace {

// Where this thread is, and since when it has been there alone.
thread_local Stage* current = nullptr;
thread_local int64_t since_ns = 0;

class MeasuredStream : public Stream<Example> {
 public:
  MeasuredStream(StreamPtr<Example> stream, std::shared_ptr<StageTimes> times,
                 Stage* stage)
      : times_(std::move(times)), stage_(stage), stream_(std::move(stream)) {}
  Status StartEpoch(uint64_t epoch) override {
    const InStage in(stage_);
    return stream_->StartEpoch(epoch);
  }
  Result<bool> Next(Example* example) override {
    const InStage in(stage_);
    Result<bool> more = stream_->Next(example);
    if (more.ok() && *more) stage_->Gave(1);
    return more;
  }
  Result<int64_t> Skip(int64_t n) override {
    const InStage in(stage_);
    return stream_->Skip(n);
  }
  Status PassOver(int64_t n) override {
    const InStage in(stage_);
    return stream_->PassOver(n);
  }
  void Save(Mark* mark) const override { stream_->Save(mark); }
  Status Restore(MarkReader* mark) override {
    const InStage in(stage_);
    return stream_->Restore(mark);
  }

 protected:
  Stage* stage() const { return stage_; }

 private:
  const std::shared_ptr<StageTimes> times_;  // outlives the stream's threads
  Stage* const stage_;
  StreamPtr<Example> stream_;
};

class MeasuredBatcher : public MeasuredStream, public Batcher {
 public:
  MeasuredBatcher(StreamPtr<Example> stream, Batcher* batcher,
                  std::shared_ptr<StageTimes> times, Stage* stage)
      : MeasuredStream(std::move(stream), std::move(times), stage),
        batcher_(batcher) {}
  Result<int64_t> NextBatch(int64_t n, Example* batch) override {
    const InStage in(stage());
    Result<int64_t> count = batcher_->NextBatch(n, batch);
    if (count.ok()) stage()->Gave(*count);
    return count;
  }

 private:
  Batcher* const batcher_;  // the stream
};

}  // namespace

// Within a stage that is measured all are, or their time would be its own.
InStage::InStage(Stage* stage) {
  if (stage == nullptr) return;
  measured_ = current != nullptr || stage->measuring();
  if (!measured_) return;
  const int64_t now = SteadyNowNs();
  outer_ = std::exchange(current, stage);
  if (outer_ != nullptr) outer_->Spent(since_ns, now);
  since_ns = now;
}

InStage::~InStage() {
  if (!measured_) return;
  const int64_t now = SteadyNowNs();
  std::exchange(current, outer_)->Spent(since_ns, now);
  since_ns = now;
}

Waiting::Waiting() : outer_(std::exchange(current, nullptr)) {
  if (outer_ != nullptr) outer_->Spent(since_ns, SteadyNowNs());
}

Waiting::~Waiting() {
  current = outer_;
  if (outer_ != nullptr) since_ns = SteadyNowNs();
}

StreamPtr<Example> Measured(StreamPtr<Example> stream,
                            std::shared_ptr<StageTimes> times, Stage* stage) {
  auto* batcher = dynamic_cast<Batcher*>(stream.get());
  if (batcher == nullptr) {
    return std::make_unique<MeasuredStream>(std::move(stream), std::move(times),
                                            stage);
  }
  return std::make_unique<MeasuredBatcher>(std::move(stream), batcher,
                                           std::move(times), stage);
}

StreamPtr<Example> DatasetNode::Open(const Opening& opening) const {
  const std::string name = opening.times == nullptr ? "" : stage();
  if (name.empty()) return OpenStream(opening);
  Opening own = opening;
  own.stage = opening.times->Find(opening.stage, opening.input, name);
  own.input = 0;
  return Measured(OpenStream(own), opening.times, own.stage);
}

}  // namespace sluice
