#include "models/train/run/leaf_sums.h"

#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "tests/support/same_bits.h"

namespace sluice {
namespace {

// However the leaves are divided among devices: the sum of a tree, by its
// definition, with nothing in the place of leaves that there are not.
TEST_CASE("sums of leaves are the tree's, whoever has which") {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 200; ++trial) {
    const auto leaves = static_cast<int64_t>(1 + random() % 9);
    const int64_t sizes[] = {static_cast<int64_t>(random() % 5), 70'000};
    std::vector<std::vector<Tensor>> values;
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      auto& mine = values.emplace_back();
      for (const int64_t size : sizes) {
        mine.emplace_back(DType::kFloat32, Shape{size});
        for (int64_t i = 0; i < size; ++i) {
          mine.back().data<float>()[i] = normal(random);
        }
      }
    }
    using Range = LeafRange;
    const std::function<float(Range, size_t, int64_t)> sum =
        [&](Range range, size_t tensor, int64_t i) -> float {
      if (range.size() == 1) {
        return values[static_cast<size_t>(range.begin)][tensor]
            .data<float>()[i];
      }
      const int64_t middle = (range.begin + range.end) / 2;
      const float left = sum({range.begin, middle}, tensor, i);
      if (middle >= leaves) return left;
      return left + sum({middle, range.end}, tensor, i);
    };

    const auto devices =
        static_cast<int64_t>(1 + random() % static_cast<uint64_t>(leaves));
    std::vector<LeafSums> sums(static_cast<size_t>(devices));
    for (int round = 0; round < 2; ++round) {  // the second into old memory
      for (int64_t device = 0; device < devices; ++device) {
        LeafSums& mine = sums[static_cast<size_t>(device)];
        mine.Clear();
        const LeafRange range = LeavesOf(leaves, device, devices);
        for (int64_t leaf = range.begin; leaf < range.end; ++leaf) {
          mine.Append({leaf, 1}, values[static_cast<size_t>(leaf)]);
        }
        if (device > 0) sums[0].Append(mine);
      }
      sums[0].Join();
      CAPTURE(leaves);
      CAPTURE(devices);
      REQUIRE(sums[0].size() == 1);
      const auto whole =
          static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(leaves)));
      for (size_t tensor = 0; tensor < 2; ++tensor) {
        bool same = true;
        for (int64_t i = 0; i < sizes[tensor]; ++i) {
          same = same && sums[0].slot(0)[tensor].data<float>()[i] ==
                             sum({0, whole}, tensor, i);
        }
        CHECK(same);
      }
    }
  }
}

}  // namespace
}  // namespace sluice
