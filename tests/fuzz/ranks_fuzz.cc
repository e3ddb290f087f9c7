// What ranks of a training say to each other, of which the others' is any
// bytes, by the first of these: a decision, metrics, a state or a trace is made
// of it, or an Error is thrown.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "graph/builder.h"
#include "io/checkpoints/checkpoint.h"
#include "models/nn/metrics.h"
#include "models/train/workers/rank_traces.h"
#include "models/train/workers/workers.h"
#include "tests/support/strange_collective.h"

namespace sluice {
namespace {

// One of each kind.
const NamedMetrics& AllMetrics() {
  static Graph graph;
  static const NamedMetrics all = [] {
    const Output logits = graph.Placeholder("x", DType::kFloat32, {2, 3});
    const Output label = graph.Placeholder("y", DType::kInt64, {2});
    const Output scores = graph.Placeholder("s", DType::kFloat32, {2});
    return NamedMetrics{{"accuracy", Accuracy(logits, label)},
                        {"f1", F1(logits, label)},
                        {"auc", AreaUnderCurve(scores, label)},
                        {"perplexity", Perplexity(scores)}};
  }();
  return all;
}

void Decide(const Workers& workers) {
  const Agreement agreement(workers, nullptr);
  (void)agreement.Decide("", false);
}

void Merge(const Workers& workers) {
  std::vector<MetricsOverSet> mine;
  mine.emplace_back(AllMetrics());
  (void)workers.Merged(AllMetrics(), std::move(mine)).State();
}

void TakeState(const Workers& workers) {
  std::string text;
  workers.TakeFromFirst("state", &text);
  const auto state = ParseTrainingState(text);
  if (!state.ok()) return;
  const std::string said = PrintTrainingState(*state);
  SLUICE_CHECK(PrintTrainingState(*ParseTrainingState(said)) == said);
}

void Trace(const Workers& workers) {
  (void)ShiftFromFirst(workers, [] { return int64_t{1}; });
  const std::vector<std::string> traces =
      workers.Gather("traces", R"({"traceEvents": []})");
  (void)MergedTrace(traces, {5, 0});
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view said(reinterpret_cast<const char*>(data) + 1,
                              size - 1);
  sluice::testing::StrangeCollective collective(1, 2, said);
  const sluice::Workers workers(&collective);
  try {
    switch (data[0] % 4) {
      case 0:
        sluice::Decide(workers);
        break;
      case 1:
        sluice::Merge(workers);
        break;
      case 2:
        sluice::TakeState(workers);
        break;
      default:
        sluice::Trace(workers);
    }
  } catch (const sluice::Error&) {  // as it is to be
  }
  return 0;
}
