// Reads who a process is from the variables of other launchers than sluicerun:
// SLUICE_CONFIG or TF_CONFIG, Open MPI's mpirun, Slurm's srun. Internal to
// dist.
#ifndef SLUICE_DIST_OTHER_LAUNCHERS_H_
#define SLUICE_DIST_OTHER_LAUNCHERS_H_

#include <optional>

#include "dist/launch_info.h"
#include "engine/status.h"

namespace sluice::dist {

// nullopt where none of them has started this process; kInvalidArgument where
// two have, or what they say makes no sense or is not enough.
Result<std::optional<LaunchInfo>> ReadOtherLaunchers();

// Whether SLUICE_ALLOW_PLAINTEXT, or SLUICE_SERVERS_RETURN, is 1, whoever has
// set it. kInvalidArgument where it is neither that nor 0.
Result<bool> PlaintextAllowed();
Result<bool> ServersReturn();

// Where the process with this local rank is to listen by SLUICE_FIRST_PORT,
// whoever has set it; 0: it is not set. kInvalidArgument where that is no port.
Result<int> OwnPort(int local_rank);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_OTHER_LAUNCHERS_H_
