#include "models/train/run/leaf_gradients.h"

#include <utility>

#include "dist/collective/reduce.h"
#include "engine/threads.h"
#include "models/train/run/inference.h"

namespace sluice {
namespace {

std::vector<Output> Joined(std::vector<Output> some,
                           const std::vector<Output>& others) {
  some.insert(some.end(), others.begin(), others.end());
  return some;
}

}  // namespace

LeafGradients::LeafGradients(Session& session, const Features& features,
                             Options options)
    : session_(session),
      options_(std::move(options)),
      before_(options_.statistics.size()),
      gradients_(session, features, options_.reduced),
      measuring_(session, features,
                 Joined(options_.reduced, options_.measured)) {}

StepInfo LeafGradients::Prepare(int64_t examples, int beside) {
  return gradients_.Prepare(examples, beside);
}

void LeafGradients::Run(int64_t leaf, std::span<const Example> shares,
                        const OnLeaf& measure) {
  const ScopedFlushDenormals flush;  // as where gradients are computed
  for (size_t i = 0; i < before_.size(); ++i) {
    session_.Read(options_.statistics[i], &before_[i]);
  }
  sums_.Clear();
  for (size_t i = 0; i < shares.size(); ++i, ++leaf) {
    if (RowsOf(shares[i]) == 0) {
      Append(leaf, Nothing());
      continue;
    }
    session_.set_replica(static_cast<uint32_t>(leaf));
    std::span<const Tensor> values =
        (measure ? measuring_ : gradients_).Run(shares[i]);
    Append(leaf, values.first(options_.reduced.size()));
    if (measure) measure(i, values.subspan(options_.reduced.size()));
    for (size_t s = 0; s < before_.size(); ++s) {
      session_.Write(options_.statistics[s], before_[s]);
    }
  }
  session_.set_replica(0);
}

std::span<const Tensor> LeafGradients::Nothing() {
  if (nothing_.empty()) {
    for (const Output& output : options_.reduced) {
      nothing_.push_back(Tensor::Zeros(output.dtype(), output.shape()));
    }
  }
  return nothing_;
}

void LeafGradients::Append(int64_t leaf, std::span<const Tensor> values) {
  // Their sum may be beyond the range of the half types.
  for (Tensor value : values) {
    if (!IsHalf(value.dtype())) continue;
    dist::DivideBy(value.dtype(), value.raw(), value.elements(),
                   static_cast<int>(options_.leaves));
  }
  sums_.Append({leaf, 1}, values);
}

}  // namespace sluice
