// How many cores a process has beside the others of its job on its host.
#ifndef SLUICE_DIST_OWN_CORES_H_
#define SLUICE_DIST_OWN_CORES_H_

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// The number of cores that this process has of those that it may run on
// (AvailableCores): all where it is `pinned` (LaunchInfo), else its part of
// them beside the others that may run there, of the `local_size` processes of
// the job on this host. 0: less than one.
//
// Which processes may run there, where a launcher has bound processes: - Slurm
// says what each task of the node may run on (SLURM_CPU_BIND_LIST).
//   SLURM_CPU_BIND_TYPE alone does not tell: it is mask_cpu, too, where all
//   tasks have one mask, all of the job's CPUs, since none are bound.
// - Open MPI binds to cores, or by the socket, which several then share, and
//   says nothing. Together they have what mpirun's daemon, which starts them
//   and is bound to nothing, may run on.
// - Else all may run where this one may: processes are bound by nobody, or by
//   what holds for all of them (a cpuset, taskset).
int OwnCores(bool pinned, int local_size);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_OWN_CORES_H_
