// How sums are cut on a GPU: segments are all that is summed, and a thread adds
// few enough terms not to lose the last digits of each.
#include "engine/semantics/sum_cut.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sluice {
namespace {

constexpr int64_t kMostOfThread = 256;  // terms

std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes;
  for (int64_t n = 1; n <= int64_t{1} << 30; n *= 2) {
    for (const int64_t size : {n - 1, n, n + 1, n / 2 * 3}) {
      if (size > 0) sizes.push_back(size);
    }
  }
  return sizes;
}

// Segments of so much each are all of n, and none is empty.
bool Covers(const SumCut& cut, int64_t n) {
  return cut.segment > 0 && cut.segments * cut.segment >= n &&
         (cut.segments - 1) * cut.segment < n;
}

// Of a thread, one of so many that take `pack` elements of a segment in turn.
int64_t TermsOf(int64_t elements, int64_t threads, int64_t pack) {
  const int64_t round = threads * pack;
  return elements / round * pack + std::min(elements % round, pack);
}

template <typename Check>
void ForEachShape(const Check& check) {
  for (const int pack : {1, 2, 4, 8}) {
    for (const int64_t rows : Sizes()) {
      for (const int64_t columns : Sizes()) check(rows, columns, pack);
    }
  }
}

TEST_CASE("a thread adds few terms of a row") {
  int64_t wrong = 0, most = 0;
  ForEachShape([&](int64_t rows, int64_t columns, int pack) {
    const SumCut cut = CutTrailingSum(rows, columns, pack);
    const int64_t terms =
        TermsOf(std::min(cut.segment, columns), cut.lanes, pack);
    wrong += Covers(cut, columns) ? 0 : 1;
    most = std::max(most, terms);
  });
  CHECK(wrong == 0);
  CHECK(most <= kMostOfThread);
}

TEST_CASE("a thread adds few terms of a column") {
  int64_t wrong = 0, most = 0;
  ForEachShape([&](int64_t rows, int64_t columns, int pack) {
    const SumCut cut = CutLeadingSum(rows, columns, pack);
    const int64_t terms = TermsOf(cut.segment, kSumThreads / cut.lanes, 1);
    wrong += Covers(cut, rows) ? 0 : 1;
    most = std::max(most, terms);
  });
  CHECK(wrong == 0);
  CHECK(most <= kMostOfThread);
}

}  // namespace
}  // namespace sluice
