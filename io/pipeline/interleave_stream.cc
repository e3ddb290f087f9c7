#include "io/pipeline/interleave_stream.h"

#include <map>

namespace sluice {

Status InterleaveStream::StartEpoch(uint64_t epoch) {
  ended_ = false;
  for (std::optional<Part>& slot : slots_) slot.reset();
  turn_ = 0;
  in_block_ = 0;
  return parts_->StartEpoch(epoch);
}

void InterleaveStream::NextSlot() {
  turn_ = (turn_ + 1) % slots_.size();
  in_block_ = 0;
}

Result<bool> InterleaveStream::Next(Example* example) {
  for (size_t empty = 0; empty < slots_.size();) {
    std::optional<Part>& slot = slots_[turn_];
    if (!slot && !ended_) {
      Part part;
      SLUICE_ASSIGN_OR_RETURN(const bool more, parts_->Next(&part));
      if (more) slot = std::move(part);
      ended_ = !more;
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
  parts_->Save(places, mark);
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
  SLUICE_ASSIGN_OR_RETURN(std::vector<Part> open, parts_->Restore(mark));
  for (Part& part : open) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t at, mark->Next(0, cycle - 1));
    SLUICE_RETURN_IF_ERROR(part.stream->Restore(mark));
    slots_[static_cast<size_t>(at)] = std::move(part);
  }
  return {};
}

}  // namespace sluice
