// Mixing the pictures of a batch where the model is computed.
#ifndef SLUICE_MODELS_NN_MIXED_IMAGES_H_
#define SLUICE_MODELS_NN_MIXED_IMAGES_H_

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// What DrawMix (io/images/mix.h) has added to a batch, each under the name
// "mixed_" and the field's.
struct ImageMix {
  Output with;           // int64 [n]
  Output own, other;     // [n,1,1,1]
  Output rows, columns;  // bool [n,rows,1,1] and [n,1,columns,1]
};

// Of images [n,rows,columns,channels] what MixBatch makes of them: own times
// each one and `other` times the one that it is mixed with, or the other's
// pixels where rows and columns hold.
Output MixImages(const Output& images, const ImageMix& mix);

}  // namespace sluice

#endif  // SLUICE_MODELS_NN_MIXED_IMAGES_H_
