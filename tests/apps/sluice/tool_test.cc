// The tool `sluice` from outside: what it prints, and that everything wrong
// ends in one line and the right exit code.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/cpu_features.h"
#include "graph/builder.h"
#include "graph/compile/extract.h"
#include "graph/session/session.h"
#include "graph/text/text.h"
#include "io/checkpoints/safetensors.h"
#include "io/summaries/event_file.h"
#include "models/optim/optimizers.h"
#include "tests/places.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::TextOf;

using Json = nlohmann::ordered_json;

struct Outcome {
  int exit_code = 0;
  std::string out, err;
};

class Tool {
 public:
  // The shell splits `arguments`. variables: "NAME=value ".
  Outcome Run(const std::string& arguments,
              const std::string& variables = "") const {
    const std::string command = variables + SLUICE_BIN_DIR "/sluice " +
                                arguments + " > " + (folder_ / "out") + " 2> " +
                                (folder_ / "err");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            TextOf(folder_ / "out"), TextOf(folder_ / "err")};
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  std::string path(const std::string& name) const { return folder_ / name; }

 private:
  testing::TemporaryFolder folder_;
};

std::vector<Json> Objects(const std::string& lines) {
  std::vector<Json> objects;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    objects.push_back(Json::parse(line));
  }
  return objects;
}

std::string SmallGraph() {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 4});
  const Output w = graph.Placeholder("w", DType::kFloat32, {4, 2});
  Output y = Reshape(MatMul(x, w), {-1, 2});
  DeviceScope device(graph, "/cpu:1");
  Softmax(y);
  return PrintGraph(graph);
}

TEST_CASE("graph prints what was saved") {
  const Tool tool;
  const std::string text = SmallGraph();
  const std::string file = tool.Write("graph.txt", text);
  const Outcome plain = tool.Run("graph " + file);
  CHECK_EQ(plain.exit_code, 0);
  CHECK_EQ(plain.out, text);
  CHECK_EQ(plain.err, "");

  const auto nodes = Objects(tool.Run("graph --json " + file).out);
  REQUIRE_EQ(nodes.size(), 6);
  CHECK_EQ(nodes[0]["name"], "x");
  CHECK_EQ(nodes[0]["outputs"][0]["shape"], Json({-1, 4}));
  CHECK_EQ(nodes[5]["device"], "/cpu:1");

  // Constants are no boxes of the overview, so its constant has none.
  const std::string overview = tool.Run("graph --dot " + file).out;
  CHECK_EQ(overview.rfind("// 6 nodes as 5 boxes\ndigraph {\n", 0), 0);
  CHECK_EQ(tool.Run("graph --dot=60 " + file).out, overview);
  CHECK_EQ(
      tool.Run("graph --dot=1 " + file).out.rfind("// 6 nodes as 1 box\n", 0),
      0);
  CHECK_EQ(tool.Run("graph --dot=full " + file).out,
           PrintDot(*ParseGraph(text).ValueOrThrow()));
  // Passes leave gaps among the nodes' numbers.
  CHECK(
      Contains(tool.Run("graph --dot --keep mat_mul --pass prune " + file).out,
               "as 4 boxes\n"));
}

// A saved step of one feed and one fetch, with `from` replaced by `to`.
std::string OddStep(const std::string& from, const std::string& to) {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {4});
  std::string text = PrintGraph(
      *ExtractStep(graph, {{{x, {4}}}, {Exp(x)}, {}}).ValueOrThrow());
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
       at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

TEST_CASE("graph runs passes") {
  const Tool tool;
  const std::string file = tool.Write("graph.txt", SmallGraph());
  const Outcome passed = tool.Run(
      "graph --feed x=3,4 --keep softmax --pass refine --pass simplify "
      "--pass prune --pass place --device /cpu:0 --device /cpu:1 --pass "
      "partition " +
      file);
  CHECK_EQ(passed.err, "");
  CHECK(Contains(passed.out, "# /cpu:1\nmat_mul/recv_cpu_0 = RecvStart()"));
  CHECK(Contains(passed.out, "float32[3,2]"));
  CHECK_EQ(passed.out.find("Reshape"), std::string::npos);
}

TEST_CASE("graph runs passes as the devices want that nodes were placed on") {
  const Tool tool;
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {4});
  const auto step =
      ExtractStep(graph, {{{x, {4}}}, {Neg(Exp(x))}, {}}).ValueOrThrow();
  const auto run = [&](const std::string& device, const std::string& flags) {
    for (const auto& node : step->nodes()) node->set_device(device);
    return tool.Run("graph " + flags + tool.Write("s", PrintGraph(*step)));
  };
  // Too few elements for a CPU; on a GPU it saves a launch.
  CHECK(Contains(run("/cpu:0", "--pass fuse ").out, "# 0 fused nodes"));
  CHECK(Contains(run("/gpu:0", "--pass fuse ").out, "# 1 fused nodes"));
  const Outcome blind = run("/gpu:0", "--pass move_unsupported ");
  CHECK_EQ(blind.exit_code, 1);
  CHECK(Contains(blind.err, "nothing is known of the kernels of '/gpu:0'"));
}

TEST_CASE("graph says what a step keeps in memory") {
  const Tool tool;
  const std::string file = tool.Write("graph.txt", SmallGraph());
  const std::string command =
      "graph --memory --feed x=48,4 --feed w=4,2 --device /cpu:0 --device "
      "/cpu:1 ";
  const Outcome text = tool.Run(command + file);
  CHECK_EQ(text.err, "");
  CHECK(Contains(text.out, "/cpu:0: arena"));
  CHECK(Contains(text.out, "mat_mul float32[48,2]"));

  // /cpu:1 receives 48 x 2 floats and softmax takes their place.
  const auto reports = Objects(tool.Run(command + "--json " + file).out);
  REQUIRE_EQ(reports.size(), 2);
  CHECK_EQ(reports[1]["device"], "/cpu:1");
  CHECK_EQ(reports[1]["lower_bound"], 48 * 2 * 4);
  CHECK_EQ(reports[1]["arena_bytes"], 48 * 2 * 4);
  REQUIRE_EQ(reports[1]["live"].size(), 1);
  CHECK_EQ(reports[1]["live"][0]["bytes"], 48 * 2 * 4);

  // A training step, as the programs save it.
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 4});
  const Output w = graph.Variable("w", Ones({4, 4}));
  const Output loss = Mean(Square(MatMul(Tanh(MatMul(x, w)), w)));
  const Operation train = optimizers::Sgd(0.1).Minimize(loss);
  const auto step =
      ExtractStep(graph, {{{x, {16, 4}}}, {loss}, {train}}).ValueOrThrow();
  const std::string saved = tool.Write("step.graph", PrintGraph(*step));
  const auto report = Objects(tool.Run("graph --memory --json " + saved).out);
  REQUIRE_EQ(report.size(), 1);
  const StepInfo info =
      Session(graph).Prepare({{x, {16, 4}}}, {loss}, {train}).info();
  CHECK_EQ(report[0]["arena_bytes"], info.arena_bytes);
  CHECK_EQ(report[0]["lower_bound"], info.arena_lower_bound);
  CHECK_EQ(report[0]["instructions"], info.nodes);
  int64_t live = 0;
  for (const Json& value : report[0]["live"]) {
    live += (value["bytes"].get<int64_t>() + 63) / 64 * 64;
  }
  CHECK_EQ(live, info.arena_lower_bound);

  // In half precision its activations are half as large.
  const auto half =
      Objects(tool.Run("graph --memory --json --precision bf16 " + saved).out);
  CHECK(half[0]["live"].dump().find("bfloat16[16,4]") != std::string::npos);
}

TEST_CASE("graph says what was fused and what that saves") {
  const Tool tool;
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 64});
  Sqrt(Exp(x));
  const std::string file = tool.Write("graph.txt", PrintGraph(graph));
  const std::string command = "graph --pass refine --pass fuse " + file;
  const Outcome fused = tool.Run(command + " --feed x=32,64");
  CHECK_EQ(fused.err, "");
  CHECK(Contains(fused.out, "# Fused sqrt saves 16384 bytes: exp, sqrt\n"));
  CHECK(Contains(fused.out, "# 1 fused nodes save 16384 bytes"));
  CHECK(Contains(fused.out, "program = \"Exp(0); Sqrt(1)\""));
  const auto objects =
      Objects(tool.Run(command + " --json --feed x=32,64").out);
  REQUIRE_FALSE(objects.empty());
  CHECK_EQ(objects[0]["merged"], Json({"exp", "sqrt"}));
  CHECK_EQ(objects[0]["bytes_saved"], 16384);
  const Outcome unknown = tool.Run("graph --pass fuse " + file);
  CHECK(unknown.exit_code != 0);
  CHECK(Contains(unknown.err, "fuse: Placeholder 'x' has shape [?,64]"));
}

TEST_CASE("inspect lists checkpoints") {
  const Tool tool;
  const NamedTensor tensors[] = {
      {"fc1/weights", Tensor::Zeros(DType::kFloat32, {2, 3})},
      {"step", Tensor::Scalar<int64_t>(7)}};
  const std::string file = tool.path("a.safetensors");
  ThrowIfError(WriteSafetensors(file, tensors, {{"epoch", "3"}}));
  const Outcome text = tool.Run("inspect " + file);
  CHECK_EQ(text.exit_code, 0);
  CHECK(Contains(text.out, "fc1/weights  float32   [2,3]  min 0 "));
  CHECK(Contains(text.out, "step         int64     []     min 7 "));
  CHECK(Contains(text.out, "metadata epoch = 3\n"));
  CHECK(
      Contains(text.out, "2 tensors, 7 elements, 32 bytes\nchecksum: right\n"));
  const Outcome quick = tool.Run("inspect --quick " + file);
  CHECK_EQ(quick.exit_code, 0);
  CHECK(Contains(quick.out, "fc1/weights  float32   [2,3]\n"));
  const auto objects = Objects(tool.Run("inspect --json " + file).out);
  REQUIRE_EQ(objects.size(), 4);
  CHECK_EQ(objects[0]["metadata"]["epoch"], "3");
  CHECK_EQ(objects[2]["tensor"], "fc1/weights");
  CHECK_EQ(objects[2]["shape"], Json({2, 3}));
  CHECK_EQ(objects[3]["file"], file);
  CHECK_EQ(objects[3]["bytes"], 32);
  CHECK_EQ(objects[3]["checksum"], "right");
}

#if SLUICE_HAVE_PROTOBUF
TEST_CASE("inspect lists a record of events in one line, whatever its tag") {
  const Tool tool;
  const auto writer = EventWriter::Open(tool.path("events")).ValueOrThrow();
  ThrowIfError(writer->Scalar("loss\nstep 7  scalar  accuracy  1", 3, 0.5));
  ThrowIfError(writer->Flush());
  const Outcome text = tool.Run("inspect " + writer->path());
  CHECK_EQ(text.exit_code, 0);
  const auto records =
      Objects(tool.Run("inspect --json " + writer->path()).out);
  REQUIRE_FALSE(records.empty());
  CHECK_EQ(records.back()["tag"], "loss\nstep 7  scalar  accuracy  1");
  const auto lines = std::count(text.out.begin(), text.out.end(), '\n');
  CHECK_EQ(static_cast<size_t>(lines), records.size() + 1);
}
#endif

TEST_CASE("ops lists the table") {
  const Tool tool;
  const auto ops = Objects(tool.Run("ops --json").out);
  CHECK_EQ(ops.size(), OpTable::Global().All().size());
  const Outcome one = tool.Run("ops MatMul");
  CHECK(Contains(one.out, "MatMul(a: T, b: T) -> y: T"));
  CHECK(Contains(one.out, "gradient    yes"));
  CHECK(Contains(one.out, "built by    MatMul\n"));
  CHECK(Contains(one.out, "mixed       "));
  CHECK(Contains(one.out, "attribute   transpose_a: bool = false"));
  CHECK(Contains(tool.Run("ops").out, "ArgMax "));
  CHECK(Contains(tool.Run("ops").out, "GPU kernel"));
}

TEST_CASE("docs/ops.md is what the records say") {
  const Tool tool;
  const Outcome page = tool.Run("ops --markdown");
  CHECK_EQ(page.exit_code, 0);
  CHECK(Contains(page.out, "### MatMul\n"));
  CHECK_MESSAGE((page.out == TextOf(SLUICE_SOURCE_DIR "/docs/ops.md")),
                "make it anew: sluice ops --markdown > docs/ops.md");
}

TEST_CASE("doctor finds the machine well") {
  const Tool tool;
  const Outcome text = tool.Run("doctor");
  CHECK_EQ(text.exit_code, 0);
  CHECK(Contains(text.out, "self-test   ok"));
  const auto report = Objects(tool.Run("doctor --json").out);
  REQUIRE_EQ(report.size(), 1);
  CHECK(report[0]["cores"].get<int>() >= 1);
  CHECK(report[0]["threads"].get<int>() >= 1);
  CHECK_EQ(report[0]["self_test"], "ok");
  // Of several GPUs.
  CHECK_EQ(report[0]["gpu_peers"].empty(), report[0]["gpus"].size() < 2);
  CHECK(report[0]["kernels"]["simd"].get<int>() > 10);
#if SLUICE_HAVE_ONEDNN
  CHECK(report[0]["kernels"]["onednn"].get<int>() > 0);
  CHECK_EQ(report[0]["libraries"]["onednn"], "present");
#else
  CHECK_FALSE(report[0]["kernels"].contains("onednn"));
#endif
}

TEST_CASE("an instruction set that is none, or not there, is refused") {
  const Tool tool;
  const Outcome none = tool.Run("doctor", "SLUICE_ISA=AVX2 ");
  CHECK_EQ(none.exit_code, 1);
  CHECK_EQ(none.out, "");
  CHECK_EQ(none.err,
           "sluice: SLUICE_ISA=AVX2: wanted baseline, avx2 or avx512\n");
  const Outcome newest = tool.Run("doctor", "SLUICE_ISA=avx512 ");
  CHECK_EQ(newest.exit_code, Cpu().avx512 ? 0 : 1);
  if (!Cpu().avx512) {
    CHECK_EQ(newest.err,
             fmt::format("sluice: SLUICE_ISA=avx512: this CPU has {} at most\n",
                         Cpu().avx2 ? "avx2" : "baseline"));
  }
  const Outcome oldest = tool.Run("doctor", "SLUICE_ISA=baseline ");
  CHECK_EQ(oldest.exit_code, 0);
  CHECK(Contains(oldest.out, "kernels use baseline"));
  CHECK_EQ(tool.Run("doctor", "SLUICE_ISA= ").exit_code, 0);
}

TEST_CASE("help and version") {
  const Tool tool;
  for (const char* arguments : {"--help", "--version", "graph --help",
                                "inspect --help", "ops --help"}) {
    CAPTURE(arguments);
    const Outcome outcome = tool.Run(arguments);
    CHECK_EQ(outcome.exit_code, 0);
    CHECK_FALSE(outcome.out.empty());
  }
}

TEST_CASE("what is wrong has its exit code where it cannot be said") {
  const auto code = [](const std::string& arguments) {
    const std::string command = SLUICE_BIN_DIR "/sluice " + arguments + " 2>&-";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  CHECK_EQ(code("inspect /nowhere /none"), 2);  // 1 is a difference
  CHECK_EQ(code("grpah"), 2);
  CHECK_EQ(code("graph /nowhere"), 1);
}

TEST_CASE("whatever is wrong is said in one line") {
  const Tool tool;
  const std::string graph = tool.Write("graph.txt", SmallGraph());
  const std::string bad = tool.Write("bad.txt", "x = Nog()\n");
  const std::string odd_feed =
      tool.Write("odd_feed.txt", OddStep("_feed_0", "_feed_-5"));
  const std::string large_feed =
      tool.Write("large_feed.txt", OddStep("_feed_0", "_feed_99999999999"));
  const std::string odd_fetch =
      tool.Write("odd_fetch.txt", OddStep("index = 0", "index = -1"));
  struct Bad {
    std::string arguments;
    int exit_code;
    const char* message;
  };
  const Bad cases[] = {
      {"", 2, "subcommand"},
      {"grpah", 2, "unknown command 'grpah'; there are graph, inspect,"},
      {"graph", 2, "file is required"},
      {"graph --nope " + graph, 2, "--nope"},
      {"graph --pass nope " + graph, 2, "nope not in {prune,"},
      {"graph --dot --json " + graph, 2, "excludes"},
      {"graph --dot= " + graph, 2, "--dot= has no value"},
      {"graph --dot=half " + graph, 2,
       "wanted full or a number of boxes, got 'half'"},
      {"graph --dot=0 " + graph, 2,
       "wanted full or a number of boxes, got '0'"},
      {"graph --dot=0x10 " + graph, 2, "got '0x10'"},
      {"graph --memory --pass fuse " + graph, 2, "excludes"},
      {"graph --memory --precision fp8 " + graph, 1, "got 'fp8'"},
      {"graph /nowhere", 1, "cannot open '/nowhere'"},
      {"graph " + bad, 1, "bad.txt: line 1, column 8: unknown op 'Nog'"},
      {"graph --pass prune " + graph, 1, "--keep"},
      {"graph --pass place " + graph, 1, "no device '/cpu:1'"},
      {"graph --pass partition " + graph, 1, "run --pass place before"},
      {"graph --pass partition --pass prune " + graph, 1,
       "must be the last, but --pass prune is behind it"},
      {"graph --pass place --device /cpu:0 --device /cpu:1 --pass partition "
       "--pass verify " +
           graph,
       1, "must be the last, but --pass verify is behind it"},
      {"graph --pass refine " + graph, 1, "Placeholder 'x'"},
      {"graph --memory " + graph, 1, "--feed x=DIMENSIONS"},
      {"graph --memory " + odd_feed, 1, "_feed_-5"},
      {"graph --memory " + large_feed, 1, "its index must be from 0 to "},
      {"graph --memory " + odd_fetch, 1, "_fetch_0"},
      {"graph --feed x=3,5 " + graph, 1, "has shape [?,4]"},
      {"graph --feed x=3,a " + graph, 1, "wanted dimensions"},
      {"graph --feed y=3 " + graph, 1, "wanted PLACEHOLDER=DIMENSIONS"},
      {"graph --keep y " + graph, 1, "no node 'y'"},
      {"inspect", 2, "file is required"},
      {"inspect /nowhere", 1, "/nowhere"},
      {"inspect /nowhere.safetensors", 1, "/nowhere"},
      {"inspect a b c", 2, "c"},
      {"inspect " + graph + " " + graph, 2, "only safetensors files can be"},
      {"inspect a.tfevents a.tfevents", 2, "only safetensors files can be"},
#ifdef SLUICE_HAVE_PROTOBUF
      {"inspect " + graph, 1, "neither a safetensors nor an event file"},
#endif
      {"ops Nog", 1, "unknown op 'Nog'"},
      {"doctor now", 2, "now"},
  };
  for (const Bad& wrong : cases) {
    CAPTURE(wrong.arguments);
    const Outcome outcome = tool.Run(wrong.arguments);
    CHECK_EQ(outcome.exit_code, wrong.exit_code);
    CHECK_EQ(outcome.out, "");
    CHECK(outcome.err.starts_with("sluice: "));
    CHECK_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1);
    CHECK(Contains(outcome.err, wrong.message));
  }
}

}  // namespace
}  // namespace sluice
