// Which runs advance the session's step counter, and so draw anew.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"

namespace sluice {
namespace {

// Noise, and an update that does not read it, on another device if there is
// one.
struct Drawing {
  Graph graph;
  Output noise = RandomUniform(graph, Shape{8});
  Output count, add;

  explicit Drawing(const std::string& device = "") {
    const DeviceScope there(graph, device);
    count = graph.Variable("count", Zeros({}));
    add = AssignAdd(count, 1);
  }
  // As ever, with the update as a target.
  std::vector<Tensor> Wanted(size_t runs) {
    std::vector<Tensor> wanted;
    Session session(graph, {.devices = {"/cpu:0", "/cpu:1"}});
    session.Initialize();
    while (wanted.size() < runs) {
      wanted.push_back(session.Run({}, noise, {add}));
    }
    return wanted;
  }
};

TEST_CASE("a run that fetches an update is a step") {
  for (const std::string device : {"", "/cpu:1"}) {
    CAPTURE(device);
    Drawing drawing(device);
    const std::vector<Tensor> wanted = drawing.Wanted(3);
    CHECK_FALSE(wanted[0].BitEqual(wanted[1]));
    Session session(drawing.graph, {.devices = {"/cpu:0", "/cpu:1"}});
    session.Initialize();
    PreparedStep step = session.Prepare({}, {drawing.noise, drawing.add});
    std::vector<Tensor> got = step.MakeFetches();
    for (size_t i = 0; i < wanted.size(); ++i) {
      step.Run({}, got);
      CHECK(got[0].BitEqual(wanted[i]));
      CHECK(got[1].At(0) == static_cast<double>(i + 1));
      CHECK(session.step() == i + 1);
    }
  }
}

TEST_CASE("so is one that fetches what comes after an update") {
  Drawing drawing;
  const Output after = WithDependencies({drawing.add}, drawing.noise);
  const std::vector<Tensor> wanted = drawing.Wanted(2);
  Session session(drawing.graph);
  session.Initialize();
  for (const Tensor& value : wanted) {
    CHECK(session.Run({}, after).BitEqual(value));
  }
  CHECK(session.step() == 2);
}

TEST_CASE("a run that updates nothing draws the same again") {
  Drawing drawing;
  const std::vector<Tensor> wanted = drawing.Wanted(1);
  Session session(drawing.graph);
  session.Initialize();
  for (int i = 0; i < 2; ++i) {
    const std::vector<Tensor> got =
        session.Run({}, {drawing.noise, drawing.count});
    CHECK(got[0].BitEqual(wanted[0]));
  }
  CHECK(session.step() == 0);
}

TEST_CASE("looking for what is not finite is no step") {
  Drawing drawing;
  Session session(drawing.graph);
  session.Initialize();
  session.set_step(7);
  CHECK(session.FindNonFinite({}, {Log(drawing.add - 1)}) == "log");
  CHECK(session.step() == 7);
  CHECK(session.Read(drawing.count).At(0) == 0);
}

// As virtual workers run the parts of a step, of which the update is one.
TEST_CASE("runs as a given replica leave the counter alone") {
  Drawing drawing;
  Session session(drawing.graph);
  session.Initialize();
  session.set_step(3);
  PreparedStep step = session.Prepare({}, {drawing.noise, drawing.add});
  std::vector<Tensor> first = step.MakeFetches(), second = step.MakeFetches();
  step.Start({}, first, /*replica=*/0).Wait();
  step.Start({}, second, /*replica=*/1).Wait();
  CHECK(session.step() == 3);
  CHECK_FALSE(first[0].BitEqual(second[0]));
  step.Run({}, second);
  CHECK(first[0].BitEqual(second[0]));
  CHECK(session.step() == 4);
  // One with targets is a training step, which would draw the same again.
  step = session.Prepare({}, {drawing.noise}, {drawing.add});
  std::vector<Tensor> fetches = step.MakeFetches();
  CHECK_THROWS_AS(step.Start({}, fetches, /*replica=*/0), Error);
}

}  // namespace
}  // namespace sluice
