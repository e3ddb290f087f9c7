// The arithmetic of an all-reduce, on one piece of its data.
#ifndef SLUICE_DIST_COLLECTIVE_REDUCE_H_
#define SLUICE_DIST_COLLECTIVE_REDUCE_H_

#include <cstdint>

#include "engine/dtype.h"

namespace sluice::dist {

// What can be added: the floating types, int32 and int64.
inline constexpr DTypeSet kReducible =
    kFloating | DType::kInt32 | DType::kInt64;

// sum[i] += addend[i]. Half and BFloat16 are added in float32 and rounded to
// their type; integers wrap. The dtype is one of kReducible; the two do not
// overlap.
void AddTo(DType dtype, void* sum, const void* addend, int64_t count);

// As AddTo, but a sum that is not a number is always the same quiet NaN: the
// bits do not depend on which of two ranks has which of the two operands.
void AddToEither(DType dtype, void* sum, const void* addend, int64_t count);

// data[i] /= divisor, for floating types.
void DivideBy(DType dtype, void* data, int64_t count, int divisor);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_REDUCE_H_
