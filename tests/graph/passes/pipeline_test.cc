// The table of passes: what is part of which step, what is reported of it, and
// that the docs have the same list.
#include "graph/passes/pipeline.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>

#include "graph/builder.h"
#include "graph/compile/describe_device.h"
#include "graph/compile/evaluate.h"
#include "graph/compile/extract.h"
#include "graph/session/session.h"
#include "tests/places.h"

namespace sluice {
namespace {

using Names = std::vector<std::string>;

Names Run(const passes::Context& context) {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2, 3});
  const Output y = Relu(x + x);
  auto step = ExtractStep(graph, {{{x, {2, 3}}}, {y}, {}}).ValueOrThrow();
  std::vector<passes::PassReport> reports;
  ThrowIfError(passes::RunPipeline(*step, context, &reports));
  CHECK(reports.back().nodes == static_cast<int64_t>(step->nodes().size()));
  Names names;
  for (const passes::PassReport& report : reports) {
    CHECK(report.seconds >= 0);
    CHECK(report.nodes > 0);
    names.push_back(report.name);
  }
  return names;
}

TEST_CASE("which passes a step goes through") {
  passes::Context context;
  context.devices = {DescribeKind({DeviceType::kCpu, 0})};
  context.fold = FoldNode;
  CHECK(Run(context) == Names{"prune", "count_workers", "refine", "spread_rows",
                              "simplify", "merge", "fold_batch_norm", "prune",
                              "place", "pad_channels", "prune",
                              "order_variables", "fuse", "turn_filters",
                              "start_collectives", "schedule"});
  context.simplify = context.fuse = false;
  context.soft_placement = true;
  context.half = DType::kBFloat16;
  CHECK(Run(context) == Names{"prune", "count_workers", "refine", "spread_rows",
                              "prune", "place", "move_unsupported",
                              "mix_bfloat16", "pad_channels", "prune",
                              "order_variables", "turn_filters",
                              "start_collectives", "schedule"});
}

TEST_CASE("what a pass leaves is verified before the next") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2, 3});
  const Output y = Relu(x);
  auto step = ExtractStep(graph, {{{x, {2, 3}}}, {y}, {}}).ValueOrThrow();
  // Which the third pass would mend, as nobody would hear.
  step->Get("relu").node().set_output_types({{DType::kFloat32, {3, 2}}});
  passes::Context context;
  context.devices = {DescribeKind({DeviceType::kCpu, 0})};
  context.fold = FoldNode;
  const Status status = passes::RunPipeline(*step, context);
  CHECK(status.message().starts_with("after prune: "));
  CHECK(status.message().find("inference says") != std::string::npos);
}

TEST_CASE(
    "workers meet on the first CPU, or all on the device that they "
    "meet on") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output mean = AllReduce(x), all = AllGather(x), unknown = Log(x);
  const auto meet = [&](const DeviceDescriptions& devices,
                        const std::string& meets_on = "",
                        const char* of_all = "/gpu:0") {
    for (const Output& y : {mean, unknown}) y.node().set_device("/gpu:0");
    all.node().set_device(of_all);
    ThrowIfError(passes::MeetOnCpu(graph, devices, meets_on));
  };
  DeviceDescriptions devices = {
      DeviceDescription::OfKind({DeviceType::kCuda, 0})};
  devices[0].kernels["AllGather"] = kFloating;
  meet(devices);  // there is no CPU
  CHECK(mean.node().device() == "/gpu:0");
  devices.push_back(DescribeKind({DeviceType::kCpu, 3}));
  meet(devices);
  CHECK(mean.node().device() == "/cpu:3");
  CHECK(all.node().device() == "/cpu:3");      // though it has a kernel
  CHECK(unknown.node().device() == "/gpu:0");  // meets nobody

  meet(devices, "/gpu:0");  // one of them has no kernel there
  CHECK(mean.node().device() == "/cpu:3");
  CHECK(all.node().device() == "/cpu:3");
  devices[0].kernels["AllReduce"] = kFloating;
  meet(devices, "/gpu:1");  // another device
  CHECK(mean.node().device() == "/cpu:3");
  meet(devices, "/gpu:0", "/cpu:3");  // one of them is elsewhere
  CHECK(mean.node().device() == "/cpu:3");
  meet(devices, "/gpu:0");
  CHECK(mean.node().device() == "/gpu:0");
  CHECK(all.node().device() == "/gpu:0");
  mean.node().set_attr("group", "some");
  meet(devices, "/gpu:0");
  CHECK(mean.node().device() == "/cpu:3");
  CHECK(all.node().device() == "/cpu:3");
}

TEST_CASE("what a device has no kernel for moves to the first CPU") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output known = Exp(x), unknown = Log(x);
  const auto place = [&] {
    known.node().set_device("/gpu:0");
    unknown.node().set_device("/gpu:0");
  };
  DeviceDescriptions devices = {
      DeviceDescription::OfKind({DeviceType::kCuda, 0}),
      DescribeKind({DeviceType::kCpu, 3})};
  // Nothing known of a device's kernels is no reason to leave it.
  place();
  const Status blind = passes::MoveUnsupported(graph, devices);
  CHECK(blind.code() == Code::kInvalidArgument);
  CHECK(blind.message().find("the kernels of '/gpu:0'") != std::string::npos);
  CHECK(known.node().device() == "/gpu:0");

  devices[0].kernels["Exp"] = kFloating;
  devices[0].kernels["Log"] = DType::kFloat64;  // not what x is
  ThrowIfError(passes::MoveUnsupported(graph, devices));
  CHECK(known.node().device() == "/gpu:0");
  CHECK(unknown.node().device() == "/cpu:3");

  place();
  devices[0] = DeviceDescription::OfKind({DeviceType::kNull, 0});
  known.node().set_device("/null:0");
  ThrowIfError(passes::MoveUnsupported(graph, devices));
  CHECK(known.node().device() == "/null:0");
  devices.pop_back();
  CHECK_FALSE(passes::MoveUnsupported(graph, devices).ok());  // no CPU
}

TEST_CASE("what another task's device has no kernel for stays with the task") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  const Output near = Log(x), far = Log(x), alone = Log(x);
  near.node().set_device("/gpu:0");
  far.node().set_device("/job:ps/task:1/gpu:1");
  alone.node().set_device("/job:ps/task:2/gpu:0");
  DeviceDescriptions devices;
  for (const char* name : {"/gpu:0", "/cpu:0", "/job:ps/task:1/gpu:1",
                           "/job:ps/task:1/cpu:0", "/job:ps/task:2/gpu:0"}) {
    devices.push_back(
        DeviceDescription::OfKind(ParseDeviceName(name).ValueOrThrow()));
    devices.back().kernels["Exp"] = kFloating;
  }
  ThrowIfError(passes::MoveUnsupported(graph, devices));
  CHECK(near.node().device() == "/cpu:0");
  CHECK(far.node().device() == "/job:ps/task:1/cpu:0");
  CHECK(alone.node().device() == "/cpu:0");
}

TEST_CASE("a prepared step says what its passes did") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  Session session(graph);
  const StepInfo info = session.Prepare({{x, {2}}}, {Exp(x)}).info();
  REQUIRE(info.passes.size() == 16);
  CHECK(info.passes[0].name == "prune");
  CHECK(info.passes[15].name == "schedule");
  CHECK(info.passes[15].nodes == 3);  // feed, exp, fetch
}

TEST_CASE("the list in docs/architecture.md is the table") {
  std::ifstream file(SLUICE_SOURCE_DIR "/docs/architecture.md");
  Names rows, wanted;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| `")) rows.push_back(line);
  }
  for (const passes::Pass& pass : passes::Pipeline()) {
    wanted.push_back(fmt::format("| `{}` | {} |", pass.name, pass.what));
  }
  CHECK(rows == wanted);
}

}  // namespace
}  // namespace sluice
