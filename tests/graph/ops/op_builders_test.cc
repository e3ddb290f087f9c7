// Who adds an op to graphs: what its record says, against the headers that
// declare builders and against what gradients build.
#include <doctest/doctest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "graph/autograd.h"
#include "tests/places.h"
#include "tests/support/op_probe.h"
#include "tests/support/text_of.h"

namespace sluice::testing {
namespace {

// The functions that a header declares at this indentation.
std::set<std::string> Declared(const std::filesystem::path& header,
                               const std::string& indentation) {
  const std::string text = TextOf(header);
  const std::regex function("(?:^|\n)" + indentation +
                            "(?:inline )?[A-Z][\\w:<>]* (\\w+)\\(|"
                            "(?:^|\n)" +
                            indentation + "std::vector<Output> (\\w+)\\(");
  std::set<std::string> names;
  for (std::sregex_iterator i(text.begin(), text.end(), function), end;
       i != end; ++i) {
    names.insert((*i)[1].matched ? (*i)[1] : (*i)[2]);
  }
  return names;
}

const std::filesystem::path kGraph = SLUICE_SOURCE_DIR "/graph";

std::set<std::string> Functions() {
  std::set<std::string> all;
  for (const auto& entry :
       std::filesystem::directory_iterator(kGraph / "ops")) {
    if (entry.path().extension() != ".h") continue;
    all.merge(Declared(entry.path(), ""));
  }
  return all;
}

TEST_CASE("an op and its builder have one name") {
  const std::set<std::string> functions = Functions();
  std::set<std::string> methods;
  for (const std::string& name : Declared(kGraph / "graph.h", "  ")) {
    methods.insert("Graph::" + name);
  }
  REQUIRE(functions.contains("MatMul"));
  REQUIRE(methods.contains("Graph::Variable"));
  for (const OpDef* op : OpTable::Global().All()) {
    const std::string name = op->name;
    CAPTURE(name);
    if (op->made_by != MadeBy::kUsers) {
      CHECK_FALSE(functions.contains(name));
      CHECK((op->builder == nullptr));
    } else if (op->builder == nullptr) {
      CHECK(functions.contains(name));
    } else if (!std::string_view(op->builder).starts_with("Graph::")) {
      CHECK(functions.contains(op->builder));
      CHECK(name.starts_with(op->builder));
      CHECK((OpTable::Global().Get(op->builder).builder == nullptr));
    } else {
      CHECK(methods.contains(op->builder));
      // Graphs in text are full of constants, and have a short name for them.
      CHECK(op->builder == "Graph::" + (name == "Const" ? "Constant" : name));
    }
  }
}

// Adds the gradients of what floats there are, and theirs.
void Differentiate(const ProbeCase& c) {
  Outputs xs, ys;
  for (const Output& x : c.node->inputs()) {
    if (x.dtype() == DType::kFloat64) xs.push_back(x);
  }
  for (int i = 0; i < c.node->num_outputs(); ++i) {
    const Output y = c.node->output(i);
    if (y.dtype() == DType::kFloat64) ys.push_back(y);
  }
  for (int order = 0; order < 2 && !xs.empty() && !ys.empty(); ++order) {
    Outputs gradients = Gradients(ys, xs);
    std::erase_if(gradients, [](const Output& g) { return !g.valid(); });
    ys = std::move(gradients);
  }
}

TEST_CASE("ops of gradients are built by gradients") {
  std::set<std::string> built;
  for (const OpDef* op : OpTable::Global().All()) {
    for (const Probe& probe : op->probes) {
      const ProbeCase c = MakeProbeCase(*op, probe, WidestBinding(*op));
      Differentiate(c);
      for (const auto& node : c.graph->nodes()) {
        if (node.get() != c.node) built.insert(node->op().name);
      }
    }
  }
  for (const OpDef* op : OpTable::Global().All()) {
    const std::string name = op->name;
    CAPTURE(name);
    if (op->made_by == MadeBy::kGradients) CHECK(built.contains(name));
    if (op->made_by == MadeBy::kEngine) CHECK_FALSE(built.contains(name));
  }
}

}  // namespace
}  // namespace sluice::testing
