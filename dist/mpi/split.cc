// Parts of a job that is together through MPI.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "dist/membership/rank_name.h"
#include "dist/mpi/mpi_group.h"
#include "engine/caught.h"

namespace sluice::dist {

MpiGroup* MpiGroup::Subgroup(std::string_view name) {
  for (const auto& [known, part] : parts_) {
    if (known == name) return part.get();
  }
  return nullptr;
}

Status MpiGroup::Split(std::string_view name, int color, int key) {
  const CallQueue::Turn turn(queue_);
  MutexLock lock(mutex_);
  if (!broken_.ok()) return broken_;
  try {
    Result<std::unique_ptr<MpiGroup>> part = FormPart(name, color, key);
    if (!part.ok()) {
      if (broken_.ok()) broken_ = Known(part.status());
    } else if (*part != nullptr) {
      parts_.emplace_back(name, *std::move(part));
    }
  } catch (...) {
    broken_ = Known(CaughtStatus());
  }
  return broken_;
}

Result<std::unique_ptr<MpiGroup>> MpiGroup::FormPart(std::string_view name,
                                                     int color, int key) {
  const std::string what = fmt::format("split '{}'", name);
  const bool is_new = !name.empty() && Subgroup(name) == nullptr;
  const Status ready =
      is_new ? Status()
             : AlreadyExists(what + ": a part has a name of its own");
  const LongWaits::Wait wait(waits_.get(), what);
  // Colours and keys are no matter of agreement.
  SLUICE_RETURN_IF_ERROR(Begin(ready, what));
  MpiPlace place;
  SLUICE_RETURN_IF_ERROR(
      Said(calls_.split(place_.communicator, color, key, &place)));
  if (place.size == 0) return std::unique_ptr<MpiGroup>();
  std::vector<int> ranks(static_cast<size_t>(place.size));
  SLUICE_RETURN_IF_ERROR(
      Said(calls_.all_gather(place.communicator, &owner_.job_rank,
                             sizeof(owner_.job_rank), ranks.data())));
  return std::unique_ptr<MpiGroup>(
      new MpiGroup(calls_, place,
                   {owner_.job_rank, owner_.job_size, owner_.cores,
                    SubgroupName(name, ranks, owner_.job_size)},
                   options_));
}

}  // namespace sluice::dist
