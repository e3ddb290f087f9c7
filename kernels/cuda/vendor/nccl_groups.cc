#include "kernels/cuda/vendor/nccl_ranks.h"

namespace sluice::cuda {

const DeviceGroups& NcclGroups() {
  static const DeviceGroups groups = {
      .check = [] { return FindNccl().status(); },
      .make_id = []() -> Result<std::string> {
        SLUICE_ASSIGN_OR_RETURN(const Nccl* const nccl, FindNccl());
        return NcclRanks::MakeId(*nccl);
      },
      .join =
          [](const DevicePlace& place) -> Result<std::unique_ptr<DeviceGroup>> {
        SLUICE_ASSIGN_OR_RETURN(const Nccl* const nccl, FindNccl());
        return NcclRanks::Join(*nccl, place);
      }};
  return groups;
}

}  // namespace sluice::cuda
