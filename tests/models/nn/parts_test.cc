// Parts of tensors against loops over their elements.
#include "models/nn/parts.h"

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "engine/runtime/subtrees.h"

namespace sluice {
namespace {

TEST_CASE("parts are the columns of a rank, and come together again") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 60; ++trial) {
    const auto workers = static_cast<int64_t>(1 + random() % 5);
    const auto columns = workers + static_cast<int64_t>(random() % 9);
    const auto rows = static_cast<int64_t>(random() % 4);
    const bool vector = random() % 3 == 0;
    CAPTURE(workers);
    CAPTURE(columns);
    const Shape shape = vector ? Shape{columns} : Shape{rows, columns};
    Tensor whole(DType::kFloat64, shape);
    for (double& x : whole.values<double>()) x = 1 + random() % 1000;
    Tensor again = Tensor::Zeros(DType::kFloat64, shape);
    const int64_t width = PartWidth(columns, workers);
    std::vector<int> seen(static_cast<size_t>(whole.elements()), 0);
    for (int64_t rank = 0; rank < workers; ++rank) {
      const Tensor part = PartOf(whole, rank, workers);
      REQUIRE(part.shape() == (vector ? Shape{width} : Shape{rows, width}));
      CHECK(WholeShape(part.shape(), columns) == shape);
      const LeafRange mine = LeavesOf(columns, rank, workers);
      for (int64_t i = 0; i < part.elements(); ++i) {
        const int64_t column = mine.begin + i % width;
        const int64_t at = i / width * columns + column;
        if (column < mine.end) ++seen[static_cast<size_t>(at)];
        CHECK(part.At(i) == (column < mine.end ? whole.At(at) : 0));
      }
      PutPart(part, rank, workers, &again);
    }
    for (const int times : seen) CHECK(times == 1);
    CHECK(again.BitEqual(whole));
  }
}

}  // namespace
}  // namespace sluice
