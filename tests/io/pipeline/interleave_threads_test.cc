// Interleave on several threads: what comes, and where it fails, is what one
// thread gives, which is what loops over vectors say.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/counter_random.h"
#include "io/pipeline/dataset.h"
#include "io/sources/datasets.h"
#include "tests/support/error_text.h"
#include "tests/support/numbers.h"
#include "tests/support/random.h"
#include "tests/support/random_pipeline.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::CountUp;
using testing::ErrorOf;
using testing::Numbers;
using testing::ValueOf;
using testing::Values;

// Values, and the error behind them, if they do not just end.
struct Told {
  Values values;
  std::string error;

  bool operator==(const Told&) const = default;
};

// Gives other threads the processor, for some numbers.
void Dawdle(int64_t number) {
  if (HashKey(3, static_cast<uint64_t>(number)) % 16 == 0) {
    std::this_thread::yield();
  }
}

class Failing : public CountUp {
 public:
  Failing(int64_t from, int64_t to, std::string error)
      : CountUp(from, to), error_(std::move(error)) {}
  bool Next(Example* example) override {
    if (CountUp::Next(example)) {
      Dawdle(ValueOf(*example));
      return true;
    }
    if (!error_.empty()) throw Error(Code::kDataLoss, error_);
    return false;
  }

 private:
  const std::string error_;
};

Dataset DatasetOf(const Told& told) {
  const int64_t from = told.values.empty() ? 0 : told.values.front();
  const auto to = from + static_cast<int64_t>(told.values.size());
  return datasets::FromGenerator(
      [=](uint64_t) { return std::make_unique<Failing>(from, to, told.error); },
      {.identity = std::to_string(from) + ".." + std::to_string(to)});
}

// What is opened for x: up to 5 numbers, some of which end with an error; some
// cannot even be opened.
bool Opens(int64_t x) {
  return x % 37 != 19;
}

Told PartOf(int64_t x) {
  Told part;
  for (int64_t k = 0; k < (x * 7 + 3) % 6; ++k) {
    part.values.push_back(x % 1000 * 10 + k);
  }
  if (x % 23 == 11) part.error = "broken " + std::to_string(x);
  if (!Opens(x)) part = {{}, "cannot open " + std::to_string(x)};
  return part;
}

Dataset Open(const Example& example) {
  const int64_t x = ValueOf(example);
  if (!Opens(x)) {
    throw Error(Code::kNotFound, "cannot open " + std::to_string(x));
  }
  return DatasetOf(PartOf(x));
}

// tf.data's rule, slot by slot, up to the first error.
Told Interleaved(const Told& input, int64_t cycle, int64_t block) {
  std::vector<std::optional<Told>> slots(static_cast<size_t>(cycle));
  std::vector<size_t> given(slots.size());
  Told out;
  size_t taken = 0;
  for (bool any = true; any;) {
    any = false;
    for (size_t i = 0; i < slots.size(); ++i) {
      if (!slots[i]) {
        if (taken == input.values.size()) {
          if (input.error.empty()) continue;
          out.error = input.error;
          return out;
        }
        slots[i] = PartOf(input.values[taken++]);
        given[i] = 0;
      }
      any = true;
      for (int64_t k = 0; k < block && slots[i]; ++k) {
        if (given[i] < slots[i]->values.size()) {
          out.values.push_back(slots[i]->values[given[i]++]);
        } else if (!slots[i]->error.empty()) {
          out.error = slots[i]->error;
          return out;
        } else {
          slots[i].reset();
        }
      }
    }
  }
  return out;
}

void MapOne(Example& example) {
  const int64_t x = ValueOf(example);
  Dawdle(x);
  if (x % 211 == 97) {
    throw Error(Code::kDataLoss, "unreadable " + std::to_string(x));
  }
  example.Set("x", Tensor::Scalar(x + 1));
}

void AddKey(Example& example, uint64_t key) {
  example.Set("x",
              Tensor::Scalar(ValueOf(example) + static_cast<int64_t>(key % 5)));
}

struct Step {
  int64_t kind, a, b;
};

struct Recipe {
  Told source;
  std::vector<Step> steps;
  int64_t batch;
  std::string text;
};

class Recipes {
 public:
  explicit Recipes(unsigned seed) : random_(seed) {}

  int64_t Draw(int64_t least, int64_t most) {
    return random_.Between(least, most);
  }

  // `random`: with steps whose result a vector cannot tell. Every third source
  // fails if any is to.
  Recipe Make(bool random, bool failing) {
    Recipe out;
    out.source.values.resize(static_cast<size_t>(Draw(0, 12)));
    int64_t next = Draw(0, 900);
    if (!failing) next = 35;  // up to 46: parts that end well
    for (int64_t& x : out.source.values) x = next++;
    if (failing && Draw(0, 2) == 0) out.source.error = "the source";
    const int64_t steps = Draw(1, 3);
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t kind = i == 0 ? 0 : Draw(failing ? 0 : 1, random ? 5 : 3);
      out.steps.push_back({kind, Draw(1, 8), Draw(1, 4)});
    }
    out.batch = Draw(1, 4);
    out.text =
        "source " + std::to_string(out.source.values.size()) + out.source.error;
    for (const Step& step : out.steps) {
      out.text += " " + std::to_string(step.kind) + "," +
                  std::to_string(step.a) + "," + std::to_string(step.b);
    }
    return out;
  }

  // On one thread, or on some other number in each step.
  Dataset Build(const Recipe& recipe, bool threaded) {
    Dataset d = DatasetOf(recipe.source);
    for (const auto& [kind, a, b] : recipe.steps) {
      const int threads = threaded ? static_cast<int>(Draw(0, 4)) : 1;
      const int most = static_cast<int>(Draw(1, 4));
      switch (kind) {
        case 0:
          d = d.Interleave(Open, a, b, threads, most);
          break;
        case 1:
          d = d.Filter([a](const Example& e) { return ValueOf(e) % a != 1; });
          break;
        case 2:
          d = d.Map(MapOne, {.threads = threads, .max_threads = most});
          break;
        case 3:
          d = d.FlatMap(Numbered, threads, most);
          break;
        case 4:
          d = d.Shuffle(a * b, static_cast<uint64_t>(a));
          break;
        default:
          d = d.MapRandom(7, AddKey, {.threads = threads, .max_threads = most});
          break;
      }
      // A Shuffle goes before a map, but not before that and a Prefetch.
      if (threaded && kind != 2 && Draw(0, 4) == 0) d = d.Prefetch(b);
    }
    return d;
  }

  static Told Brute(const Recipe& recipe) {
    Told told = recipe.source;
    for (const auto& [kind, a, b] : recipe.steps) {
      Told next = {{}, told.error};
      if (kind == 0) {
        next = Interleaved(told, a, b);
      } else {
        for (const int64_t x : told.values) {
          if (kind == 1 && x % a != 1) next.values.push_back(x);
          if (kind == 2 && x % 211 == 97) {
            next.error = "unreadable " + std::to_string(x);
            break;
          }
          if (kind == 2) next.values.push_back(x + 1);
          for (int64_t k = 0; kind == 3 && k < x % 3; ++k) {
            next.values.push_back(k);
          }
        }
      }
      told = std::move(next);
    }
    return told;
  }

 private:
  static Dataset Numbered(const Example& e) { return Numbers(ValueOf(e) % 3); }

  testing::Random random_;
};

// The next values, batch by batch, `most` batches at most.
Told ReadOn(Iterator* iterator, int64_t most = INT64_MAX) {
  Told told;
  Example batch;
  for (int64_t i = 0; i < most; ++i) {
    const Result<bool> more = iterator->Next(&batch);
    if (!more.ok()) {
      told.error = more.status().message();
      break;
    }
    if (!*more) break;
    const auto rows = batch["x"].values<int64_t>();
    told.values.insert(told.values.end(), rows.begin(), rows.end());
  }
  return told;
}

Told ReadAll(const Dataset& batches) {
  Iterator iterator = batches.MakeIterator();
  return ReadOn(&iterator);
}

TEST_CASE("any number of threads gives what loops over vectors do") {
  Recipes recipes(5);
  int failed = 0;
  size_t examples = 0;
  for (int round = 0; round < 500; ++round) {
    const Recipe recipe = recipes.Make(false, true);
    CAPTURE(recipe.text);
    const Told want = Recipes::Brute(recipe);
    REQUIRE(ReadAll(recipes.Build(recipe, false).Batch(1)) == want);
    REQUIRE(ReadAll(recipes.Build(recipe, true).Batch(1)) == want);
    failed += want.error.empty() ? 0 : 1;
    examples += want.values.size();
  }
  // The generator makes something to see.
  CHECK(failed > 100);
  CHECK(failed < 450);
  CHECK(examples > 2'500);
}

TEST_CASE("positions are the same on any number of threads") {
  Recipes recipes(6);
  int64_t went_on = 0;
  for (int round = 0; round < 500; ++round) {
    const bool failing = recipes.Draw(0, 1) == 0;
    const Recipe recipe = recipes.Make(true, failing);
    CAPTURE(recipe.text);
    const auto build = [&](bool threaded) {
      return recipes.Build(recipe, threaded).Batch(recipe.batch);
    };
    const Told whole = ReadAll(build(false));
    REQUIRE(ReadAll(build(true)) == whole);
    // Saved on some threads, gone on with on others.
    const int64_t stop = recipes.Draw(0, 8);
    const bool saver_threaded = recipes.Draw(0, 1) == 0;
    Iterator saver = build(saver_threaded).MakeIterator();
    Told begun = ReadOn(&saver, stop);
    if (!begun.error.empty()) continue;
    Iterator resumed = build(!saver_threaded).MakeIterator();
    const Status status = resumed.Restore(saver.SavePosition());
    REQUIRE_MESSAGE(status.ok(), status.message());
    const Told rest = ReadOn(&resumed);
    begun.values.insert(begun.values.end(), rest.values.begin(),
                        rest.values.end());
    begun.error = rest.error;
    REQUIRE(begun == whole);
    went_on += rest.values.empty() ? 0 : 1;
  }
  CHECK(went_on > 100);
}

TEST_CASE("shared out among workers on any number of threads") {
  Recipes recipes(7);
  for (int round = 0; round < 200; ++round) {
    const Recipe recipe = recipes.Make(true, false);
    CAPTURE(recipe.text);
    const int64_t n = recipes.Draw(1, 6);
    const Told whole = ReadAll(recipes.Build(recipe, false).Batch(n));
    REQUIRE(whole.error.empty());
    Told read;
    std::string position;
    const int64_t stop = recipes.Draw(0, 5);
    // A number of workers up to `stop`, then another.
    for (const int64_t batches : {stop, INT64_MAX}) {
      const int64_t size = recipes.Draw(1, std::min<int64_t>(n, 3));
      std::vector<Iterator> workers;
      for (int64_t rank = 0; rank < size; ++rank) {
        workers.push_back(recipes.Build(recipe, true)
                              .Batch(n)
                              .Share(rank, size)
                              .MakeIterator());
        if (position.empty()) continue;
        REQUIRE(workers.back().Restore(position).ok());
      }
      for (int64_t i = 0; i < batches; ++i) {
        const size_t before = read.values.size();
        for (Iterator& worker : workers) {
          const Told part = ReadOn(&worker, 1);
          REQUIRE(part.error.empty());
          read.values.insert(read.values.end(), part.values.begin(),
                             part.values.end());
        }
        if (read.values.size() == before) break;
      }
      position = workers.back().SavePosition();
    }
    REQUIRE(read == whole);
  }
}

TEST_CASE("what is read ahead is bounded") {
  for (const int threads : {1, 3, 0}) {
    std::atomic<int64_t> made = 0;
    const auto open = [&made](const Example&) {
      return Numbers(100).Map([&made](Example&) { ++made; });
    };
    Iterator iterator =
        Numbers(1000).Interleave(open, 4, 2, threads, 3).MakeIterator();
    CHECK(made == 0);  // nothing before the first is asked for
    Example example;
    for (int64_t asked = 1; asked <= 300; ++asked) {
      REQUIRE(iterator.Next(&example).ValueOrThrow());
      REQUIRE(made >= asked);
      REQUIRE(made <= asked + (threads == 1 ? 0 : (4 + 3) * 8));
    }
  }
}

TEST_CASE("threads of an Interleave end at any moment") {
  for (int64_t asked = 0; asked < 60; ++asked) {
    Iterator iterator = Numbers(30)
                            .Repeat()
                            .Interleave(
                                [](const Example& example) {
                                  Dawdle(ValueOf(example));
                                  // Nothing of it passes, for ever.
                                  if (ValueOf(example) == 29) {
                                    return Numbers(3).Repeat().Filter(
                                        [](const Example&) { return false; });
                                  }
                                  return Numbers(ValueOf(example));
                                },
                                4, 1, asked % 3 == 0 ? 0 : 4, 4)
                            .Prefetch(2)
                            .MakeIterator();
    Example example;
    for (int64_t i = 0; i < asked % 20; ++i) REQUIRE(*iterator.Next(&example));
  }
}

TEST_CASE("an Interleave needs threads") {
  const auto open = [](const Example&) { return Numbers(1); };
  CHECK(Contains(ErrorOf([&] { Numbers(1).Interleave(open, 1, 1, -1); }),
                 "Interleave: got -1, wanted a number of threads"));
  CHECK(Contains(ErrorOf([&] { Numbers(1).FlatMap(open, 0, -2); }), "got -2"));
}

}  // namespace
}  // namespace sluice
