// Sessions that share variables by name, in threads of their own, which add to
// them, train them, read them and send them, all at once.
#ifndef SLUICE_TESTS_SUPPORT_SHARED_VARIABLES_H_
#define SLUICE_TESTS_SUPPORT_SHARED_VARIABLES_H_

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/session/session.h"
#include "models/optim/optimizers.h"
#include "tests/support/wild_rendezvous.h"

namespace sluice::testing {

// Where the variables are, and where a step may read them from there.
struct Places {
  std::string home = "/cpu:0", other = "/cpu:1";
  bool on_host() const {
    return home.find("cpu") != std::string::npos &&
           other.find("cpu") != std::string::npos;
  }
};

// What all actors of a round have in common: int64 variables that are added to,
// float32 ones that are trained, and one that is written from outside. All
// elements of a variable are the same number, always.
struct SharedShapes {
  std::vector<Shape> counted, trained;
  Shape written;
};

struct SharedModel {
  Graph graph;
  std::vector<Output> counted, trained;
  Output written;
  std::vector<Operation> add;  // 1 to each of counted
  Operation train;             // -1 to all of trained

  explicit SharedModel(const SharedShapes& shapes) {
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
inline bool Uniform(const Tensor& value, double* number) {
  for (int64_t i = 0; i < value.elements(); ++i) {
    const double x = value.dtype() == DType::kInt64
                         ? static_cast<double>(value.data<int64_t>()[i])
                         : static_cast<double>(value.data<float>()[i]);
    if (i == 0) *number = x;
    if (x != *number) return false;
  }
  return true;
}

inline std::vector<int64_t> SharedElements() {
  return {0, 1, 7, 1000, 4096, 40000};
}

class SharedRound {
 public:
  explicit SharedRound(uint32_t seed, Places places = {})
      : random_(seed),
        container_("round" + std::to_string(seed)),
        places_(std::move(places)) {
    for (int i = Any(1, 3); i > 0; --i) {
      shapes_.counted.push_back(AnyShape());
      added_.push_back(std::make_unique<std::atomic<int>>(0));
    }
    for (int i = Any(1, 3); i > 0; --i) shapes_.trained.push_back(AnyShape());
    shapes_.written = AnyShape();
  }

  void Run() {
    const SharedModel keeper(shapes_);
    Session session(keeper.graph,
                    {.devices = {places_.home}, .container = container_});
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
    const std::vector<int64_t> elements = SharedElements();
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
    options.devices = {places_.home};
    options.executor = std::vector<ExecutorMode>{
        ExecutorMode::kAuto, ExecutorMode::kSerial, ExecutorMode::kDataflow,
        ExecutorMode::kChecked}[any(4)];
    options.fuse = any(2) == 0;
    options.concurrent_runs = 1 + any(3);
    const SharedModel model(shapes_);
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
      options.devices = {places_.home, places_.other};
      reading.sign = -1;
      for (Output& fetch : reading.fetches) {
        fetch = -fetch;
        fetch.node().set_device(places_.other);
      }
      if (any(2) == 0 && places_.on_host()) {
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
  void Work(Session& session, const SharedModel& model, const Reading& reading,
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
  const Places places_;
  SharedShapes shapes_;
  std::vector<std::unique_ptr<std::atomic<int>>> added_;
  std::atomic<int> trained_ = 0;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_SHARED_VARIABLES_H_
