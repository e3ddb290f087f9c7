// Mixes the images of a batch on the device that computes the model.
#ifndef SLUICE_MODELS_NN_MIXED_IMAGES_H_
#define SLUICE_MODELS_NN_MIXED_IMAGES_H_

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// The tensors that DrawMix (io/images/mix.h) adds to a batch, each named
// "mixed_" and the field's name.
struct ImageMix {
  Output with;           // int64 [n]
  Output own, other;     // [n,1,1,1]
  Output rows, columns;  // bool [n,rows,1,1] and [n,1,columns,1]
};

// Mixes images [n,rows,columns,channels] as MixBatch does: `own` times each
// image plus `other` times the one that it is mixed with, or the other's pixels
// where `rows` and `columns` hold.
Output MixImages(const Output& images, const ImageMix& mix);

}  // namespace sluice

#endif  // SLUICE_MODELS_NN_MIXED_IMAGES_H_
