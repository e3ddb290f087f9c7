#include "io/pipeline/interleave_stream.h"

#include <algorithm>
#include <map>

namespace sluice {

InterleaveStream::InterleaveStream(StreamPtr<Example> input, Open open,
                                   int64_t cycle, int64_t block,
                                   const Opening& opening)
    : input_(std::move(input)),
      open_(std::move(open)),
      block_(block),
      cached_(opening.cached),
      stop_(opening.stop),
      times_(opening.times),
      stage_(opening.stage),
      slots_(static_cast<size_t>(cycle)) {}

Status InterleaveStream::StartEpoch(uint64_t epoch) {
  epoch_ = epoch;
  taken_ = 0;
  ended_ = false;
  for (std::optional<Slot>& slot : slots_) slot.reset();
  turn_ = 0;
  in_block_ = 0;
  return input_->StartEpoch(epoch);
}

void InterleaveStream::NextSlot() {
  turn_ = (turn_ + 1) % slots_.size();
  in_block_ = 0;
}

Status InterleaveStream::OpenSlot(Place place, const Example& element,
                                  Slot* slot) const {
  SLUICE_RETURN_IF_ERROR(CatchErrors([&] {
    slot->node = open_(element).node();
    RequireExamples(*slot->node, "a dataset that Interleave opens");
    if (cached_) RefuseToCache(*slot->node);
    // Input 1, after the elements that are opened: one stage for all of them.
    slot->stream = slot->node->Open({.cached = cached_,
                                     .marks = true,
                                     .stop = stop_,
                                     .times = times_,
                                     .stage = stage_,
                                     .input = 1});
  }));
  // Random steps draw by it, and each element's are to draw something else.
  const uint64_t epoch = HashKey(epoch_, static_cast<uint64_t>(place.number));
  slot->place = std::move(place);
  return slot->stream->StartEpoch(epoch);
}

// False where the input has ended.
Result<bool> InterleaveStream::Fill(std::optional<Slot>* slot) {
  Place place = {.number = taken_, .before = {}};
  input_->Save(&place.before);
  Example element;
  SLUICE_ASSIGN_OR_RETURN(const bool more, input_->Next(&element));
  if (!more) return false;
  SLUICE_RETURN_IF_ERROR(OpenSlot(std::move(place), element, &slot->emplace()));
  ++taken_;
  return true;
}

Result<bool> InterleaveStream::Next(Example* example) {
  for (size_t empty = 0; empty < slots_.size();) {
    std::optional<Slot>& slot = slots_[turn_];
    if (!slot && !ended_) {
      SLUICE_ASSIGN_OR_RETURN(const bool filled, Fill(&slot));
      ended_ = !filled;
    }
    if (!slot) {
      ++empty;
      NextSlot();
      continue;
    }
    empty = 0;
    SLUICE_RETURN_IF_ERROR(stop_->Check());
    SLUICE_ASSIGN_OR_RETURN(const bool more, slot->stream->Next(example));
    if (more) {
      if (++in_block_ == block_) NextSlot();
      return true;
    }
    slot.reset();
    NextSlot();
  }
  return false;
}

void InterleaveStream::Save(Mark* mark) const {
  std::map<int64_t, size_t> open;  // slots by the number of their element
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i]) open[slots_[i]->place.number] = i;
  }
  mark->push_back(static_cast<int64_t>(turn_));
  mark->push_back(in_block_);
  std::vector<const Place*> places;
  for (const auto& [number, slot] : open) {
    places.push_back(&slots_[slot]->place);
  }
  SavePlaces(places, taken_, *input_, mark);
  for (const auto& [number, slot] : open) {
    mark->push_back(static_cast<int64_t>(slot));
    slots_[slot]->stream->Save(mark);
  }
}

Status InterleaveStream::Restore(MarkReader* mark) {
  const auto cycle = static_cast<int64_t>(slots_.size());
  SLUICE_ASSIGN_OR_RETURN(const int64_t turn, mark->Next(0, cycle - 1));
  turn_ = static_cast<size_t>(turn);
  SLUICE_ASSIGN_OR_RETURN(in_block_, mark->Next(0, block_ - 1));
  std::vector<Slot> open;
  SLUICE_RETURN_IF_ERROR(Revisit(
      mark, input_.get(),
      [&](Place place, const Example& element) {
        return OpenSlot(std::move(place), element, &open.emplace_back());
      },
      &taken_));
  for (Slot& slot : open) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t at, mark->Next(0, cycle - 1));
    SLUICE_RETURN_IF_ERROR(slot.stream->Restore(mark));
    slots_[static_cast<size_t>(at)] = std::move(slot);
  }
  return {};
}

}  // namespace sluice
