// What another rank says may be any bytes: it is believed where it can be true.
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "dist/collective/texts.h"
#include "engine/status.h"
#include "graph/builder.h"
#include "models/nn/metrics.h"
#include "models/train/workers/rank_traces.h"
#include "models/train/workers/workers.h"
#include "tests/support/error_text.h"
#include "tests/support/strange_collective.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::StrangeCollective;

std::string BytesOf(int64_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

TEST_CASE("a flag of a decision is 0 or 1") {
  // Measures, meets, is called, has a token, and why.
  for (size_t flag = 0; flag < 4; ++flag) {
    for (const char value : {'\0', '\1', '\2', '\xff'}) {
      std::string said(8, '\0');
      said[flag] = value;
      StrangeCollective collective(1, 2, said);
      const Workers workers(&collective);
      const Agreement agreement(workers, nullptr);
      const std::string error =
          ErrorOf([&] { (void)agreement.Decide("", false); });
      const bool fits = value == '\0' || value == '\1';
      CHECK(Contains(error, "the decision of rank 0 has a flag of") == !fits);
    }
  }
}

TEST_CASE("a text of rank 0 has a length that can be") {
  for (const int64_t length : {int64_t{-1}, (int64_t{1} << 28) + 1,
                               std::numeric_limits<int64_t>::max()}) {
    const std::string said = BytesOf(length);
    StrangeCollective collective(1, 2, said);
    std::string text;
    CHECK(Contains(
        ErrorOf([&] { Workers(&collective).TakeFromFirst("state", &text); }),
        "state of rank 0: "));
  }
}

TEST_CASE("a long text of another rank has a length that can be") {
  for (const int64_t length : {int64_t{-1}, (int64_t{1} << 34) + 1,
                               std::numeric_limits<int64_t>::max()}) {
    const std::string said = BytesOf(length);
    StrangeCollective collective(0, 2, said);
    CHECK(Contains(ErrorOf([&] {
                     (void)Workers(&collective).GatherOnFirst("trace", "mine");
                   }),
                   "trace of rank 1: "));
  }
}

TEST_CASE("metrics of rank 0 are whole numbers of bytes") {
  Graph graph;
  const NamedMetrics metrics = {
      {"perplexity", Perplexity(graph.Placeholder("s", DType::kFloat32, {2}))}};
  for (int64_t bytes = 1; bytes <= 40; ++bytes) {
    CAPTURE(bytes);
    const std::string said =
        BytesOf(bytes) + std::string(static_cast<size_t>(bytes), '\0');
    StrangeCollective collective(1, 2, said);
    std::vector<MetricsOverSet> mine;
    mine.emplace_back(metrics);
    const std::string error = ErrorOf(
        [&] { (void)Workers(&collective).Merged(metrics, std::move(mine)); });
    CHECK(Contains(error, "metrics of rank 0 are") == (bytes % 8 != 0));
  }
}

// Of numbers that are all 0, which are none of any metric.
TEST_CASE("metrics may be longer than texts, but not any length") {
  Graph graph;
  const NamedMetrics metrics = {
      {"perplexity", Perplexity(graph.Placeholder("s", DType::kFloat32, {2}))}};
  const auto error_of = [&](int64_t length) {
    const std::string said = BytesOf(length);
    StrangeCollective collective(1, 2, said);
    std::vector<MetricsOverSet> mine;
    mine.emplace_back(metrics);
    return ErrorOf(
        [&] { (void)Workers(&collective).Merged(metrics, std::move(mine)); });
  };
  CHECK(Contains(error_of(dist::kMostText + 8),
                 "metric 'perplexity': its numbers are missing"));
  for (const int64_t length : {int64_t{-8}, (int64_t{1} << 34) + 8,
                               std::numeric_limits<int64_t>::max()}) {
    CHECK(Contains(error_of(length), "metrics of rank 0: "));
  }
}

TEST_CASE("times of rank 0 are times") {
  std::string said = BytesOf(std::numeric_limits<int64_t>::min());
  StrangeCollective collective(1, 2, said);
  CHECK(Contains(ErrorOf([&] {
                   (void)ShiftFromFirst(Workers(&collective),
                                        [] { return int64_t{5}; });
                 }),
                 "are no time"));
}

TEST_CASE("a trace of another rank that is none names it") {
  const std::string good = R"({"traceEvents": []})";
  const auto of = [](const std::string& event) {
    return R"({"traceEvents": [{"name": "a", )" + event + "}]}";
  };
  CHECK_NOTHROW(MergedTrace({good, of(R"("pid": 0, "tid": 7)")}, {0, 0}));
  for (const std::string& bad :
       {std::string(), of(R"("pid": -1)"), of(R"("pid": 1e300)"),
        of(R"("pid": 18446744073709551615)"), of(R"("pid": 0, "tid": 1e18)"),
        of(R"("pid": 0, "args": )" + std::string(100'000, '[') +
           std::string(100'000, ']'))}) {
    CAPTURE(bad.substr(0, 60));
    CHECK(Contains(ErrorOf([&] {
                     (void)MergedTrace({good, bad}, {0, 0});
                   }),
                   "the trace of rank 1 is none: "));
  }
}

}  // namespace
}  // namespace sluice
