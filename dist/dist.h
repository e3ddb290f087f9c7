// Horovod's verbs, for programs below the trainer: one group per process.
//
//   dist::Init();
//   Tensor mean = dist::AllReduce("gradient", local);
//   if (dist::Rank() == 0) ...
//   dist::Shutdown();
//
// They throw Error. One thread at a time uses them: collectives are matched in
// the order in which each process calls them, which threads would make a matter
// of chance. Tensors may be of any threads.
#ifndef SLUICE_DIST_DIST_H_
#define SLUICE_DIST_DIST_H_

#include <memory>
#include <string_view>
#include <vector>

#include "dist/collective/options.h"
#include "engine/runtime/collective.h"
#include "engine/tensor.h"
#include "engine/visibility.h"
#include "graph/graph.h"
#include "graph/session/session.h"

namespace SLUICE_PUBLIC sluice {
namespace dist {

// Joins the job of which the launcher has told this process (launch_info.h);
// without a launcher the process is a job of its own. kFailedPrecondition
// between an Init and its Shutdown. A launched process joins once.
void Init(const GroupOptions& options = {});
// Joins, in place of Init, the processes that mpirun or srun has started,
// through MPI alone. Data goes to other hosts in the clear, which is refused
// unless `allow_plaintext` or SLUICE_ALLOW_PLAINTEXT=1 allows it. kUnavailable
// where there is no MPI, kInvalidArgument for a process that sluicerun has
// started. Once in a process.
void InitByMpi(bool allow_plaintext = false);
// Leaves the job; the peers' next collectives with this process fail. Does
// nothing where there was no Init. Through MPI it waits for the other processes
// to leave, too.
void Shutdown();

// This process's rank and the number of processes: in the job, and among those
// on this host. These and all calls below are kFailedPrecondition before Init
// or InitByMpi.
int Rank();
int Size();
int LocalRank();
int LocalSize();

// The mean or sum of all processes' tensors, which are of one shape and dtype:
// floating, or int32 and int64 with kSum.
Tensor AllReduce(std::string_view name, const Tensor& tensor,
                 Reduction how = Reduction::kMean);
// Returns the tensors of all processes, one behind another by rank: shape [n,
// ...] of each becomes [size * n, ...]. Scalars become a vector.
Tensor AllGather(std::string_view name, const Tensor& tensor);
// The sum or mean that AllReduce computes, of which each process gets its share
// of the first dimension: shape [n, ...] of each becomes [n / size, ...], and
// one row more for the first n % size ranks. kInvalidArgument for scalars.
Tensor ReduceScatter(std::string_view name, const Tensor& tensor,
                     Reduction how = Reduction::kMean);
// Shape [size * n, ...], n rows for every process, becomes that shape with the
// rows that every process has for this one, by rank. kInvalidArgument where the
// first dimension is no multiple of the size. What each process sends grows
// with the square of their number (Group::AllToAll in dist/collective/group.h).
Tensor AllToAll(std::string_view name, const Tensor& tensor);
// Returns the tensor of `root` on every process. The tensors of the others give
// its dtype and shape.
Tensor Broadcast(std::string_view name, const Tensor& tensor, int root);
// Gives the variables of this process's session the values of `root`'s, and its
// number of the step: before the first step, so that all train one model
// (`Graph::Variables()`, the same in all processes), with
// Optimizer::WithAllReduce. Only `root` need have initialised them.
// kFailedPrecondition for all where one has other variables; kInvalidArgument
// where some are parts (VariableOptions::part_of), which are not each other's.
void BroadcastVariables(Session& session, const std::vector<Output>& variables,
                        int root = 0);
// For a process without further data: takes part in the others' AllReduces with
// zeros until all processes have called it. A mean is still one over Size()
// processes. Any other verb of a process that has not called Join is
// kFailedPrecondition for all. Returns the rank that came last, the same for
// all: of those with the most verbs behind them the highest.
int Join();
// Makes the processes that give one `color` a group of their own, in the order
// of their keys and ranks, which ops of sessions choose by this name; a process
// that gives a colour below 0 is in no group. All processes call it together.
void Split(std::string_view name, int color, int key = 0);
// The processes of the job for the ops of graph/ops/collective.h: what
// SessionOptions::collective takes. Steps and the verbs above have one order.
// The process leaves the job when this pointer is let go and Shutdown was
// called.
std::shared_ptr<Collective> JobCollective();
// Returns when all processes have called it.
void Barrier(std::string_view name = "barrier");

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_DIST_H_
