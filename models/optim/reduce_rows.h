// Gradients of rows (RowsGradient) where several workers train one model: they
// travel as rows and slices, which of a large table are fewer bytes than all of
// it.
#ifndef SLUICE_MODELS_OPTIM_REDUCE_ROWS_H_
#define SLUICE_MODELS_OPTIM_REDUCE_ROWS_H_

#include <cstdint>
#include <map>

#include "models/optim/find_gradients.h"
#include "models/optim/optimizers.h"

namespace sluice {

// By variable, how many slices a worker sends, the same for all: as many as one
// with the largest share of a batch has.
using RowsToSend = std::map<Output, int64_t>;

// Which of the gradients of rows travel so, from shapes alone, so that all
// workers decide alike. Others become whole gradients: where these are fewer
// bytes, or it cannot be known how many slices there are. With `always` all
// travel as rows, and what cannot is Error(kUnimplemented).
RowsToSend ChooseRows(FoundGradients& gradients,
                      const AllReduceOptions& options, bool always);

// Makes those of `send` the means of all workers': their slices divided by the
// number of workers, one behind another by rank, with rows of -1, which stand
// for none, where a worker has fewer. The same bits on all of them.
void ReduceRows(FoundGradients& gradients, const RowsToSend& send,
                DType between);

}  // namespace sluice

#endif  // SLUICE_MODELS_OPTIM_REDUCE_ROWS_H_
