// Reduction of gradients of rows (RowsGradient) if several workers train one
// model: they are exchanged as rows and slices, which for a large table are
// fewer bytes than the whole gradient.
#ifndef SLUICE_MODELS_OPTIM_REDUCE_ROWS_H_
#define SLUICE_MODELS_OPTIM_REDUCE_ROWS_H_

#include <cstdint>
#include <map>

#include "models/optim/find_gradients.h"
#include "models/optim/optimizers.h"

namespace sluice {

// By variable, how many slices each worker sends: as many as a worker with the
// largest share of a batch has.
using RowsToSend = std::map<Output, int64_t>;

// Chooses the gradients that are exchanged as rows, from shapes alone, so that
// all workers decide alike. Others become whole gradients: if that is fewer
// bytes, or if the number of slices cannot be known. With `always` all are
// exchanged as rows; throws Error(kUnimplemented) for one that cannot be.
RowsToSend ChooseRows(FoundGradients& gradients,
                      const AllReduceOptions& options, bool always);

// Replaces the gradients in `send` by the means over all workers: the workers'
// slices divided by the number of workers, concatenated by rank, with rows of
// -1, which stand for none, if a worker has fewer. All workers get the same
// bits.
void ReduceRows(FoundGradients& gradients, const RowsToSend& send,
                DType between);

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_REDUCE_ROWS_H_
