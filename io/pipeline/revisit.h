// Elements of an input that a stage holds when its position is saved, and how
// it gets them back. Internal to io.
#ifndef SLUICE_IO_PIPELINE_REVISIT_H_
#define SLUICE_IO_PIPELINE_REVISIT_H_

#include <cstdint>
#include <functional>
#include <span>

#include "io/pipeline/example_stream.h"

namespace sluice {

// The place of an element in the input.
struct Place {
  int64_t number = 0;  // in the epoch
  Mark before;         // of the input
};

// Appends what Revisit needs: `held` in ascending order, and where the input
// is, whose next element is number `next` and whose mark save_input appends.
void SavePlaces(std::span<const Place* const> held, int64_t next,
                const std::function<void(Mark*)>& save_input, Mark* mark);

// Right after the input's StartEpoch: reads the held elements again, in the
// same order, and brings the input to where it was; sets *next.
Status Revisit(MarkReader* mark, Stream<Example>* input,
               const std::function<Status(Place place, Example example)>& held,
               int64_t* next);

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_REVISIT_H_
