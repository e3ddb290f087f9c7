#include "models/nn/mixed_images.h"

#include "graph/builder.h"

namespace sluice {

Output MixImages(const Output& images, const ImageMix& mix) {
  const Output others = Gather(images, mix.with);
  return Select(LogicalAnd(mix.rows, mix.columns), others,
                images * mix.own + others * mix.other);
}

}  // namespace sluice
