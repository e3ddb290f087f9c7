// Variables that sessions share by name: sessions in threads of their own add
// to them, train them, read them and send them, all at once.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "engine/variable_store.h"
#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/optim/optimizers.h"
#include "tests/support/error_text.h"
#include "tests/support/wild_rendezvous.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::WildRendezvous;

// What all actors of a round have in common: int64 variables that are added to,
// float32 ones that are trained, and one that is written from outside. All
// elements of a variable are the same number, always.
struct Shapes {
  std::vector<Shape> counted, trained;
  Shape written;
};

struct Model {
  Graph graph;
  std::vector<Output> counted, trained;
  Output written;
  std::vector<Operation> add;  // 1 to each of counted
  Operation train;             // -1 to all of trained

  explicit Model(const Shapes& shapes) {
    for (size_t i = 0; i < shapes.counted.size(); ++i) {
      counted.push_back(
          graph.Variable("counted" + std::to_string(i),
                         Zeros(shapes.counted[i], DType::kInt64)));
      const Output one =
          graph.Constant(Tensor::Full(DType::kInt64, shapes.counted[i], 1));
      add.emplace_back(AssignAdd(counted[i], one));
    }
    Output loss = graph.Constant(Tensor::Full(DType::kFloat32, {}, 0));
    for (size_t i = 0; i < shapes.trained.size(); ++i) {
      trained.push_back(graph.Variable("trained" + std::to_string(i),
                                       Zeros(shapes.trained[i])));
      loss = loss + Sum(trained[i]);
    }
    train = optimizers::Sgd(1).Minimize(loss);
    written = graph.Variable("written", Zeros(shapes.written));
  }
};

// Whether all elements are one number, which `number` becomes. Nothing of none.
bool Uniform(const Tensor& value, double* number) {
  for (int64_t i = 0; i < value.elements(); ++i) {
    const double x = value.dtype() == DType::kInt64
                         ? static_cast<double>(value.data<int64_t>()[i])
                         : static_cast<double>(value.data<float>()[i]);
    if (i == 0) *number = x;
    if (x != *number) return false;
  }
  return true;
}

std::vector<int64_t> Elements() {
  return {0, 1, 7, 1000, 4096, 40000};
}

class Round {
 public:
  explicit Round(uint32_t seed)
      : random_(seed), container_("round" + std::to_string(seed)) {
    for (int i = Any(1, 3); i > 0; --i) {
      shapes_.counted.push_back(AnyShape());
      added_.push_back(std::make_unique<std::atomic<int>>(0));
    }
    for (int i = Any(1, 3); i > 0; --i) shapes_.trained.push_back(AnyShape());
    shapes_.written = AnyShape();
  }

  void Run() {
    const Model keeper(shapes_);
    Session session(keeper.graph, {.container = container_});
    session.Initialize();
    std::vector<std::thread> actors;
    for (int i = Any(2, 5); i > 0; --i) {
      const auto seed = static_cast<uint32_t>(random_());
      actors.emplace_back([this, seed] {
        try {
          Act(seed);
        } catch (const Error& error) {
          ++broken;
          MESSAGE(error.what());
        }
      });
    }
    for (std::thread& actor : actors) actor.join();
    CHECK(torn == 0);
    CHECK(backwards == 0);
    CHECK(broken == 0);
    for (size_t i = 0; i < keeper.counted.size(); ++i) {
      CheckIs(session.Read(keeper.counted[i]), added_[i]->load());
    }
    for (const Output& variable : keeper.trained) {
      CheckIs(session.Read(variable), -trained_.load());
    }
  }

  std::atomic<int> torn = 0, backwards = 0, broken = 0, reads = 0;

 private:
  int Any(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }
  Shape AnyShape() {
    const std::vector<int64_t> elements = Elements();
    return {elements[Any(0, static_cast<int>(elements.size()) - 1)]};
  }

  static void CheckIs(const Tensor& value, double number) {
    double found = number;
    CHECK(Uniform(value, &found));
    CHECK(found == number);
  }

  // What is read of a variable that only ever grows by `sign`.
  void Note(const Tensor& value, double sign, double* last) {
    ++reads;
    double number = *last;
    if (!Uniform(value, &number)) ++torn;
    if ((number - *last) * sign < 0) ++backwards;
    *last = number;
  }

  // One session, in one or more threads.
  void Act(uint32_t seed) {
    std::mt19937 random(seed);
    const auto any = [&](int n) { return static_cast<int>(random() % n); };
    SessionOptions options;
    options.container = container_;
    options.executor = std::vector<ExecutorMode>{
        ExecutorMode::kAuto, ExecutorMode::kSerial, ExecutorMode::kDataflow,
        ExecutorMode::kChecked}[any(4)];
    options.fuse = any(2) == 0;
    options.concurrent_runs = 1 + any(3);
    const Model model(shapes_);
    Reading reading;
    for (const Output& variable : model.counted) {
      reading.fetches.push_back(variable);
    }
    for (const Output& variable : model.trained) {
      reading.fetches.push_back(variable);
    }
    reading.fetches.push_back(model.written);
    std::shared_ptr<WildRendezvous> wild;
    if (any(2) == 0) {
      options.devices = {"/cpu:0", "/cpu:1"};
      reading.sign = -1;
      for (Output& fetch : reading.fetches) {
        fetch = -fetch;
        fetch.node().set_device("/cpu:1");
      }
      if (any(2) == 0) {
        wild = std::make_shared<WildRendezvous>(
            WildRendezvous::Options{.seed = seed});
        options.rendezvous = wild;
      }
    }
    Session session(model.graph, options);
    std::vector<std::thread> threads;
    for (int i = 1 + any(3); i > 0; --i) {
      const auto thread_seed = static_cast<uint32_t>(random());
      threads.emplace_back([&, thread_seed] {
        try {
          Work(session, model, reading, thread_seed);
        } catch (const Error& error) {
          ++broken;
          MESSAGE(error.what());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (wild != nullptr && wild->counts().misused > 0) ++broken;
  }

  // How a session reads: in a step, all of the variables, of this sign.
  struct Reading {
    std::vector<Output> fetches;
    double sign = 1;
  };

  // Some steps of one kind.
  void Work(Session& session, const Model& model, const Reading& reading,
            uint32_t seed) {
    std::mt19937 random(seed);
    const auto any = [&](int n) { return static_cast<int>(random() % n); };
    std::vector<double> last(reading.fetches.size(), 0);
    const int work = any(4);
    for (int step = 0; step < 30; ++step) {
      const int i = any(static_cast<int>(model.counted.size()));
      switch (work) {
        case 0:
          session.Run({}, model.add[i]);
          ++*added_[i];
          break;
        case 1:
          session.Run({}, model.train);
          ++trained_;
          break;
        case 2: {
          session.Write(model.written,
                        Tensor::Full(DType::kFloat32, shapes_.written, step));
          double ignored = 0;
          if (!Uniform(session.Read(model.written), &ignored)) ++torn;
          Note(session.Read(model.counted[i]), 1, &last[i]);
          break;
        }
        default: {
          const std::vector<Tensor> read = session.Run({}, reading.fetches);
          const size_t counted = model.counted.size();
          for (size_t f = 0; f + 1 < read.size(); ++f) {
            Note(read[f], f < counted ? reading.sign : -reading.sign, &last[f]);
          }
          if (!Uniform(read.back(), &last.back())) ++torn;
        }
      }
    }
  }

  std::mt19937 random_;
  const std::string container_;
  Shapes shapes_;
  std::vector<std::unique_ptr<std::atomic<int>>> added_;
  std::atomic<int> trained_ = 0;
};

TEST_CASE("sessions that share variables lose no update and tear no value") {
  int reads = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Round round(seed);
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
