#include "graph/session/lanes.h"

#include <algorithm>

namespace sluice {

void Lanes::Open(int count,
                 const std::vector<std::unique_ptr<Device>>& devices) {
  MutexLock lock(mutex_);
  for (int i = 0; i < count; ++i) {
    auto lane = std::make_unique<Lane>();
    lane->index = i;
    for (const auto& device : devices) {
      lane->arenas[device.get()] = std::make_unique<Arena>(device->memory());
    }
    lanes_.push_back(std::move(lane));
    taken_.push_back(false);
  }
}

void Lanes::Stop(const Status& status) {
  for (const auto& lane : lanes_) lane->stop.Stop(status);
}

void Lanes::Stop(const RunKey& run, const Status& status) {
  for (const auto& lane : lanes_) lane->stop.Stop(run, status);
}

Lane& Lanes::Take() {
  MutexLock lock(mutex_);
  return Await(next_place_++);
}

Lane& Lanes::Take(uint64_t place) {
  MutexLock lock(mutex_);
  return Await(place);
}

Lane* Lanes::TryTake() {
  MutexLock lock(mutex_);
  const bool free =
      std::find(taken_.begin(), taken_.end(), false) != taken_.end();
  if (!free || want_all_ > 0 || next_place_ != next_turn_) return nullptr;
  return &Await(next_place_++);
}

Lane& Lanes::Await(uint64_t place) {
  while (true) {
    const auto free = std::find(taken_.begin(), taken_.end(), false);
    if (place == next_turn_ && want_all_ == 0 && free != taken_.end()) {
      *free = true;
      ++next_turn_;
      changed_.NotifyAll();  // there may be a lane for the next one, too
      return *lanes_[free - taken_.begin()];
    }
    changed_.Wait(mutex_);
  }
}

void Lanes::Give(const Lane& lane) {
  MutexLock lock(mutex_);
  taken_[lane.index] = false;
  changed_.NotifyAll();
}

void Lanes::TakeAll() {
  MutexLock lock(mutex_);
  ++want_all_;
  while (std::find(taken_.begin(), taken_.end(), true) != taken_.end()) {
    changed_.Wait(mutex_);
  }
  --want_all_;
  taken_.assign(taken_.size(), true);
}

void Lanes::GiveAll() {
  MutexLock lock(mutex_);
  taken_.assign(taken_.size(), false);
  changed_.NotifyAll();
}

}  // namespace sluice
