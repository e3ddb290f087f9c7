// What Verify finds in graphs and parts that are not as they have to be.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>

#include "graph/builder.h"
#include "graph/passes/passes.h"

namespace sluice {
namespace {

TEST_CASE("verify names what is illegal") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2, 3});
  const Output y = Neg(x);
  const Output z = Exp(y);
  auto message = [&] { return passes::Verify(graph).message(); };
  CHECK_EQ(message(), "");

  SUBCASE("an edge to another graph") {
    Graph other;
    z.node().set_input(0, other.Placeholder("x", DType::kFloat32, {2, 3}));
    CHECK(message().find("Exp 'exp': input 0 is not in the graph") !=
          std::string::npos);
  }
  SUBCASE("an output that is not there") {
    z.node().set_input(0, {&y.node(), 1});
    CHECK(message().find("input 0 is output 1 of Neg 'neg', which has 1") !=
          std::string::npos);
  }
  SUBCASE("a cycle") {
    y.node().set_input(0, z);
    CHECK(message().find("Neg 'neg': lies on a cycle") != std::string::npos);
  }
  SUBCASE("a control cycle") {
    y.node().AddControlInput(&z.node());
    CHECK(message().find("lies on a cycle") != std::string::npos);
  }
  SUBCASE("types that are not what inference says") {
    z.node().set_output_types({{DType::kFloat32, {3, 2}}});
    CHECK(message().find("output 0 is float32[3,2], inference says "
                         "float32[2,3]") != std::string::npos);
  }
  SUBCASE("a missing attribute") {
    x.node().Become(x.node().op(), {{"dtype", DType::kFloat32}}, {});
    CHECK(message().find("attribute 'shape'") != std::string::npos);
  }
  SUBCASE("too few inputs") {
    z.node().set_inputs({});
    CHECK(message().find("0 inputs, wanted 1") != std::string::npos);
  }
  SUBCASE("an update of what is no variable") {
    Assign(y, x);
    CHECK(message().find("updates input 0, which is Neg 'neg'") !=
          std::string::npos);
  }
  const auto send = [&] {
    const Output sent(&graph.Add({"SendStart", {x}, {{"key", "k"}}}), 0);
    graph.Add({"SendWait", {sent}, {{"key", "k"}}});
    return sent;
  };
  const auto receive = [&](const Shape& shape) {
    return Output(
        &graph.Add(
            {"RecvStart",
             {},
             {{"key", "k"}, {"dtype", DType::kFloat32}, {"shape", shape}}}),
        0);
  };
  const auto wait = [&](const Output& started, const char* key) {
    graph.Add({"RecvWait", {started}, {{"key", key}}});
  };
  SUBCASE("two senders of one key") {
    send();
    send();
    CHECK(message().find("SendStart 'send_start' has the key 'k' too") !=
          std::string::npos);
  }
  SUBCASE("a receiver that wants another type") {
    send();
    wait(receive({3, 2}), "k");
    CHECK(message().find("receives float32[3,2], SendStart 'send_start' sends "
                         "float32[2,3]") != std::string::npos);
  }
  SUBCASE("a start that nobody waits for") {
    receive({2});
    CHECK(message().find("RecvStart 'recv_start': no RecvWait waits for it") !=
          std::string::npos);
  }
  SUBCASE("two waits for one start") {
    const Output started = receive({2});
    wait(started, "k");
    wait(started, "k");
    CHECK(message().find("RecvWait 'recv_wait' waits for RecvStart") !=
          std::string::npos);
  }
  SUBCASE("a use of what is under way") {
    Neg(send());
    CHECK(message().find("uses SendStart 'send_start', which is under way "
                         "until its SendWait") != std::string::npos);
  }
  SUBCASE("a wait for another key") {
    wait(receive({2}), "l");
    CHECK(message().find("RecvWait 'recv_wait': waits for RecvStart") !=
          std::string::npos);
  }
  SUBCASE("a wait for what was not started") {
    graph.Add({"SendWait", {x}, {{"key", "k"}}});
    CHECK(message().find("SendWait 'send_wait': waits for Placeholder 'x'") !=
          std::string::npos);
  }
}

// Of what is there in part nobody reads more.
TEST_CASE("verify of rows that are counted when the step runs") {
  Graph graph;
  const Output ids = graph.Placeholder("ids", DType::kInt64, {4});
  const Output slices = graph.Placeholder("slices", DType::kFloat32, {4, 3});
  const auto rows = [&](const char* name) -> Node& {
    return graph.Add(
        {"RowsBetween", {ids}, {{"begin", 2}, {"end", 5}, {"limit", 9}}, name});
  };
  const Output own = rows("own").output(0);
  const Output places = own.node().output(1), count = own.node().output(2);
  const Output other = rows("other").output(2);
  const auto gather = [&](const Output& by) {
    return graph.Add({"GatherCounted", {slices, places, by}}).output(0);
  };
  const auto message = [&] { return passes::Verify(graph).message(); };
  const auto faulty = [&](const std::string& wanted) {
    CAPTURE(message());
    CHECK(message().find(wanted) != std::string::npos);
  };
  const Output got = gather(count);
  const Output padded = graph.Add({"PadRows", {own, count}}).output(0);
  const Output table = graph.Variable("table", Zeros({3, 3}));
  const Output rate = graph.Constant(0.5, DType::kFloat32);
  const auto update = [&](const Output& gradient, const Output& of) {
    graph.Add({"ApplySgdRows", {table, rate, gradient, of}, {}, "update"});
  };
  const auto send = [&](std::vector<Operand> sent) {
    const Output begun =
        graph.Add({"SendStart", std::move(sent), {{"key", "k"}}}).output(0);
    graph.Add({"SendWait", {begun}, {{"key", "k"}}});
  };
  const auto receive = [&](const std::string& op) {
    const Output begun = graph
                             .Add({op + "Start",
                                   {},
                                   {{"key", "k"},
                                    {"dtype", DType::kFloat32},
                                    {"shape", Shape{4, 3}}}})
                             .output(0);
    return graph.Add({op + "Wait", {begun}, {{"key", "k"}}}).output(0);
  };
  Neg(padded);
  update(got, padded);
  CHECK(message() == "");

  SUBCASE("who reads all of it") {
    Neg(got);
    faulty("Neg 'neg_1': reads all rows of GatherCounted 'gather_counted'");
  }
  SUBCASE("who reads as many as something else counts") {
    gather(other);
    faulty("'gather_counted_1': reads all rows of RowsBetween 'own'");
  }
  SUBCASE("an update by rows that are counted otherwise") {
    update(
        got,
        graph.Add({"PadRows", {rows("third").output(0), graph.Get("third:2")}})
            .output(0));
    faulty("'update_1': reads all rows of GatherCounted");
  }
  SUBCASE("an update by rows that nobody has counted") {
    update(got, ids);
    faulty("'update_1': reads all rows of GatherCounted");
  }
  SUBCASE("a send of all of it") {
    send({got});
    faulty("'send_start': reads all rows of GatherCounted");
  }
  SUBCASE("a send of some that is received") {
    send({got, count});
    const Output came = receive("RecvRows");
    CHECK(message() == "");
    Neg(came);
    faulty("'neg_1': reads all rows of RecvRowsWait");
  }
  SUBCASE("some, received as all") {
    send({got, count});
    receive("Recv");
    faulty("receives all rows, SendStart 'send_start' sends some");
  }
  SUBCASE("all, received as some") {
    send({slices});
    receive("RecvRows");
    faulty("receives some rows, SendStart 'send_start' sends all");
  }
}

TEST_CASE("each collective that is begun is waited for once") {
  int verbs = 0;
  for (const OpDef* op : OpTable::Global().All()) {
    if (op->start == nullptr) continue;
    ++verbs;
    const OpDef& begins = OpTable::Global().Get(op->start);
    REQUIRE(begins.wait != nullptr);
    CAPTURE(std::string(op->name));
    const auto of = [](const OpDef& def, Attributes attrs) {
      for (const AttrDef& attr : def.attrs) {
        if (std::string(attr.name) == "workers") attrs.Set("workers", 2);
      }
      return attrs;
    };
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {4, 2});
    const Output begun(&graph.Add({begins.name, {x}, of(begins, {}), "begun"}),
                       0);
    const auto wait = [&](const Output& what, Attributes attrs = {},
                          const char* by = nullptr) {
      const OpDef& def = OpTable::Global().Get(by ? by : begins.wait);
      return Output(&graph.Add({def.name, {what}, of(def, std::move(attrs))}),
                    0);
    };
    const auto faulty = [&](const std::string& wanted) {
      const std::string message = passes::Verify(graph).message();
      CAPTURE(message);
      CHECK(message.find(wanted) != std::string::npos);
    };
    const std::string who = std::string(begins.name) + " 'begun'";
    faulty(who + ": no " + begins.wait + " waits for it");
    const auto forget = [&] {
      graph.Remove([&](const Node& node) {
        return &node != &begun.node() && &node != &x.node();
      });
    };
    wait(begun, {{"group", "rows"}});
    faulty("waits for " + who);
    forget();
    wait(begun, {},
         begins.wait == std::string("CollectiveWait") ? "ReduceScatterWait"
                                                      : "CollectiveWait");
    faulty("waits for " + who);
    forget();
    wait(x);
    faulty("waits for Placeholder 'x'");
    forget();
    Neg(begun);
    faulty("uses " + who + ", which is under way until its " + begins.wait);
    forget();
    const Output there = wait(begun);
    CHECK(passes::Verify(graph).message() == "");
    Neg(there);
    CHECK(passes::Verify(graph).message() == "");
    wait(begun);
    faulty("waits for " + who + " too");
  }
  CHECK(verbs == 6);
}

TEST_CASE("verify of parts wants both ends") {
  passes::Partitions parts;
  parts["/cpu:0"] = std::make_unique<Graph>();
  Graph& part = *parts["/cpu:0"];
  const Output x = part.Placeholder("x", DType::kFloat32, {2});
  const Output sent(&part.Add({"SendStart", {x}, {{"key", "k"}}}), 0);
  part.Add({"SendWait", {sent}, {{"key", "k"}}});
  for (const auto& node : part.nodes()) node->set_device("/cpu:0");
  CHECK(passes::Verify(parts).message().find("nobody receives 'k'") !=
        std::string::npos);
}

}  // namespace
}  // namespace sluice
