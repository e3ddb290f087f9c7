#include "models/train/run/leaf_sums.h"

#include <cstring>

#include "dist/collective/reduce.h"
#include "engine/dtype.h"
#include "engine/threads.h"

namespace sluice {
namespace {

// Elements that are added as one piece of work.
constexpr int64_t kPiece = 1 << 16;

void AddTo(std::span<Tensor> sums, std::span<const Tensor> addends) {
  for (size_t i = 0; i < sums.size(); ++i) {
    const DType dtype = sums[i].dtype();
    char* const sum = static_cast<char*>(sums[i].raw());
    const char* const addend = static_cast<const char*>(addends[i].raw());
    ParallelFor(sums[i].elements(), kPiece, [&](int64_t begin, int64_t end) {
      const size_t offset = static_cast<size_t>(begin) * SizeOf(dtype);
      dist::AddTo(dtype, sum + offset, addend + offset, end - begin);
    });
  }
}

}  // namespace

void LeafSums::Append(Subtree next, std::span<const Tensor> values) {
  const auto add = [&](size_t slot) {
    AddTo(slots_[slot], values);
    values = slots_[slot];
  };
  const auto put = [&](size_t slot) {
    if (slot == slots_.size()) slots_.emplace_back();
    std::vector<Tensor>& place = slots_[slot];
    if (place.empty()) {
      for (const Tensor& value : values) place.push_back(value.Clone());
      return;
    }
    if (values.data() == place.data()) return;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].bytes() == 0) continue;
      std::memcpy(place[i].raw(), values[i].raw(), values[i].bytes());
    }
  };
  row_.Append(next, add, put);
}

void LeafSums::Append(const LeafSums& right) {
  for (size_t i = 0; i < right.row_.size(); ++i) {
    Append(right.row_.subtrees()[i], right.slots_[i]);
  }
}

void LeafSums::Join() {
  if (row_.size() < 2) return;
  for (size_t i = row_.size() - 1; i > 0; --i) AddTo(slots_[i - 1], slots_[i]);
  // The right half is less than a power of two, and so is what is right of it.
  const Subtree whole = {row_.subtrees()[0].begin,
                         2 * row_.subtrees()[0].leaves};
  row_.Clear();
  row_.Append(whole);
}

}  // namespace sluice
