// Ops in which the steps of all workers of a job meet. In a session without a
// collective (SessionOptions) there is one worker, and they change nothing.
//
// Those of a step keep the order in which they were added to the graph
// (passes::OrderVariables), so that all workers, which run the same step, have
// them in the same order; what a step does not need it does not run. Where
// steps that meet differ, in kind, name, dtype, shape or root of one or in how
// many of a group they have, all workers have an error; of those that differ in
// what x is made of alone nobody can tell.
#ifndef SLUICE_GRAPH_OPS_COLLECTIVE_H_
#define SLUICE_GRAPH_OPS_COLLECTIVE_H_

#include <string>

#include "engine/reduction.h"
#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// The workers are those of the `group` of that name that this one is in
// (Collective::Subgroup), by default all of the job. x is of one dtype and
// shape on all of them. How many there are is known when a step is prepared;
// until then first dimensions that hang on it are unknown. Gradients are those
// of the sum of all workers' losses.

// x added up over the workers, or its mean: of floating dtypes, or int32 and
// int64 with kSum. The gradient is that of what each worker makes of the
// result, reduced in the same way.
Output AllReduce(Operand x, Reduction how = Reduction::kMean,
                 const std::string& name = "all_reduce",
                 const std::string& group = {});
// Shape [n, ...] becomes [workers * n, ...]: those of all, by rank. The
// gradient is a reduce-scatter's sum. With `workers` the graph is for so many
// alone, and a step of another number of them fails.
Output AllGather(Operand x, const std::string& name = "all_gather",
                 const std::string& group = {}, int64_t workers = 0);
// x added up over the workers as by AllReduce, or its mean, of which each gets
// its part: shape [workers * n, ...] becomes [n, ...]. The gradient is an
// all-gather, divided for a mean.
Output ReduceScatter(Operand x, Reduction how = Reduction::kMean,
                     const std::string& name = "reduce_scatter",
                     const std::string& group = {});
// Shape [workers * n, ...], n rows for every worker, becomes that shape with
// the rows that every worker has for this one, by rank. So does the gradient.
Output AllToAll(Operand x, const std::string& name = "all_to_all",
                const std::string& group = {});
// The x of the worker of that rank. The gradient is a Reduce.
Output Broadcast(Operand x, int root, const std::string& name = "broadcast",
                 const std::string& group = {});
// x added up over the workers for that of rank `root`; zeros for the others.
// Dtypes as of AllReduce. The gradient is a Broadcast.
Output Reduce(Operand x, int root, const std::string& name = "reduce",
              const std::string& group = {});

// How many workers there are: an int64 scalar.
Output NumWorkers(Graph& graph, const std::string& name = "num_workers",
                  const std::string& group = {});
// Which of them this is, from 0: an int64 scalar, which is known when a step is
// prepared. The graph is the same for all.
Output WorkerRank(Graph& graph, const std::string& name = "worker_rank",
                  const std::string& group = {});

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_COLLECTIVE_H_
