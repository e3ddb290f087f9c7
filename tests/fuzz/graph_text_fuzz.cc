// Any text makes a graph or an error; a graph survives being printed and read
// again, and the passes that run no kernels.
#include "graph/passes/passes.h"
#include "graph/text/dot.h"
#include "graph/text/text.h"
#include "tests/support/described.h"

namespace sluice {
namespace {

void Check(std::string_view text) {
  const auto graph = ParseGraph(text);
  if (!graph.ok()) return;
  const std::string printed = PrintGraph(**graph);
  const auto again = ParseGraph(printed);
  SLUICE_CHECK(again.ok());
  SLUICE_CHECK(PrintGraph(**again) == printed);
  PrintDot(**again);
  PrintOverview(**again);

  Graph& step = **again;
  if (!passes::Verify(step).ok()) return;
  passes::Simplify(step);
  SLUICE_CHECK(passes::Verify(step).ok());
  passes::MergeCommon(step);
  SLUICE_CHECK(passes::Verify(step).ok());
  for (const auto& node : step.nodes()) {
    node->set_device(node->name() < "m" ? "/cpu:0" : "/cpu:1");
  }
  if (!passes::Place(step, testing::Described({"/cpu:0", "/cpu:1"})).ok())
    return;
  SLUICE_CHECK(passes::MixPrecision(step, DType::kFloat16).ok());
  SLUICE_CHECK(passes::Verify(step).ok());
  if (!passes::OrderVariables(step).ok()) return;
  SLUICE_CHECK(passes::Verify(step).ok());
  passes::Partition(step);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
