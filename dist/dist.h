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
// In its place: joins those that mpirun or srun has started, through MPI alone.
// What goes to other hosts is in the clear, and refused unless this or
// SLUICE_ALLOW_PLAINTEXT=1 allows it. kUnavailable where there is no MPI,
// kInvalidArgument for a process of sluicerun's. Once in a process.
void InitByMpi(bool allow_plaintext = false);
// Leaves; the peers' next collectives with this process fail. Nothing where
// there was no Init. Through MPI it waits for the others to leave, too.
void Shutdown();

// Of the processes of the job, and of those on this host. These and all below
// are kFailedPrecondition before Init or InitByMpi.
int Rank();
int Size();
int LocalRank();
int LocalSize();

// The mean or sum of all processes' tensors, which are of one shape and dtype:
// floating, or int32 and int64 with kSum.
Tensor AllReduce(std::string_view name, const Tensor& tensor,
                 Reduction how = Reduction::kMean);
// Shape [n, ...] of each becomes [size * n, ...]: the tensors of all, one
// behind another by rank. Scalars become a vector.
Tensor AllGather(std::string_view name, const Tensor& tensor);
// The sum or mean as of AllReduce, of which each process gets its share of the
// first dimension: shape [n, ...] of each becomes [n / size, ...], and one row
// more for the first n % size ranks. kInvalidArgument for scalars.
Tensor ReduceScatter(std::string_view name, const Tensor& tensor,
                     Reduction how = Reduction::kMean);
// Shape [size * n, ...], n rows for every process, becomes that shape with the
// rows that every process has for this one, by rank. kInvalidArgument where the
// first dimension is no multiple of the size. What each process sends grows
// with the square of their number (Group::AllToAll in dist/collective/group.h).
Tensor AllToAll(std::string_view name, const Tensor& tensor);
// The tensor of `root`. The others' give its dtype and shape.
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
// processes. Any other verb of those that have not is kFailedPrecondition for
// all. Returns which was last, the same for all: of those with the most verbs
// behind them the highest rank.
int Join();
// Makes the processes that give one `color` a group of their own, in the order
// of their keys and ranks, which ops of sessions choose by this name; who gives
// a colour below 0 is in none. All call it together.
void Split(std::string_view name, int color, int key = 0);
// The processes of the job for the ops of graph/ops/collective.h: what
// SessionOptions::collective takes. Steps and the verbs above have one order.
// It leaves the job when it is let go, and Shutdown was called.
std::shared_ptr<Collective> JobCollective();
// Returns when all processes have called it.
void Barrier(std::string_view name = "barrier");

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_DIST_H_
