// What lowering refuses.
#include "graph/compile/lower.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "graph/graph.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

// Inference refuses such a node; passes add theirs without it.
TEST_CASE("operands that an instruction cannot count are not cut off") {
  StepPart part;
  part.graph = std::make_unique<Graph>();
  const Output x = part.graph->Constant(1, DType::kFloat32);
  part.graph->AddRaw("sum", "sum", OpTable::Global().Get("AddN"), {},
                     std::vector<Output>(kMostOperands + 1, x), {x.type()});
  const auto device = Device::Open({DeviceType::kCpu, 0}).ValueOrThrow();
  const Status status = Compile(part, *device).status();
  CHECK(status.code() == Code::kInternal);
  CHECK(testing::Contains(status.message(), "AddN 'sum'"));
  CHECK(testing::Contains(status.message(), "too many operands"));
}

}  // namespace
}  // namespace sluice
