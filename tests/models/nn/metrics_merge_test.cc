// Metrics that several workers collect on shares of a set: merged, they are
// those of the whole set by their definitions, and what no worker can have seen
// is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "engine/tensor.h"
#include "graph/builder.h"
#include "models/nn/metrics.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using Numbers = std::vector<double>;
using Random = std::mt19937;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTwo53 = 9007199254740992;
constexpr int kClasses = 5;

// The last two are fractions of counts.
enum class Kind { kHits, kMean, kBatchMean, kPerplexity, kF1, kCurve };
constexpr int kKinds = 6;

// Metrics of every kind. Their graph is never run: the tests give the values.
struct Metrics {
  Graph graph;
  Output scalar = graph.Placeholder("scalar", DType::kFloat32, {});
  Output vector = graph.Placeholder("vector", DType::kFloat32, {kUnknown});
  Output logits =
      graph.Placeholder("logits", DType::kFloat32, {kUnknown, kClasses});
  Output labels = graph.Placeholder("labels", DType::kInt64, {kUnknown});

  Metric Of(Kind kind) {
    if (kind == Kind::kBatchMean) return scalar;
    if (kind == Kind::kPerplexity) return Perplexity(vector);
    if (kind == Kind::kF1) return F1(logits, labels);
    if (kind == Kind::kCurve) return AreaUnderCurve(vector, labels);
    return vector;
  }
};

template <typename T, typename Draw>
Tensor Drawn(const Shape& shape, Draw draw) {
  Tensor tensor(DTypeOf<T>::value, shape);
  for (T& value : tensor.values<T>()) value = static_cast<T>(draw());
  return tensor;
}

// The values of one metric for a batch of n, `wild` ones not finite.
std::vector<Tensor> Values(Kind kind, int64_t n, bool wild, Random& random) {
  const auto below = [&random](int end) {
    return static_cast<int>(random() % static_cast<uint32_t>(end));
  };
  // Of many magnitudes, so that sums round.
  const auto wide = [&] {
    if (wild && below(40) == 0) return below(2) == 0 ? kNan : kInfinity;
    return std::ldexp(1 + below(1000) / 999., below(40) - 20);
  };
  const auto score = [&] {
    if (wild && below(20) == 0) return below(8) == 0 ? kNan : -kInfinity;
    return below(9) / 8.;
  };
  const auto hit = [&] { return below(3) == 0; };
  const auto any_class = [&] { return below(kClasses - 1); };  // the last never
  const auto prediction = [&] { return wild && hit() ? -1 : any_class(); };
  switch (kind) {
    case Kind::kHits:
      return {Drawn<float>({n}, hit)};
    case Kind::kMean:
      return {Drawn<float>({n}, wide)};
    case Kind::kBatchMean:  // a mean of nothing is 0 / 0
      return {Drawn<float>({}, [&] { return n == 0 ? kNan : wide(); })};
    case Kind::kPerplexity:  // of positions
      return {Drawn<float>({n, 1 + below(3)}, [&] { return below(99) / 25.; })};
    case Kind::kF1:
      return {Drawn<int64_t>({n}, prediction), Drawn<int64_t>({n}, any_class)};
    case Kind::kCurve:
      return {Drawn<float>({n}, score), Drawn<int64_t>({n}, hit)};
  }
  return {};
}

struct Batch {
  size_t worker;
  int64_t examples;
  std::vector<Tensor> values;  // of all metrics
};

// What workers saw of a random set with random metrics.
struct Case {
  Metrics all;
  std::vector<Kind> kinds;
  NamedMetrics metrics;
  size_t workers;
  std::vector<Batch> batches;

  explicit Case(uint32_t seed) {
    Random random(seed);
    for (size_t i = random() % 6; i > 0; --i) {
      kinds.push_back(static_cast<Kind>(random() % kKinds));
      metrics.emplace_back("metric" + std::to_string(i), all.Of(kinds.back()));
    }
    workers = 1 + random() % 6;
    const bool wild = random() % 4 == 0;
    const auto most = 1 + random() % 30;
    for (size_t i = random() % 12; i > 0; --i) {
      const auto n = static_cast<int64_t>(random() % most);
      Batch batch = {random() % workers, n, {}};
      for (const Kind kind : kinds) {
        const auto values = Values(kind, n, wild, random);
        batch.values.insert(batch.values.end(), values.begin(), values.end());
      }
      batches.push_back(std::move(batch));
    }
  }

  // What workers [begin, end) saw.
  MetricsOverSet Share(size_t begin, size_t end) const {
    MetricsOverSet set(metrics);
    for (const auto& [worker, examples, values] : batches) {
      if (begin <= worker && worker < end) set.Add(values, examples);
    }
    return set;
  }
  MetricsOverSet Merged() const {
    MetricsOverSet merged(metrics);
    for (size_t rank = 0; rank < workers; ++rank) {
      merged.Merge(Share(rank, rank + 1).State());
    }
    return merged;
  }
};

// A figure from its definition, over everything at once.
struct Reference {
  Numbers first, second, weights;  // by example; second of pairs

  // The metric's values begin at `tensor` of each batch.
  Reference(const Case& data, Kind kind, size_t tensor) {
    for (const Batch& batch : data.batches) {
      const Tensor& values = batch.values[tensor];
      const bool scalar = kind == Kind::kBatchMean;
      if (scalar && batch.examples == 0) continue;
      for (int64_t i = 0; i < values.elements(); ++i) {
        first.push_back(values.At(i));
        weights.push_back(scalar ? static_cast<double>(batch.examples) : 1);
        if (kind >= Kind::kF1) {
          second.push_back(batch.values[tensor + 1].At(i));
        }
      }
    }
  }

  double Of(Kind kind) const {
    if (kind == Kind::kF1) return MacroF1();
    if (kind == Kind::kCurve) return Curve();
    return kind == Kind::kPerplexity ? std::exp(Mean()) : Mean();
  }

  double Mean() const {
    long double sum = 0, weight = 0;
    for (size_t i = 0; i < first.size(); ++i) {
      sum += static_cast<long double>(first[i]) * weights[i];
      weight += weights[i];
    }
    return static_cast<double>(sum / weight);
  }

  double MacroF1() const {
    double sum = 0, classes = 0;
    for (int c = 0; c < kClasses; ++c) {
      double right = 0, wrong = 0, missed = 0;
      for (size_t i = 0; i < first.size(); ++i) {
        right += first[i] == c && second[i] == c;
        wrong += first[i] == c && second[i] != c;
        missed += first[i] != c && second[i] == c;
      }
      if (right + wrong + missed == 0) continue;
      ++classes;
      sum += 2 * right / (2 * right + wrong + missed);
    }
    return sum / classes;
  }

  double Curve() const {
    double won = 0, pairs = 0;
    for (size_t i = 0; i < first.size(); ++i) {
      for (size_t j = 0; j < first.size(); ++j) {
        if (second[i] != 1 || second[j] != 0) continue;
        if (std::isnan(first[i]) || std::isnan(first[j])) return kNan;
        ++pairs;
        won += first[i] > first[j] ? 1 : first[i] == first[j] ? 0.5 : 0;
      }
    }
    return won / pairs;
  }
};

// NaN equals NaN here.
bool Close(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::abs(a - b) <= 1e-12 * std::abs(b);
}

std::vector<uint64_t> Bits(const Numbers& numbers) {
  std::vector<uint64_t> bits(numbers.size());
  std::transform(numbers.begin(), numbers.end(), bits.begin(),
                 [](double number) { return std::bit_cast<uint64_t>(number); });
  return bits;
}

// How often each kind of outcome was seen.
struct Seen {
  int defined = 0, undefined = 0, rounded = 0;
};

void CheckMerged(const Case& data, Seen* seen) {
  const MetricsOverSet merged = data.Merged();
  const auto got = merged.Values(),
             unmerged = data.Share(0, data.workers).Values();
  REQUIRE(got.size() == data.metrics.size());
  size_t tensor = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    const Kind kind = data.kinds[i];
    const double value = got[i].second;
    const double wanted = Reference(data, kind, tensor).Of(kind);
    tensor += data.metrics[i].second.tensors().size();
    CHECK(got[i].first == data.metrics[i].first);
    CHECK_MESSAGE(Close(value, wanted), value << " is not " << wanted);
    CHECK(Close(value, unmerged[i].second));
    const bool same = Bits({value}) == Bits({unmerged[i].second});
    // Counts do not round.
    if (kind == Kind::kHits || kind >= Kind::kF1) CHECK(same);
    ++(std::isnan(wanted) ? seen->undefined : seen->defined);
    seen->rounded += !same;
  }
  // Every worker has the same bits; NaN and infinite sums and scores travel.
  MetricsOverSet again(data.metrics);
  again.Merge(merged.State());
  CHECK(Bits(again.State()) == Bits(merged.State()));
  CHECK(Bits(data.Merged().State()) == Bits(merged.State()));
}

TEST_CASE("metrics merged from any workers are those of the set") {
  Seen seen;
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    CheckMerged(Case(seed), &seen);
  }
  CHECK((seen.defined > 2000 && seen.undefined > 300 && seen.rounded > 50));
}

template <typename Fn>
Status StatusOf(Fn&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.status();
  }
  return Status::Ok();
}

// Of F1, the first classes' counts; the others' are 0.
Numbers Counts(Numbers counts) {
  counts.resize(3 * kClasses);
  return counts;
}

TEST_CASE("what no worker can have seen is refused, and changes nothing") {
  const struct {
    Kind kind;
    Numbers state;
    const char* error;
  } kCases[] = {
      {Kind::kMean, {}, "mean: a state of 0 numbers, wanted 2"},
      {Kind::kMean, {1, 2, 3}, "mean: a state of 3 numbers, wanted 2"},
      {Kind::kMean, {1, -1}, "mean: a count of -1, wanted a whole number"},
      {Kind::kMean, {1, 0.5}, "mean: a count of 0.5"},
      {Kind::kMean, {1, kNan}, "mean: a count of nan"},
      {Kind::kMean, {1, kTwo53}, "mean: a count of 9007199254740992"},
      {Kind::kMean, {1, 0}, "mean: a sum of 1 over nothing"},
      {Kind::kMean, {kNan, 0}, "mean: a sum of nan over nothing"},
      {Kind::kPerplexity, {1, -kInfinity}, "Perplexity: a count of -inf"},
      {Kind::kF1, Numbers(16), "F1: a state of 16 numbers, wanted 15"},
      {Kind::kF1, Counts({-1}), "F1: a count of -1"},
      {Kind::kF1, Counts({1, 1.5}), "F1: a count of 1.5"},
      {Kind::kF1, Counts({2, 1, 2, 0, 1}),
       "F1: a count of 2, wanted a whole number from 0 to 1"},
      {Kind::kF1, Counts({2, 1, 1, 0, 3}), "F1: 4 predictions for 2 labels"},
      {Kind::kCurve, {}, "AreaUnderCurve: a state of 0 numbers"},
      {Kind::kCurve, {1}, "AreaUnderCurve: a count of 1"},
      {Kind::kCurve, {0.5, 0.5}, "AreaUnderCurve: a count of 0.5"},
      {Kind::kCurve, {kNan, 0.5}, "AreaUnderCurve: a count of nan"},
  };
  Metrics all;
  for (const auto& [kind, state, error] : kCases) {
    CAPTURE(error);
    Random random(1);
    const auto seen = all.Of(kind).Begin();
    seen->Add(Values(kind, 4, false, random), 4);
    const std::vector<uint64_t> before = Bits(seen->State());
    const Status got = StatusOf([&] { seen->Merge(state); });
    CHECK(got.code() == Code::kInvalidArgument);
    CHECK(Contains(got.message(), error));
    CHECK(Bits(seen->State()) == before);
  }
}

TEST_CASE("a set's state is that of its metrics, and says which is wrong") {
  Metrics all;
  const NamedMetrics two = {{"a", all.vector}, {"<b's> \"&\"\n", all.vector}};
  const std::string second = "metric '<b's> \"&\"\n': ";
  const struct {
    Numbers state;
    std::string error;
  } kCases[] = {
      {{}, "metric 'a': its numbers are missing"},
      {{1e300}, "metric 'a': its numbers: a count of 1e+300"},
      {{1, 1, 2, 1, 1}, "metric 'a': mean: a state of 1 numbers, wanted 2"},
      {{2, 1, 1}, second + "its numbers are missing"},
      {{2, 1, 1, 2, 1}, second + "its numbers: a count of 2"},
      {{2, 1, 1, kNan, 1, 1}, second + "its numbers: a count of nan"},
      {{2, 1, 1, 2, 1, -1}, second + "mean: a count of -1"},
      {{2, 1, 1, 2, 1, 1, 0}, "1 numbers follow those of 2 metrics"},
  };
  MetricsOverSet set(two);
  for (const auto& [state, error] : kCases) {
    const Status got = StatusOf([&] { set.Merge(state); });
    CHECK(got.code() == Code::kInvalidArgument);
    CHECK(Contains(got.message(), error));
    CHECK(set.State() == Numbers{2, 0, 0, 2, 0, 0});
  }
  set.Merge(Numbers{2, 1, 1, 2, 8, 2});
  CHECK(set.State() == Numbers{2, 1, 1, 2, 8, 2});
  const NamedMetrics none;
  MetricsOverSet nothing(none);
  CHECK(nothing.State().empty());
  nothing.Merge({});
  CHECK_FALSE(StatusOf([&] { nothing.Merge(Numbers{0}); }).ok());
}

TEST_CASE("counts add up to what doubles tell apart and no further") {
  Metrics all;
  const auto mean = all.Of(Kind::kMean).Begin();
  const Numbers most = {1, kTwo53 - 1}, more = {1, 1};
  mean->Merge(most);
  mean->Merge(more);
  CHECK(mean->State() == Numbers{2, kTwo53});
  CHECK(Contains(ErrorOf([&] { mean->Merge(more); }),
                 "mean: a count of 1, wanted a whole number from 0 to 0"));
  // Many classes, each with as much as there may be of all.
  constexpr int64_t kMany = 3000;
  const Output many =
      all.graph.Placeholder("many", DType::kFloat32, {kUnknown, kMany});
  const auto f1 = F1(many, all.labels).Begin();
  for (const size_t first : {0, 1}) {  // labels, predictions
    Numbers each(3 * kMany);
    for (size_t i = first; i < each.size(); i += 3) each[i] = kTwo53;
    CHECK(Contains(ErrorOf([&] { f1->Merge(each); }), "F1: a count of 9007"));
  }
  Numbers one(3 * kMany);
  std::fill_n(one.begin(), 3, kTwo53);
  f1->Merge(one);
  CHECK(f1->State() == one);
  std::rotate(one.begin(), one.end() - 3, one.end());  // of another class
  CHECK(Contains(ErrorOf([&] { f1->Merge(one); }), "from 0 to 0"));
}

// One random change to what came over the network.
void Mutate(Numbers* state, Random& random) {
  const double odd[] = {kNan, kInfinity, -kInfinity, -1,    -0.0,  0.5, 0, 1,
                        2,    kTwo53,    kTwo53 + 2, 1e300, 9.3e18};
  const double number = odd[random() % std::size(odd)];
  const size_t at = random() % (state->size() + 1);
  const auto place = state->begin() + static_cast<std::ptrdiff_t>(at);
  const auto what = random() % 6;
  if (what == 0) state->insert(place, number);
  if (what == 1) state->resize(at);
  if (what < 2 || place == state->end()) return;
  if (what == 2) state->erase(place);
  if (what == 3) std::swap(*place, state->front());
  if (what == 4) ++*place;
  if (what == 5) *place = number;
}

TEST_CASE("a damaged state is an error that changes nothing, or a value") {
  int refused = 0, taken = 0;
  for (uint32_t seed = 1; seed <= 6000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Case data(seed % 300);
    Numbers state = data.Share(0, 1).State();
    for (size_t i = 1 + random() % 3; i > 0; --i) Mutate(&state, random);
    MetricsOverSet set = data.Share(0, data.workers);
    const std::vector<uint64_t> before = Bits(set.State());
    const Status error = StatusOf([&] { set.Merge(state); });
    if (!error.ok()) {
      ++refused;
      CHECK(error.code() == Code::kInvalidArgument);
      CHECK((error.message().starts_with("metric 'metric") ||
             Contains(error.message(), "numbers follow those of")));
      CHECK(Bits(set.State()) == before);
      continue;
    }
    ++taken;
    const auto values = set.Values();
    for (size_t i = 0; i < values.size(); ++i) {
      const bool fraction = data.kinds[i] >= Kind::kF1;
      CHECK_FALSE((fraction && std::abs(values[i].second - 0.5) > 0.5));
    }
    // What was taken can be sent on.
    MetricsOverSet next(data.metrics);
    next.Merge(set.State());
    CHECK(Bits(next.State()) == Bits(set.State()));
  }
  CHECK(refused > 1500);
  CHECK(taken > 500);
}

// The largest value: a user's metric, which several workers can collect.
class LargestState final : public MetricState {
 public:
  void Add(std::span<const Tensor> values, int64_t /*examples*/) override {
    for (const float value : values[0].values<float>()) See(value);
  }
  double Value() const override { return largest_; }
  Numbers State() const override { return {largest_}; }
  void Merge(std::span<const double> state) override {
    if (state.size() != 1) throw std::runtime_error("wanted the largest");
    See(state[0]);
  }

 private:
  void See(double value) { largest_ = std::max(largest_, value); }
  double largest_ = -kInfinity;
};

// For one worker: State and Merge are left out.
class LocalState final : public MetricState {
 public:
  void Add(std::span<const Tensor> /*v*/, int64_t /*examples*/) override {}
  double Value() const override { return 1; }
};

TEST_CASE("a user's metric") {
  Metrics all;
  const auto of = [&all](const Metric::Start& start) {
    return NamedMetrics{{"mean", all.vector}, {"mine", {{all.vector}, start}}};
  };
  const std::vector<Tensor> values(2, Tensor::Array<float>({3}, {1, 5, 3}));
  const Numbers state = {2, 15, 1, 1, 7};

  const NamedMetrics shared =
      of([] { return std::make_unique<LargestState>(); });
  MetricsOverSet largest(shared);
  largest.Add(values, 3);
  CHECK(largest.State() == Numbers{2, 9, 3, 1, 5});
  largest.Merge(state);
  CHECK(largest.Values()[0].second == 6);
  CHECK(largest.Values()[1].second == 7);
  CHECK(ErrorOf([&] {
          largest.Merge(Numbers{2, 1, 1, 0});
        }) == "metric 'mine': wanted the largest");
  CHECK(largest.State() == Numbers{2, 24, 4, 1, 7});

  const NamedMetrics local = of([] { return std::make_unique<LocalState>(); });
  MetricsOverSet alone(local);
  alone.Add(values, 3);
  for (const Status& error : {StatusOf([&] { (void)alone.State(); }),
                              StatusOf([&] { alone.Merge(state); })}) {
    CHECK(error.code() == Code::kUnimplemented);
    CHECK(Contains(error.message(), "metric 'mine': its MetricState has no"));
  }
  CHECK(alone.Values()[0].second == 3);
  const auto mine = local[1].second.Begin();
  CHECK(Contains(ErrorOf([&] { mine->Merge({}); }), "has no Merge"));
}

}  // namespace
}  // namespace sluice
