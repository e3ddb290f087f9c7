// What `sluice graph --dot` draws of real training steps, as Graphviz sees it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/places.h"
#include "tests/support/mnist_program.h"
#include "tests/support/program.h"
#include "tests/support/resnet50_program.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Lines;
using testing::Outcome;
using testing::RunProgram;

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos;
       at += part.size()) {
    ++count;
  }
  return count;
}

// The number before " box" in "// 610 nodes as 30 boxes".
size_t Boxes(const std::string& picture) {
  const size_t end = picture.find(" box");
  REQUIRE(end < picture.find('\n'));
  return std::stoul(picture.substr(picture.rfind(' ', end - 1)));
}

std::string Picture(const std::string& step, const std::string& option) {
  const Outcome drawn =
      RunProgram(SLUICE_BIN_DIR "/sluice", {"graph", option, step});
  CHECK_EQ(drawn.code, 0);
  CHECK_EQ(drawn.err, "");
  return drawn.out;
}

// Draws it, if Graphviz is here: every box, edge and cluster is there.
void Draw(const testing::TemporaryFolder& folder, const std::string& picture) {
  if (std::system("command -v dot > /dev/null 2>&1") != 0) {
    MESSAGE("skipped: no Graphviz on the path, so the picture is not drawn");
    return;
  }
  std::ofstream(folder / "step.dot") << picture;
  const Outcome svg = RunProgram(
      "/bin/sh", {"-c", fmt::format("exec timeout 120 dot -Tsvg '{}'",
                                    folder / "step.dot")});
  CHECK_EQ(svg.code, 0);
  CHECK_EQ(Count(svg.err, "cluster"), 0);  // it may speak of fonts
  CHECK_EQ(Count(svg.out, "class=\"node\""), Boxes(picture));
  CHECK_EQ(Count(svg.out, "class=\"edge\""), Count(picture, " -> "));
  CHECK_EQ(Count(svg.out, "class=\"cluster\""), Count(picture, "subgraph "));
}

TEST_CASE("ResNet-20's training step can be looked at") {
  const testing::TemporaryFolder folder;
  const Outcome trained = testing::RunResNet50(
      {"train", "--data", "synthetic", "--model", "resnet20", "--steps", "1",
       "--batch-size", "2", "--log-dir", folder / "run"});
  REQUIRE_EQ(trained.code, 0);
  const std::string step = folder / "run/step.graph";

  const std::string blocks = Picture(step, "--dot");
  CHECK(Boxes(blocks) > 20);
  CHECK(Boxes(blocks) <= 60);
  CHECK_EQ(Count(blocks, "subgraph "), 3);
  CHECK_EQ(Count(blocks, "label=\"gradients of layer"), 3);
  CHECK_EQ(Count(blocks, "label=\"train\\n59 ApplyMomentum"), 1);
  Draw(folder, blocks);

  // Of each of nine blocks the layers.
  const std::string layers = Picture(step, "--dot=100");
  CHECK(Boxes(layers) > 60);
  CHECK(Boxes(layers) <= 100);
  CHECK_EQ(Count(layers, "subgraph "), 12);
  CHECK_EQ(Count(layers, "label=\"gradients of layer"), 9);
  CHECK_EQ(Count(layers, "label=\"conv2\\nConv2D\\n"), 9);
  Draw(folder, layers);

  const std::string full = Picture(step, "--dot=full");
  CHECK_EQ(Count(full, " [label=\"") - Count(full, " -> "),
           static_cast<size_t>(Lines(testing::TextOf(step))) -
               Count(full, " [style=dashed]"));
}

TEST_CASE("MNIST's training step can be looked at") {
  const testing::TemporaryFolder folder;
  const Outcome trained = testing::RunMnist(testing::OnMnist(
      "train", {"--steps", "1", "--log-dir", folder / "run"}, "cnn"));
  REQUIRE_EQ(trained.code, 0);
  const std::string picture = Picture(folder / "run/step.graph", "--dot");
  for (const char* label :
       {"conv1\\nConv2D, BiasAdd, Relu\\n3 nodes, 832 parameters",
        "gradients of conv1\\n", "max_pool\\nMaxPool", "train\\n8 ApplyAdam"}) {
    CAPTURE(label);
    CHECK_EQ(Count(picture, fmt::format("label=\"{}", label)), 1);
  }
  Draw(folder, picture);
}

}  // namespace
}  // namespace sluice
