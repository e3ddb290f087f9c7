// Variables that sessions share by name: sessions in threads of their own add
// to them, train them, read them and send them, all at once.
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "engine/variable_store.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "tests/support/error_text.h"
#include "tests/support/shared_variables.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

TEST_CASE("sessions that share variables lose no update and tear no value") {
  int reads = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    testing::SharedRound round(seed);
    round.Run();
    reads += round.reads;
  }
  CHECK(reads > 1000);
}

TEST_CASE("a container lives as long as a session that has it") {
  Graph graph;
  const Output v = graph.Variable("v", Zeros({2}));
  const Tensor ones = Tensor::Full(DType::kFloat32, {2}, 1);
  auto first =
      std::make_unique<Session>(graph, SessionOptions{.container = "a"});
  Session other(graph, {.container = "b"}), alone(graph);
  first->Write(v, ones);
  CHECK_FALSE(other.IsInitialized(v));
  CHECK_FALSE(alone.IsInitialized(v));
  {
    Session second(graph, {.container = "a"});
    CHECK(second.IsInitialized(v));
    CHECK(second.Read(v).BitEqual(ones));
    // Other devices, other variables.
    Session elsewhere(graph, {.devices = {"/cpu:1"}, .container = "a"});
    CHECK_FALSE(elsewhere.IsInitialized(v));
    first.reset();
    CHECK(second.Read(v).BitEqual(ones));
  }
  Session anew(graph, {.container = "a"});
  CHECK_FALSE(anew.IsInitialized(v));
}

TEST_CASE("a shared variable of another type is an error that says both") {
  Graph one, two;
  one.Variable("v", Zeros({2}));
  const Output w = two.Variable("v", Zeros({3}));
  Session first(one, {.container = "types"});
  first.Initialize();
  Session second(two, {.container = "types"});
  const std::string message = ErrorOf([&] { second.Run({}, {w}); });
  CHECK(Contains(message, "float32[3]"));
  CHECK(Contains(message, "float32[2]"));
}

TEST_CASE("a variable of another type is neither read nor written nor frozen") {
  Graph small, large;
  const Output v = small.Variable("v", Zeros({2}));
  const Output w = large.Variable("v", Zeros({100000}));
  const Output y = w * 2;
  Session first(small, {.container = "foreign"});
  first.Initialize();
  Session second(large, {.container = "foreign"});
  const std::string both = "float32[100000] in the graph, float32[2]";
  const auto big = Tensor::Zeros(DType::kFloat32, {100000});
  CHECK(Contains(ErrorOf([&] { second.Write(w, big); }), both));
  CHECK(Contains(ErrorOf([&] { second.Read(w); }), both));
  CHECK(Contains(ErrorOf([&] { second.IsInitialized(w); }), both));
  second.Freeze();
  CHECK(Contains(ErrorOf([&] { second.Run({}, y); }), both));
  CHECK(first.Read(v).BitEqual(Tensor::Zeros(DType::kFloat32, {2})));
}

TEST_CASE("rows of a variable of another type are neither read nor written") {
  const Tensor kept = Tensor::Array<float>({2}, {3, 4});
  const auto check = [&](DType dtype, const Shape& shape,
                         const std::string& both) {
    CAPTURE(both);
    Graph small, other;
    const Output v = small.Variable("v", CopyOf(kept));
    const Output w = other.Variable("v", Zeros(shape, dtype));
    Session first(small, {.container = "foreign rows"});
    first.Initialize();
    Session second(other, {.container = "foreign rows"});
    const Tensor given = Tensor::Full(dtype, shape, 7);
    Tensor got = given.Clone();
    CHECK(Contains(ErrorOf([&] { second.ReadRows(w, 0, &got); }), both));
    CHECK(Contains(ErrorOf([&] { second.WriteRows(w, 0, given); }), both));
    CHECK(got.BitEqual(given));
    CHECK(first.Read(v).BitEqual(kept));
    // Its own rows are still to be had.
    Tensor row = Tensor::Zeros(DType::kFloat32, {1});
    first.ReadRows(v, 1, &row);
    CHECK(row.At(0) == 4);
  };
  check(DType::kFloat32, {2, 100000},
        "float32[2,100000] in the graph, float32[2]");
  check(DType::kFloat64, {2}, "float64[2] in the graph, float32[2]");
  check(DType::kFloat32, {3}, "float32[3] in the graph, float32[2]");
}

TEST_CASE("a variable is found where its session's steps have it") {
  // Another session's, of that name on another device, is not it.
  Graph here, there;
  const Output v = here.Variable("v", Zeros({2}));
  const Output w = there.Variable("v", Zeros({2}));
  w.node().set_device("/cpu:1");
  const Output read = w + 0;
  const Tensor ones = Tensor::Full(DType::kFloat32, {2}, 1);
  Session first(here, {.container = "homes"});
  first.Initialize();
  Session second(there,
                 {.devices = {"/cpu:0", "/cpu:1"}, .container = "homes"});
  CHECK_FALSE(second.IsInitialized(w));
  second.Write(w, ones);
  CHECK(second.Run({}, read).BitEqual(ones));
  CHECK(second.Read(w).BitEqual(ones));
  CHECK(first.Read(v).At(0) == 0);
  // The first device is the home where none is asked for.
  Graph anywhere;
  const Output u = anywhere.Variable("v", Zeros({2}));
  Session third(anywhere,
                {.devices = {"/cpu:1", "/cpu:0"}, .container = "homes"});
  CHECK(third.Read(u).BitEqual(ones));
  CHECK(third.Run({}, u + 0).BitEqual(ones));
}

TEST_CASE("a frozen session keeps the values that it froze") {
  Graph graph;
  const Output v = graph.Variable("v", Zeros({3}));
  const Output y = v + 1;
  Session writer(graph, {.container = "frozen"});
  writer.Initialize();
  Session frozen(graph, {.container = "frozen"});
  frozen.Freeze();
  const Tensor before = frozen.Run({}, y);
  writer.Write(v, Tensor::Full(DType::kFloat32, {3}, 5));
  CHECK(frozen.Run({}, y).BitEqual(before));
  CHECK(writer.Run({}, y).BitEqual(Tensor::Full(DType::kFloat32, {3}, 6)));
}

TEST_CASE("what is not finite is not looked for in shared variables") {
  Graph graph;
  const Output v = graph.Variable("v", Zeros({3}));
  Session session(graph, {.container = "finite"});
  session.Initialize();
  CHECK(Contains(ErrorOf([&] { session.FindNonFinite({}, {v}); }),
                 "while others may use the variables"));
}

TEST_CASE("containers that nobody holds are forgotten") {
  std::weak_ptr<VariableStore> gone = VariableStore::Shared("held", "/cpu:0");
  CHECK(gone.expired());
  const auto held = VariableStore::Shared("held", "/cpu:0");
  CHECK(held->shared());
  CHECK(VariableStore::Shared("held", "/cpu:0") == held);
  CHECK(VariableStore::Shared("held", "/cpu:1") != held);
  CHECK(VariableStore::Shared("holds", "/cpu:0") != held);
}

TEST_CASE("a writer comes in between readers whose turns overlap") {
  SharedMutex mutex;
  std::atomic<bool> written = false;
  std::atomic<int> reading = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!written) {
        const ReaderLock lock(mutex);
        ++reading;
        // Until the other reads, too, or the writer keeps it out.
        for (int spin = 0; spin < 1000 && reading < 2; ++spin) {
          std::this_thread::yield();
        }
        --reading;
      }
    });
  }
  {
    const WriterLock lock(mutex);
    CHECK(reading == 0);
    written = true;
  }
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace sluice
