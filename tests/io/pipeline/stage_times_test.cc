#include "io/pipeline/stage_times.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/runtime/trace.h"
#include "io/pipeline/dataset.h"
#include "tests/support/numbers.h"
#include "tests/support/random_pipeline.h"

namespace sluice {
namespace {

using testing::Numbers;
using testing::Values;

std::map<std::string, StageTime> ByName(const StageTimes& times) {
  std::map<std::string, StageTime> out;
  for (const StageTime& stage : times.Read()) out[stage.name] = stage;
  return out;
}

std::vector<std::string> Names(const StageTimes& times) {
  std::vector<std::string> names;
  for (const StageTime& stage : times.Read()) names.push_back(stage.name);
  return names;
}

int64_t ReadAll(Iterator iterator) {
  Example example;
  int64_t n = 0;
  while (iterator.Next(&example).ValueOrThrow()) ++n;
  return n;
}

void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST_CASE("each stage tells what it gave, sources first") {
  const auto times = std::make_shared<StageTimes>();
  CHECK(times->Read().empty());
  const auto nothing = [](Example&) {};
  const Dataset dataset =
      Numbers(20)
          .Filter([](const Example& e) { return e["x"].IntAt(0) % 2 == 0; })
          .Map(nothing, {.threads = 2, .name = "decode"})
          .Map(nothing)
          .Shuffle(4, 1)
          .MapRandom(1, [](Example&, uint64_t) {})
          .Batch(3)
          .Prefetch(2);
  CHECK(ReadAll(dataset.MakeIterator(times)) == 4);
  // A shuffle goes before what makes the same of an element anywhere.
  CHECK(Names(*times) ==
        std::vector<std::string>{"tensors", "filter", "shuffle", "decode",
                                 "map", "map 2", "batch", "prefetch"});
  auto stages = ByName(*times);
  for (const auto& [name, elements] :
       std::map<std::string, int64_t>{{"tensors", 20},
                                      {"filter", 10},
                                      {"shuffle", 10},
                                      {"decode", 10},
                                      {"map", 10},
                                      {"map 2", 10},
                                      {"batch", 4},
                                      {"prefetch", 4}}) {
    CAPTURE(name);
    CHECK(stages[name].elements == elements);
    CHECK(stages[name].seconds == 0);  // nothing was to be measured
    CHECK(stages[name].threads == (name == "decode" ? 2 : 1));
    CHECK_FALSE(stages[name].chosen);
  }
  // Another iterator goes on counting.
  CHECK(ReadAll(dataset.MakeIterator(times)) == 4);
  CHECK(ByName(*times)["batch"].elements == 8);
  CHECK(times->Read().size() == 8);
}

TEST_CASE("rows in memory are one stage, batched at once") {
  const auto times = std::make_shared<StageTimes>();
  Tensor x(DType::kUInt8, {12, 3});
  std::fill_n(x.data<uint8_t>(), 36, uint8_t{5});
  const Dataset dataset = datasets::FromTensors({{"x", x}})
                              .Shuffle(12, 1)
                              .Repeat(2)
                              .Map(ScaleTo01("x"))
                              .Batch(5);
  CHECK(ReadAll(dataset.MakeIterator(times)) == 5);
  CHECK(Names(*times) == std::vector<std::string>{"tensors", "map", "batch"});
  CHECK(ByName(*times)["tensors"].elements == 24);
  CHECK(ByName(*times)["map"].elements == 24);
  CHECK(ByName(*times)["batch"].elements == 5);
}

TEST_CASE("datasets that are opened have one stage of a kind") {
  const auto times = std::make_shared<StageTimes>();
  const Dataset dataset = Numbers(6).Interleave(
      [](const Example& e) {
        return testing::Add(Numbers(3), e["x"].IntAt(0));
      },
      2);
  CHECK(ReadAll(dataset.MakeIterator(times)) == 18);
  CHECK(Names(*times) ==
        std::vector<std::string>{"tensors", "tensors 2", "map", "interleave"});
  CHECK(ByName(*times)["tensors"].elements == 6);
  CHECK(ByName(*times)["tensors 2"].elements == 18);
  CHECK(ByName(*times)["map"].elements == 18);
}

TEST_CASE("two inputs alike are two stages") {
  const auto times = std::make_shared<StageTimes>();
  const Dataset both =
      datasets::Concatenate(std::vector{Numbers(3), Numbers(4)});
  CHECK(ReadAll(both.MakeIterator(times)) == 7);
  CHECK(Names(*times) ==
        std::vector<std::string>{"tensors", "tensors 2", "concatenate"});
  CHECK(ByName(*times)["tensors"].elements == 3);
  CHECK(ByName(*times)["tensors 2"].elements == 4);
}

// Sleeping takes as long as is asked for, or longer.
TEST_CASE("time is of the stage alone") {
  const auto times = std::make_shared<StageTimes>();
  times->Measure(true);
  const int64_t begin = SteadyNowNs();
  CHECK(ReadAll(Numbers(10)
                    .Map([](Example&) { Sleep(1); })
                    .Filter([](const Example&) {
                      Sleep(4);
                      return true;
                    })
                    .Batch(5)
                    .MakeIterator(times)) == 2);
  const double all = 1e-9 * static_cast<double>(SteadyNowNs() - begin);
  auto stages = ByName(*times);
  CHECK(stages["map"].seconds >= 0.010);
  CHECK(stages["filter"].seconds >= 0.040);
  double sum = 0;
  for (const auto& [name, stage] : stages) sum += stage.seconds;
  CHECK(sum <= all);  // on one thread, no time is counted twice
  CHECK(stages["map"].seconds + stages["filter"].seconds +
            stages["batch"].seconds <=
        all);
  CHECK(BusiestStage({}, times->Read()) == "filter");
}

TEST_CASE("waiting for another thread is no time in a stage") {
  const auto times = std::make_shared<StageTimes>();
  times->Measure(true);
  for (const int threads : {1, 3}) {
    const int64_t begin = SteadyNowNs();
    CHECK(ReadAll(Numbers(12)
                      .Map([](Example&) { Sleep(3); },
                           {.threads = threads, .name = "slow"})
                      .Batch(4)
                      .Prefetch(1)
                      .MakeIterator(times)) == 3);
    const double all = 1e-9 * static_cast<double>(SteadyNowNs() - begin);
    auto stages = ByName(*times);
    const double slow = stages["slow"].seconds;
    CHECK(slow >= 0.036);
    // The map's threads, the prefetch thread and the reader: all but the first
    // do nothing but wait, which would be as long as all again.
    if (threads == 1) CHECK(slow <= all);
    CHECK(stages["prefetch"].seconds + stages["batch"].seconds <
          all - 0.036 / (2 * threads));
    CHECK(BusiestStage({}, times->Read()) == "slow");
  }
}

TEST_CASE("only while it is to be measured") {
  const auto times = std::make_shared<StageTimes>();
  Iterator numbers =
      Numbers(20).Map([](Example&) { Sleep(1); }).MakeIterator(times);
  Example example;
  const auto read = [&](int n) {
    for (int i = 0; i < n; ++i) REQUIRE(*numbers.Next(&example));
    return ByName(*times)["map"].seconds;
  };
  CHECK(read(5) == 0);
  times->Measure(true);
  const double measured = read(5);
  CHECK(measured >= 0.005);
  times->Measure(false);
  CHECK(read(5) == measured);
  CHECK(ByName(*times)["map"].elements == 15);
  const std::vector<StageTime> before = times->Read();
  CHECK(read(5) == measured);
  CHECK(BusiestStage(before, times->Read()).empty());
}

// Switched while stages are within stages: none gets another's time.
TEST_CASE("measuring may change at any moment") {
  const auto times = std::make_shared<StageTimes>();
  const int64_t begin = SteadyNowNs();
  Iterator numbers =
      Numbers(400)
          .Map([&](Example& e) {
            times->Measure(e["x"].IntAt(0) % 3 == 0);
            times->Trace(e["x"].IntAt(0) % 5 == 0);
          })
          .Filter([](const Example& e) { return e["x"].IntAt(0) % 7 != 0; })
          .MakeIterator(times);
  ReadAll(std::move(numbers));
  const double all = 1e-9 * static_cast<double>(SteadyNowNs() - begin);
  double sum = 0;
  for (const StageTime& stage : times->Read()) {
    CHECK(stage.seconds >= 0);
    sum += stage.seconds;
  }
  CHECK(sum > 0);
  CHECK(sum <= all);
}

TEST_CASE("traced pieces are the stage's, and do not overlap on a thread") {
  const auto times = std::make_shared<StageTimes>();
  times->Trace(true);
  const int64_t begin = SteadyNowNs();
  CHECK(ReadAll(
            Numbers(30)
                .Map([](Example&) { Sleep(1); }, {.threads = 3, .name = "slow"})
                .Filter([](const Example&) {
                  Sleep(1);
                  return true;
                })
                .MakeIterator(times)) == 30);
  const int64_t end = SteadyNowNs();
  times->Trace(false);
  const std::vector<StageSpan> spans = times->TakeSpans();
  CHECK(times->TakeSpans().empty());
  std::map<std::pair<std::string, int>, int64_t> until;
  std::map<std::string, double> seconds;
  for (const StageSpan& span : spans) {
    CHECK(span.begin_ns >= begin);
    CHECK(span.end_ns <= end);
    CHECK(span.end_ns - span.begin_ns >= 1000);
    int64_t& last = until[{span.stage, span.thread}];
    CHECK(span.begin_ns >= last);
    last = span.end_ns;
    seconds[span.stage] +=
        1e-9 * static_cast<double>(span.end_ns - span.begin_ns);
  }
  CHECK(seconds["slow"] >= 0.030);
  CHECK(seconds["filter"] >= 0.030);
  auto stages = ByName(*times);
  CHECK(seconds["slow"] <= stages["slow"].seconds + 1e-9);
}

TEST_CASE("the busiest is the one with most seconds on each thread") {
  const auto stage = [](std::string name, double seconds, int threads) {
    return StageTime{.name = std::move(name),
                     .elements = 1,
                     .seconds = seconds,
                     .threads = threads};
  };
  CHECK(BusiestStage({}, {}).empty());
  const std::vector before = {stage("read", 9, 1), stage("map", 1, 4)};
  const std::vector now = {stage("read", 10, 1), stage("map", 9, 4),
                           stage("batch", 1.5, 1)};
  CHECK(BusiestStage(before, now) == "map");
  CHECK(BusiestStage({}, now) == "read");
  CHECK(BusiestStage(now, now).empty());
}

TEST_CASE("a pipeline gives the same when it is measured") {
  std::set<std::string> seen;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    testing::Generators generators(seed, seed % 2 == 0);
    const testing::Pipeline pipeline = generators.Make();
    CAPTURE(pipeline.text);
    const Values plain = testing::Read(pipeline.dataset);
    const auto times = std::make_shared<StageTimes>();
    times->Measure(generators.Draw(0, 1) == 1);
    Iterator measured = pipeline.dataset.MakeIterator(times);
    const int64_t half = static_cast<int64_t>(plain.size()) / 2;
    Values got = testing::Read(&measured, half);
    const std::string position = measured.SavePosition();
    Iterator later = pipeline.dataset.MakeIterator(times);
    ThrowIfError(later.Restore(position));
    const Values rest = testing::Read(&later);
    got.insert(got.end(), rest.begin(), rest.end());
    CHECK(got == plain);
    for (const StageTime& stage : times->Read()) {
      CHECK(seen.size() < 100);
      seen.insert(stage.name);
    }
  }
  for (const char* name :
       {"tensors", "generator", "function", "filter", "interleave", "cache",
        "prefetch", "zip", "concatenate", "choose", "take", "skip", "shard"}) {
    CAPTURE(name);
    CHECK(seen.contains(name));
  }
}

}  // namespace
}  // namespace sluice
