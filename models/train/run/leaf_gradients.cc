#include "models/train/run/leaf_gradients.h"

#include <chrono>
#include <deque>
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
      gradients_(session, features, options_.reduced, {}, options_.at_once),
      measuring_(session, features, Joined(options_.reduced, options_.measured),
                 {}, options_.at_once) {
  session_.set_replica(0);  // of what is not of a leaf
  SLUICE_CHECK(options_.at_once == 1 || options_.statistics.empty());
}

StepInfo LeafGradients::Prepare(int64_t examples, int beside, int64_t batch) {
  return gradients_.Prepare(examples, beside, batch);
}

void LeafGradients::Run(int64_t leaf, std::span<const Example> shares,
                        const OnLeaf& measure) {
  const ScopedFlushDenormals flush;  // as where gradients are computed
  for (size_t i = 0; i < before_.size(); ++i) {
    session_.Read(options_.statistics[i], &before_[i]);
  }
  sums_.Clear();
  const auto begin = std::chrono::steady_clock::now();
  const double busy = session_.busy_seconds();
  BatchStep& step = measure ? measuring_ : gradients_;
  std::deque<UnderWay> under_way;
  for (size_t i = 0; i < shares.size(); ++i, ++leaf) {
    if (under_way.size() == static_cast<size_t>(options_.at_once)) {
      Collect(std::move(under_way.front()), measure);
      under_way.pop_front();
    }
    UnderWay& next = under_way.emplace_back(UnderWay{leaf, i, {}});
    if (RowsOf(shares[i]) == 0) continue;
    next.run = step.Start(shares[i], static_cast<uint32_t>(leaf));
  }
  for (UnderWay& last : under_way) Collect(std::move(last), measure);
  seconds_.busy += session_.busy_seconds() - busy;
  seconds_.all +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count();
}

void LeafGradients::Collect(UnderWay leaf, const OnLeaf& measure) {
  if (!leaf.run.valid()) return Append(leaf.leaf, Nothing());
  const std::span<const Tensor> values = leaf.run.Wait();
  Append(leaf.leaf, values.first(options_.reduced.size()));
  if (measure) {
    measure(leaf.share, values.subspan(options_.reduced.size()));
  }
  for (size_t s = 0; s < before_.size(); ++s) {
    session_.Write(options_.statistics[s], before_[s]);
  }
}

std::span<const Tensor> LeafGradients::Nothing() {
  if (nothing_.empty()) {
    nothing_.resize(options_.reduced.size());
    for (const size_t i : options_.here) {
      const Output& output = options_.reduced[i];
      nothing_[i] = Tensor::Zeros(output.dtype(), output.shape());
    }
  }
  return nothing_;
}

void LeafGradients::Append(int64_t leaf, std::span<const Tensor> values) {
  std::vector<Tensor> here;
  for (const size_t i : options_.here) {
    Tensor& value = here.emplace_back(values[i]);
    // Their sum may be beyond the range of the half types.
    if (!IsHalf(value.dtype())) continue;
    dist::DivideBy(value.dtype(), value.raw(), value.elements(),
                   static_cast<int>(options_.leaves));
  }
  sums_.Append({leaf, 1}, here);
}

}  // namespace sluice
