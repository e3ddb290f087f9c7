#include "io/pipeline/parts_ahead.h"

#include <algorithm>

namespace sluice {

// One part, as its reader sees it.
class PartsAhead::PartStream : public Stream<Example> {
 public:
  PartStream(PartsAhead* parts, AheadPartPtr part)
      : parts_(parts), part_(std::move(part)) {}
  ~PartStream() override { parts_->Drop(part_.get()); }
  Status StartEpoch(uint64_t /*epoch*/) override {
    return Internal("a part is at its begin already");
  }
  Result<bool> Next(Example* example) override {
    return parts_->Take(part_, example);
  }
  void Save(Mark* mark) const override { parts_->SavePart(*part_, mark); }
  // Right after it was given, before any thread runs.
  Status Restore(MarkReader* mark) override {
    SLUICE_CHECK(!parts_->running());
    return part_->stream->Restore(mark);
  }

 private:
  PartsAhead* const parts_;
  const AheadPartPtr part_;
};

PartsAhead::PartsAhead(StreamPtr<Example> input, PartOpener open, int64_t cycle,
                       int64_t block, MapThreads threads,
                       const Opening& opening)
    : AheadThreads(std::move(threads), opening),
      input_(std::move(input)),
      open_(std::move(open)),
      cycle_(static_cast<size_t>(cycle)),
      most_ahead_(static_cast<size_t>(std::max(block, kLeastAhead))),
      marks_(opening.marks),
      input_bytes_(opening.ahead) {}

PartsAhead::~PartsAhead() {
  StopThreads();
}

Status PartsAhead::StartEpoch(uint64_t epoch) {
  StopThreads();
  epoch_ = epoch;
  next_ = taken_ = 0;
  MutexLock lock(mutex_);
  upcoming_.clear();
  queue_.clear();
  awaited_ = nullptr;
  parts_ = 0;
  bytes_.Clear();
  input_bytes_.Clear();
  lacks_room_ = false;
  next_awaited_ = reading_ = input_ended_ = false;
  error_ = {};
  return input_->StartEpoch(epoch);
}

Status PartsAhead::Start() {
  if (marks_) {
    mark_.clear();
    input_->Save(&mark_);
    input_at_ = mark_;
    MutexLock lock(mutex_);
    for (const AheadPartPtr& part : queue_) part->stream->Save(&part->at);
  }
  next_ = taken_;
  return StartThreads();
}

StreamPtr<Example> PartsAhead::StreamOf(AheadPartPtr part) {
  return std::make_unique<PartStream>(this, std::move(part));
}

Result<bool> PartsAhead::Next(Part* part) {
  if (!running()) SLUICE_RETURN_IF_ERROR(Start());
  MutexLock lock(mutex_);
  next_awaited_ = true;
  if (upcoming_.empty()) changed_.NotifyAll();
  WaitUntil(
      [&]() REQUIRES(mutex_) { return !upcoming_.empty() || input_ended_; });
  next_awaited_ = false;
  if (upcoming_.empty()) {
    if (!error_.ok()) return error_;
    return false;
  }
  AheadPartPtr next = std::move(upcoming_.front());
  upcoming_.pop_front();
  taken_ = next->number + 1;
  mark_ = std::move(next->after);
  part->place = {.number = next->number, .before = std::move(next->before)};
  part->stream = StreamOf(std::move(next));
  return true;
}

void PartsAhead::Save(std::span<const Place* const> open, Mark* mark) const {
  SLUICE_CHECK(!running() || marks_);
  const auto save_input = [&](Mark* at) {
    if (!running()) return input_->Save(at);
    at->insert(at->end(), mark_.begin(), mark_.end());
  };
  SavePlaces(open, taken_, save_input, mark);
}

Result<std::vector<Part>> PartsAhead::Restore(MarkReader* mark) {
  std::vector<Part> open;
  SLUICE_RETURN_IF_ERROR(Revisit(
      mark, input_.get(),
      [&](Place place, const Example& element) -> Status {
        auto part = std::make_shared<AheadPart>();
        part->number = place.number;
        SLUICE_ASSIGN_OR_RETURN(part->stream,
                                open_(element, place.number, epoch_));
        {
          MutexLock lock(mutex_);
          ++parts_;
          Queue(part);
        }
        open.push_back({std::move(place), StreamOf(std::move(part))});
        return {};
      },
      &taken_));
  return open;
}

void PartsAhead::Queue(const AheadPartPtr& part) {
  part->queued = true;
  queue_.push_back(part);
}

void PartsAhead::QueueIfFew(const AheadPartPtr& part) {
  if (part->queued || part->in_hand || part->ended) return;
  if (2 * part->ready.size() > most_ahead_) return;
  Queue(part);
  changed_.NotifyAll();
}

// Its next element; one that is waited for whether there is room or not.
bool PartsAhead::MayHold(AheadPart* part) {
  const bool must = part == awaited_.get() && part->ready.empty();
  if (bytes_.Begin(must, &part->held)) return true;
  lacks_room_ = true;
  return false;
}

// Null where there is no room for an element of it.
AheadThreads::Work PartsAhead::ReadOf(const AheadPartPtr& part) {
  if (!MayHold(part.get())) return nullptr;
  part->queued = false;
  part->in_hand = true;
  return [this, part] { ReadPart(part); };
}

AheadThreads::Work PartsAhead::TakeWork() {
  if (awaited_ != nullptr && awaited_->queued) return ReadOf(awaited_);
  const size_t most = cycle_ + static_cast<size_t>(wanted());
  if (!reading_ && !input_ended_ && parts_ < most) {
    size_t held = 0;
    reading_ = input_bytes_.Begin(/*must=*/next_awaited_, &held);
    if (reading_) return [this, held] { ReadInput(held); };
    lacks_room_ = true;
  }
  while (!queue_.empty() && !queue_.front()->queued) queue_.pop_front();
  if (queue_.empty()) return nullptr;
  Work work = ReadOf(queue_.front());
  if (work != nullptr) queue_.pop_front();
  return work;
}

void PartsAhead::ReadInput(size_t held) {
  int64_t since_ns = timed() ? SteadyNowNs() : 0;
  AheadPartPtr part;
  Result<bool> more = false;
  Status status = CatchErrors([&] {
    part = std::make_shared<AheadPart>();
    part->number = next_;
    more = input_->Next(&part->element);
    if (!marks_ || !more.ok() || !*more) return;
    part->before = std::move(input_at_);
    input_at_.clear();
    input_->Save(&input_at_);
    part->after = input_at_;
  });
  if (status.ok()) status = more.status();
  MutexLock lock(mutex_);
  reading_ = false;
  if (timed()) window_.reading += SecondsSince(&since_ns);
  if (status.ok() && *more) {
    input_bytes_.Made(HeldBytes(part->element), &held);
    part->element_held = held;
    ++next_;
    ++parts_;
    upcoming_.push_back(part);
    Queue(part);
  } else {
    input_bytes_.Drop(&held);
    error_ = status;
    input_ended_ = true;
  }
  changed_.NotifyAll();
}

Status PartsAhead::OpenPart(AheadPart* part, Mark* begin) {
  SLUICE_ASSIGN_OR_RETURN(part->stream,
                          open_(part->element, part->number, epoch_));
  part->element = {};
  if (!marks_) return {};
  return CatchErrors([&] { part->stream->Save(begin); });
}

// The first error, at opening or reading, is the last of a part.
void PartsAhead::ReadPart(const AheadPartPtr& part) {
  const InStage in(stage());
  int64_t since_ns = timed() ? SteadyNowNs() : 0;
  Status status;
  if (part->stream == nullptr) {
    Mark begin;
    status = OpenPart(part.get(), &begin);
    MutexLock lock(mutex_);
    part->at = std::move(begin);
  }
  for (bool go_on = true; go_on;) {
    AheadPart::Ready next;
    Result<bool> more = false;
    if (status.ok()) {
      status = CatchErrors([&] {
        more = part->stream->Next(&next.example);
        if (marks_ && more.ok() && *more) part->stream->Save(&next.end);
      });
    }
    if (status.ok()) status = more.status();
    MutexLock lock(mutex_);
    part->ended = !status.ok() || !*more;
    part->error = status;
    if (part->ended) {
      bytes_.Drop(&part->held);
    } else {
      bytes_.Made(HeldBytes(next.example), &part->held);
      next.held = std::exchange(part->held, 0);
      part->ready.push_back(std::move(next));
    }
    go_on = part->in_hand = !part->ended && MayGoOn(part.get());
    if (!go_on && timed()) window_.mapping += SecondsSince(&since_ns);
    QueueIfFew(part);
    if (part == awaited_) changed_.NotifyAll();
  }
}

// Not while somebody waits for another part.
bool PartsAhead::MayGoOn(AheadPart* part) {
  if (stop_ || part->ready.size() >= most_ahead_) return false;
  if (next_awaited_ && !reading_) return false;
  if (awaited_ != nullptr && awaited_.get() != part && awaited_->queued) {
    return false;
  }
  return MayHold(part);
}

Result<bool> PartsAhead::Take(const AheadPartPtr& part, Example* example) {
  if (!running()) SLUICE_RETURN_IF_ERROR(Start());
  Adapt(1);
  MutexLock lock(mutex_);
  const auto ready = [&]() REQUIRES(mutex_) {
    return !part->ready.empty() || part->ended;
  };
  if (!ready()) {
    awaited_ = part;
    changed_.NotifyAll();
    WaitUntil(ready);
    awaited_ = nullptr;
  }
  if (part->ready.empty()) {
    if (!part->error.ok()) return part->error;
    return false;
  }
  *example = std::move(part->ready.front().example);
  part->at = std::move(part->ready.front().end);
  bytes_.Drop(&part->ready.front().held);
  part->ready.pop_front();
  ++window_.elements;
  QueueIfFew(part);
  if (std::exchange(lacks_room_, false)) changed_.NotifyAll();
  return true;
}

void PartsAhead::Drop(AheadPart* part) {
  MutexLock lock(mutex_);
  part->queued = false;
  for (AheadPart::Ready& ready : part->ready) bytes_.Drop(&ready.held);
  input_bytes_.Drop(&part->element_held);
  --parts_;
  changed_.NotifyAll();
}

void PartsAhead::SavePart(const AheadPart& part, Mark* mark) const {
  if (!running()) return part.stream->Save(mark);
  SLUICE_CHECK(marks_);
  mark->insert(mark->end(), part.at.begin(), part.at.end());
}

}  // namespace sluice
