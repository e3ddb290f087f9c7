// Random pipelines of all steps that come before Batch, with the values that
// loops over vectors say they yield.
#ifndef SLUICE_TESTS_SUPPORT_RANDOM_PIPELINE_H_
#define SLUICE_TESTS_SUPPORT_RANDOM_PIPELINE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "io/counter_random.h"
#include "io/pipeline/dataset.h"
#include "io/sources/datasets.h"
#include "tests/support/numbers.h"

namespace sluice::testing {

using Values = std::vector<int64_t>;

// While one lives, the functions of pipelines throw now and then, on whatever
// thread they run, as where files are far away.
class Failures {
 public:
  static constexpr const char* kMessage = "it failed this time";

  Failures() = default;
  ~Failures() { one_in_ = 0; }
  Failures(const Failures&) = delete;
  Failures& operator=(const Failures&) = delete;

  // Of so many calls one throws; 0: none.
  void Set(uint64_t one_in) { one_in_ = one_in; }

  static void MayThrow() {
    const uint64_t one_in = one_in_;
    if (one_in == 0 || HashKey(calls_++, 0) % one_in != 0) return;
    throw Error(Code::kUnavailable, kMessage);
  }

 private:
  static inline std::atomic<uint64_t> one_in_ = 0, calls_ = 0;
};

// `threads` = 0: chosen, of up to `max_threads`.
inline Dataset Add(const Dataset& dataset, int64_t n, int threads = 1,
                   int max_threads = 0) {
  return dataset.Map(
      [n](Example& example) {
        Failures::MayThrow();
        example.Set("x", Tensor::Scalar(example["x"].IntAt(0) + n));
      },
      {.threads = threads, .max_threads = max_threads});
}

// Whether a position is a mark, not a count.
inline bool IsMark(const std::string& position) {
  return position.find("\"at\"") != std::string::npos;
}

inline int64_t ValueOf(const Example& example) {
  return example["x"].IntAt(0);
}

// from, from + 1, ..., to - 1, with the usual Skip.
class CountUp : public Generator {
 public:
  CountUp(int64_t from, int64_t to) : next_(from), to_(to) {}
  bool Next(Example* example) override {
    Failures::MayThrow();
    if (next_ == to_) return false;
    *example = {{"x", Tensor::Scalar(next_++)}};
    return true;
  }

 private:
  int64_t next_;
  const int64_t to_;
};

// A pipeline and the values it is to yield.
struct Pipeline {
  Dataset dataset;
  Values values;
  std::string text;
  bool same = true;  // in every epoch
};

// The datasets that Interleave opens: of i, i % 4 numbers from 100 i on.
inline int64_t PartSize(int64_t i) {
  return i % 4;
}

// tf.data's rule, told by queues: a full turn takes from each slot in order.
inline Values Interleaved(const Values& input, int64_t cycle, int64_t block) {
  std::vector<std::deque<int64_t>> slots(static_cast<size_t>(cycle));
  std::vector<bool> open(slots.size());
  size_t taken = 0;
  Values out;
  for (;;) {
    bool any = false;
    for (size_t i = 0; i < slots.size(); ++i) {
      if (!open[i] && taken < input.size()) {
        const int64_t x = input[taken++];
        for (int64_t k = 0; k < PartSize(x); ++k) {
          slots[i].push_back(x * 100 + k);
        }
        open[i] = true;
      }
      if (!open[i]) continue;
      any = true;
      for (int64_t k = 0; k < block && open[i]; ++k) {
        if (slots[i].empty()) {
          open[i] = false;
        } else {
          out.push_back(slots[i].front());
          slots[i].pop_front();
        }
      }
    }
    if (!any) return out;
  }
}

class Generators {
 public:
  // With `random`, also steps whose result a vector cannot tell. Numbers of
  // threads are drawn by another seed, so that two of the same `seed` make the
  // same pipelines on other threads. With a folder some caches are in it.
  Generators(unsigned seed, bool random, unsigned threads_seed = 1,
             std::string folder = "")
      : engine_(seed),
        threads_(threads_seed),
        random_(random),
        folder_(std::move(folder)) {}

  int64_t Draw(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(engine_);
  }

  Pipeline Make(int depth = 3) {
    Pipeline out = depth > 0 && Draw(0, 3) == 0 ? Combined(depth) : Source();
    for (int64_t steps = Draw(0, 4); steps > 0; --steps) AddStep(&out);
    return out;
  }

 private:
  Pipeline Source() {
    const int64_t n = Draw(0, 20);
    Values values(static_cast<size_t>(n));
    std::iota(values.begin(), values.end(), 0);
    const auto make = [n](uint64_t) { return std::make_unique<CountUp>(0, n); };
    switch (Draw(0, 3)) {
      case 0:
        return {Numbers(n), values, "numbers"};
      case 1:
        return {datasets::FromFunction(
                    n,
                    [](int64_t i) {
                      Failures::MayThrow();
                      return Example{{"x", Tensor::Scalar(i)}};
                    },
                    "function", Threads()),
                values, "function"};
      case 2:
        return {datasets::FromGenerator(make, {.same_in_every_epoch = true}),
                values, "generator"};
      default:
        return {datasets::FromGenerator(
                    make, {.size = n, .same_in_every_epoch = true}),
                values, "sized"};
    }
  }

  Pipeline Combined(int depth) {
    Pipeline a = Make(depth - 1);
    Pipeline b = Make(depth - 1);
    const std::string text = "(" + a.text + " | " + b.text + ")";
    const bool same = a.same && b.same;
    if (random_ && Draw(0, 2) == 0) {
      return {datasets::Choose(std::vector{a.dataset, b.dataset},
                               std::vector{1.0, 2.5}, 5),
              {},
              "choose" + text,
              false};
    }
    if (Draw(0, 1) == 0) {
      a.values.insert(a.values.end(), b.values.begin(), b.values.end());
      return {datasets::Concatenate(std::vector{a.dataset, b.dataset}),
              a.values, "concatenate" + text, same};
    }
    const size_t n = std::min(a.values.size(), b.values.size());
    for (size_t i = 0; i < n; ++i) a.values[i] += 7 * b.values[i];
    a.values.resize(n);
    const Dataset renamed = b.dataset.Map([](Example& example) {
      example = {{"y", example["x"]}};
    });
    return {datasets::Zip(std::vector{a.dataset, renamed})
                .Map([](Example& example) {
                  const int64_t sum =
                      ValueOf(example) + 7 * example["y"].IntAt(0);
                  example = {{"x", Tensor::Scalar(sum)}};
                }),
            a.values, "zip" + text, same};
  }

  void AddStep(Pipeline* out) {
    Dataset& d = out->dataset;
    Values& values = out->values;
    const int64_t step = Draw(0, random_ ? 12 : 10);
    const int64_t n = Draw(1, 6);
    out->text += " " + std::to_string(step) + "," + std::to_string(n);
    Values made;
    switch (step) {
      case 0:
        d = Add(d, n, Threads(), MaxThreads());
        for (int64_t& x : values) x += n;
        return;
      case 1:
        d = d.Filter([n](const Example& e) {
          Failures::MayThrow();
          return ValueOf(e) % (n + 1) != 0;
        });
        std::erase_if(values, [n](int64_t x) { return x % (n + 1) == 0; });
        return;
      case 2: {
        const int64_t block = Draw(1, 3);
        const bool shuffled = random_ && Draw(0, 1) == 0;
        const int threads = Threads();
        const int max_threads = MaxThreads();
        out->same &= !shuffled;
        d = d.Interleave(
            [shuffled](const Example& e) {
              Failures::MayThrow();
              const int64_t x = ValueOf(e);
              const Dataset part = Add(Numbers(PartSize(x)), x * 100);
              return shuffled ? part.Shuffle(4, 1).MapRandom(2, AddKey) : part;
            },
            n, block, threads, max_threads);
        values = Interleaved(values, n, block);
        return;
      }
      case 3:
        d = d.Take(4 * n);
        values.resize(std::min(values.size(), static_cast<size_t>(4 * n)));
        return;
      case 4:
        d = d.Shard(n % 3, 3);
        for (size_t i = static_cast<size_t>(n % 3); i < values.size(); i += 3) {
          made.push_back(values[i]);
        }
        values = made;
        return;
      case 5:
        d = d.Repeat(n % 3);
        for (int64_t i = 0; i < n % 3; ++i) {
          made.insert(made.end(), values.begin(), values.end());
        }
        values = made;
        return;
      case 6:
        if (out->same) d = d.Cache(Keeping(n));
        return;
      case 7:
        d = d.Prefetch(n);
        return;
      case 8:
        if (!random_) d = d.ExpectSize(static_cast<int64_t>(values.size()));
        return;
      case 9:
        d = d.FlatMap(
            [](const Example& e) {
              const int64_t x = ValueOf(e);
              return Add(Numbers(PartSize(x)), x * 100);
            },
            Threads(), MaxThreads());
        values = Interleaved(values, 1, 1);
        return;
      case 10:
        d = d.Skip(n);
        values.erase(values.begin(),
                     values.begin() + std::min<int64_t>(n, static_cast<int64_t>(
                                                               values.size())));
        return;
      case 11:
        d = d.Shuffle(5 * n, static_cast<uint64_t>(n));
        out->same = false;
        return;
      default:
        d = d.MapRandom(static_cast<uint64_t>(n), AddKey,
                        {.threads = Threads(), .max_threads = MaxThreads()});
        out->same = false;
        return;
    }
  }

  int Threads() { return std::uniform_int_distribution(0, 3)(threads_); }
  int MaxThreads() { return std::uniform_int_distribution(1, 4)(threads_); }

  // Room for few elements, or for many; a key for each cache that is made.
  CacheOptions Keeping(int64_t n) {
    CacheOptions options = {.max_bytes = static_cast<uint64_t>(50 * n)};
    if (folder_.empty() || Draw(0, 3) > 0) return options;
    return {.max_bytes = static_cast<uint64_t>(n == 1 ? 3000 : 300'000),
            .folder = folder_,
            .key = "cache " + std::to_string(caches_++)};
  }

  static void AddKey(Example& example, uint64_t key) {
    Failures::MayThrow();
    const auto sum = static_cast<int64_t>(
        static_cast<uint64_t>(ValueOf(example)) + key % 1'000'003);
    example.Set("x", Tensor::Scalar(sum));
  }

  std::mt19937 engine_, threads_;
  const bool random_;
  const std::string folder_;
  int caches_ = 0;  // made
};

inline constexpr int64_t kMost = 3000;

// The next values, `most` at most.
inline Values Read(Iterator* iterator, int64_t most = kMost) {
  Values values;
  Example example;
  while (static_cast<int64_t>(values.size()) < most &&
         iterator->Next(&example).ValueOrThrow()) {
    values.push_back(ValueOf(example));
  }
  return values;
}

inline Values Read(const Dataset& dataset) {
  Iterator iterator = dataset.MakeIterator();
  return Read(&iterator);
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_RANDOM_PIPELINE_H_
