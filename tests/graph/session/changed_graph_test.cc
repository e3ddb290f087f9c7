// Nodes that change between the runs of a session: it runs what the graph is
// then, as a session does that has run nothing before.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"

namespace sluice {
namespace {

// What is run, the same before the change and after.
struct Step {
  std::vector<Output> fetches;
  std::vector<Operation> targets;
};

struct Change {
  std::string name;
  std::function<Step(Graph& graph, const Output& v)> build;
  std::function<void(Graph& graph, const Step& step)> change;
};

Node& Fetched(const Step& step) {
  return step.fetches[0].node();
}

Step Minus(Graph& graph, const Output& v) {
  return {{v - graph.Constant(Tensor::Vector<float>(std::vector<float>{5, 7}))},
          {}};
}
Step Update(Graph&, const Output& v) {
  return {{}, {AssignAdd(v, v)}};
}
Step ReadBesideUpdate(Graph&, const Output& v) {
  const Output update = AssignAdd(v, v);
  const Output read = Identity(v);
  return {{read}, {update}};
}

const std::vector<Change>& Changes() {
  static const std::vector<Change> changes = {
      {"MakeConditional", Update,
       [](Graph& graph, const Step& step) {
         const Output never = graph.Constant(Tensor::Scalar(false));
         MakeConditional(step.targets[0], never);
       }},
      {"MakeConditional by what is there already",
       [](Graph& graph, const Output& v) {
         const Output never = graph.Constant(Tensor::Scalar(false), "never");
         return Step{{never}, {AssignAdd(v, v)}};
       },
       [](Graph&, const Step& step) {
         MakeConditional(step.targets[0], step.fetches[0]);
       }},
      {"set_input", Minus,
       [](Graph&, const Step& step) {
         Fetched(step).set_input(1, Fetched(step).input(0));
       }},
      {"set_inputs", Minus,
       [](Graph&, const Step& step) {
         const Node& node = Fetched(step);
         Fetched(step).set_inputs({node.input(1), node.input(0)});
       }},
      {"set_attr",
       [](Graph&, const Output& v) {
         return Step{{CumSum(v, 0)}, {}};
       },
       [](Graph&, const Step& step) {
         Fetched(step).set_attr("reverse", true);
       }},
      {"Become",
       [](Graph&, const Output& v) {
         return Step{{Neg(v)}, {}};
       },
       [](Graph&, const Step& step) {
         Fetched(step).Become(OpTable::Global().Get("Square"), {},
                              Fetched(step).inputs());
       }},
      {"AddControlInput", ReadBesideUpdate,
       [](Graph&, const Step& step) {
         Fetched(step).AddControlInput(&step.targets[0].node());
       }},
      {"set_control_inputs",
       [](Graph& graph, const Output& v) {
         const Step step = ReadBesideUpdate(graph, v);
         Fetched(step).AddControlInput(&step.targets[0].node());
         return step;
       },
       [](Graph&, const Step& step) { Fetched(step).set_control_inputs({}); }},
      {"set_origin",
       [](Graph& graph, const Output&) {
         return Step{{RandomUniform(graph, Shape{2})}, {}};
       },
       [](Graph&, const Step& step) { Fetched(step).set_origin("another"); }},
  };
  return changes;
}

// All that is fetched, then the variable.
std::vector<Tensor> Run(Session& session, const Step& step, const Output& v) {
  session.Initialize();
  session.set_step(0);
  std::vector<Tensor> values = session.Run({}, step.fetches, step.targets);
  values.push_back(session.Read(v).Clone());
  return values;
}

bool Same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].BitEqual(b[i])) return false;
  }
  return a.size() == b.size();
}

TEST_CASE("a session runs the graph as it is, whatever it ran before") {
  for (const Change& change : Changes()) {
    CAPTURE(change.name);
    Graph graph;
    const Output v = graph.Variable(
        "v", CopyOf(Tensor::Vector<float>(std::vector<float>{1, 2})));
    const Step step = change.build(graph, v);
    Session session(graph);
    const std::vector<Tensor> before = Run(session, step, v);
    change.change(graph, step);
    const std::vector<Tensor> after = Run(session, step, v);
    Session fresh(graph);
    const std::vector<Tensor> wanted = Run(fresh, step, v);
    CHECK(Same(after, wanted));
    CHECK_FALSE(Same(before, wanted));  // so that there is a change to miss
  }
}

}  // namespace
}  // namespace sluice
