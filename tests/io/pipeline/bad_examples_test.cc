// Examples that cannot be read are passed over: against a list of the others,
// whatever the pipeline, wherever it is left and taken up again.
#include "io/pipeline/bad_examples.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "io/pipeline/dataset.h"
#include "tests/support/error_text.h"
#include "tests/support/numbers.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::Numbers;

// Reads a number; with the key, as augmentation would.
struct Read {
  std::set<int64_t> broken;
  void operator()(Example& example, uint64_t key) const {
    const int64_t number = example["x"].IntAt(0);
    if (broken.contains(number)) {
      throw Error(Code::kDataLoss, "number " + std::to_string(number));
    }
    const uint64_t mark = example.contains("mark")
                              ? static_cast<uint64_t>(example["mark"].IntAt(0))
                              : 0;
    example = {{"x", example["x"]},
               {"key", Tensor::Scalar(static_cast<int64_t>(key ^ mark))}};
  }
};

using Batches = std::vector<std::vector<std::pair<int64_t, int64_t>>>;

std::vector<std::pair<int64_t, int64_t>> Values(const Example& batch) {
  std::vector<std::pair<int64_t, int64_t>> values;
  for (int64_t i = 0; i < batch["x"].elements(); ++i) {
    values.emplace_back(batch["x"].IntAt(i), batch["key"].IntAt(i));
  }
  return values;
}

struct Pipeline {
  Dataset numbers = Numbers(1);  // in order, shuffled, repeated
  std::set<int64_t> broken;
  int64_t batch = 1;
  int64_t prefetch = 0;
  int threads = 1;         // 0: chosen
  bool augmented = false;  // below the map that reads

  // Marks each example with the key of a random map of its own.
  Dataset Input() const {
    if (!augmented) return numbers;
    return numbers.MapRandom(8, [](Example& example, uint64_t key) {
      example.Set("mark", Tensor::Scalar(static_cast<int64_t>(key)));
    });
  }
  Dataset Make(int64_t allowed) const {
    auto bad = std::make_shared<BadExamples>(allowed);
    Dataset out =
        Input()
            .MapRandom(5, Read{broken},
                       {.bad = bad, .threads = threads, .max_threads = 3})
            .Map([](Example&) {})
            .Batch(batch);
    return prefetch > 0 ? out.Prefetch(prefetch) : out;
  }
};

Pipeline Random(std::mt19937& random) {
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  Pipeline pipeline;
  const int64_t n = draw(1, 40);
  pipeline.numbers = Numbers(n);
  if (draw(0, 1)) pipeline.numbers = pipeline.numbers.Shuffle(draw(1, n), 3);
  if (draw(0, 1)) pipeline.numbers = pipeline.numbers.Repeat(draw(1, 4));
  const int64_t broken = draw(0, n - 1);  // one can be read
  while (static_cast<int64_t>(pipeline.broken.size()) < broken) {
    pipeline.broken.insert(draw(0, n - 1));
  }
  pipeline.batch = draw(1, 9);
  pipeline.prefetch = draw(0, 3);
  pipeline.threads = static_cast<int>(draw(0, 4));
  pipeline.augmented = draw(0, 1) == 1;
  return pipeline;
}

// The good ones, with the key that each has where nothing is broken.
Batches Expected(const Pipeline& pipeline) {
  Iterator all = pipeline.Input().MapRandom(5, Read{}).MakeIterator();
  Batches batches;
  Example example;
  while (*all.Next(&example)) {
    const int64_t x = example["x"].IntAt(0);
    if (pipeline.broken.contains(x)) continue;
    if (batches.empty() ||
        static_cast<int64_t>(batches.back().size()) == pipeline.batch) {
      batches.emplace_back();
    }
    batches.back().emplace_back(x, example["key"].IntAt(0));
  }
  return batches;
}

TEST_CASE("batches hold the next good ones, also after a resume anywhere") {
  std::mt19937 random(11);
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const Pipeline pipeline = Random(random);
    const Batches expected = Expected(pipeline);
    std::vector<std::string> positions;
    Batches got;
    Iterator batches = pipeline.Make(1000).MakeIterator();
    Example batch;
    positions.push_back(batches.SavePosition());
    while (*batches.Next(&batch)) {
      got.push_back(Values(batch));
      positions.push_back(batches.SavePosition());
    }
    REQUIRE(got == expected);
    // Whether any may be passed over now does not matter until one is met.
    const size_t at = random() % positions.size();
    Iterator later = pipeline.Make(random() % 2 ? 1000 : 0).MakeIterator();
    ThrowIfError(later.Restore(positions[at]));
    CHECK(later.SavePosition() == positions[at]);
    for (size_t i = at; i < expected.size(); ++i) {
      Result<bool> more = later.Next(&batch);
      if (!more.ok()) {  // none allowed
        CHECK(Contains(more.status().message(), "number "));
        break;
      }
      REQUIRE(*more);
      REQUIRE(Values(batch) == expected[i]);
    }
  }
}

TEST_CASE("a batch of another size goes on behind the same example") {
  Pipeline pipeline;
  pipeline.numbers = Numbers(30);
  pipeline.broken = {0, 4, 5, 17};
  pipeline.batch = 4;
  Iterator batches = pipeline.Make(10).MakeIterator();
  Example batch;
  REQUIRE(*batches.Next(&batch));
  REQUIRE(*batches.Next(&batch));  // 1 2 3 6, 7 8 9 10
  pipeline.batch = 2;
  Iterator later = pipeline.Make(10).MakeIterator();
  ThrowIfError(later.Restore(batches.SavePosition()));
  REQUIRE(*later.Next(&batch));
  CHECK(batch["x"].IntAt(0) == 11);
}

TEST_CASE("within a batch nobody knows how many were passed over") {
  Pipeline pipeline;
  pipeline.numbers = Numbers(30);
  pipeline.broken = {5};
  pipeline.batch = 6;
  Iterator batches = pipeline.Make(10).MakeIterator();
  Example batch;
  REQUIRE(*batches.Next(&batch));  // 0 1 2 3 4 6
  const std::string position = batches.SavePosition();
  pipeline.batch = 4;
  CHECK(pipeline.Make(10).MakeIterator().Restore(position).code() ==
        Code::kInvalidArgument);
  pipeline.batch = 3;
  Iterator later = pipeline.Make(10).MakeIterator();
  ThrowIfError(later.Restore(position));
  REQUIRE(*later.Next(&batch));
  CHECK(batch["x"].IntAt(0) == 7);
}

TEST_CASE("batches that cannot be read are passed over whole") {
  const auto make = [](int64_t size = 4) {
    return Numbers(40).Batch(size).Map(
        [](Example& batch) {
          const int64_t first = batch["x"].IntAt(0);
          if (first == 4 || first == 8 || first == 20) {
            throw Error(Code::kDataLoss, "batch " + std::to_string(first));
          }
        },
        {.bad = std::make_shared<BadExamples>(10)});
  };
  std::vector<int64_t> whole;
  std::vector<std::string> positions;
  Iterator batches = make().MakeIterator();
  Example batch;
  for (positions.push_back(batches.SavePosition()); *batches.Next(&batch);
       positions.push_back(batches.SavePosition())) {
    whole.push_back(batch["x"].IntAt(0));
  }
  CHECK(whole == std::vector<int64_t>{0, 12, 16, 24, 28, 32, 36});
  for (size_t at = 0; at < whole.size(); ++at) {
    Iterator later = make().MakeIterator();
    ThrowIfError(later.Restore(positions[at]));
    REQUIRE(*later.Next(&batch));
    CHECK(batch["x"].IntAt(0) == whole[at]);
    // What came before is so many examples where none was passed over alone.
    Iterator other = make(2).MakeIterator();
    const Status status = other.Restore(positions[at]);
    if (at < 2) {
      REQUIRE_MESSAGE(status.ok(), status.message());
      CHECK(*other.Next(&batch));
      CHECK(batch["x"].IntAt(0) == (at == 0 ? 0 : 6));
    } else {
      CHECK(status.code() == Code::kInvalidArgument);
      CHECK(Contains(status.message(), "bad batches of 4"));
    }
  }
}

TEST_CASE("no more than are allowed; one that comes again is not another") {
  Pipeline pipeline;
  pipeline.numbers = Numbers(8).Repeat(3);
  pipeline.broken = {2, 5};
  pipeline.batch = 3;
  const auto run = [&](int64_t allowed) {
    Iterator batches = pipeline.Make(allowed).MakeIterator();
    Example batch;
    for (;;) {
      Result<bool> more = batches.Next(&batch);
      if (!more.ok()) return more.status().message();
      if (!*more) return std::string();
    }
  };
  CHECK(run(2) == "");
  CHECK(run(0) == "number 2");
  CHECK(run(1) ==
        "number 5; 1 bad ones were passed over before it, as many as "
        "may be");
  pipeline.numbers = Numbers(8).Repeat();
  for (int64_t i = 0; i < 8; ++i) pipeline.broken.insert(i);
  CHECK(Contains(run(100), "no example can be read"));
  CHECK(Contains(ErrorOf([&] { pipeline.Make(100).Sample(); }), "can be read"));
}

TEST_CASE("only what says that an example is bad is passed over") {
  for (const Code code : {Code::kInvalidArgument, Code::kResourceExhausted,
                          Code::kInternal, Code::kCancelled}) {
    const auto bad = std::make_shared<BadExamples>(100);
    Iterator numbers =
        Numbers(3)
            .Map([code](Example&) { throw Error(code, "not its fault"); },
                 {.bad = bad})
            .MakeIterator();
    Example example;
    CHECK(numbers.Next(&example).status().code() == code);
    CHECK(bad->count() == 0);
  }
}

TEST_CASE("what is noted of them") {
  const auto bad = std::make_shared<BadExamples>(100);
  Iterator numbers =
      Numbers(6).MapRandom(1, Read{{1, 4, 5}}, {.bad = bad}).MakeIterator();
  Example example;
  while (*numbers.Next(&example)) {
  }
  CHECK(bad->count() == 3);
  CHECK(bad->messages() ==
        std::vector<std::string>{"number 1", "number 4", "number 5"});
  CHECK(bad->At(4) == "number 4");
  CHECK(bad->At(0) == "");
}

TEST_CASE("those that are known from before count, and count once") {
  const std::string strange = "\xff\xfe is bad";
  BadExamples bad(2);
  CHECK(bad.Add(0, DataLoss(strange)).ok());
  // As they come back from JSON, whatever the limit is; and again.
  for (int time = 0; time < 2; ++time) {
    bad.Know({"\xef\xbf\xbd\xef\xbf\xbd is bad", "b", "c"});
  }
  CHECK(bad.messages() == std::vector<std::string>{strange, "b", "c"});
  CHECK(bad.count() == 3);
  CHECK(bad.At(0) == strange);
  for (const std::string& message : {strange, std::string("c")}) {
    CHECK(bad.Add(1, DataLoss(message)).ok());
  }
  CHECK(bad.Add(2, DataLoss("d")).message() ==
        "d; 3 bad ones were passed over before it, as many as may be");
  CHECK(bad.count() == 3);
}

// As of files whose names are in Latin-1, against the set of what was met. A
// process that goes on meets all of that again, then others.
TEST_CASE("those that differ in bytes that JSON does not hold are different") {
  const std::string bytes[] = {"\xff", "\xe9", "\xef\xbf\xbd", "a"};
  std::mt19937 random(3);
  int failed = 0;
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    const size_t limit = 1 + random() % 8;
    std::set<std::string> met;
    std::vector<std::string> saved;
    for (int process = 0; process < 4; ++process) {
      BadExamples bad(static_cast<int64_t>(limit));
      bad.Know(saved);
      std::vector<std::string> again(met.begin(), met.end());
      std::shuffle(again.begin(), again.end(), random);
      for (const std::string& message : again) {
        REQUIRE(bad.Add(0, DataLoss(message)).ok());
      }
      if (random() % 2 == 0) bad.Know(saved);
      REQUIRE(bad.count() == static_cast<int64_t>(met.size()));
      for (int i = 0; i < 3; ++i) {
        const std::string message = bytes[random() % 4] + bytes[random() % 4];
        const bool passes = met.contains(message) || met.size() < limit;
        REQUIRE(bad.Add(1, DataLoss(message)).ok() == passes);
        if (passes) met.insert(message);
        failed += passes ? 0 : 1;
      }
      saved =
          ParseJsonStrings(Json(bad.messages()).LenientText()).ValueOrThrow();
    }
  }
  CHECK(failed > 100);
}

TEST_CASE("where an element stands must be known without reading") {
  const auto bad = std::make_shared<BadExamples>(0);
  const Dataset read = Numbers(6).MapRandom(1, Read{}, {.bad = bad});
  CHECK(Contains(ErrorOf([&] { read.Shuffle(3, 1); }), "bad examples"));
  CHECK(Contains(ErrorOf([&] { read.Repeat(); }), "bad examples"));
  CHECK(Contains(ErrorOf([&] { read.Batch(2).Take(1); }), "bad examples"));
  CHECK(Contains(ErrorOf([&] { read.Shard(0, 2); }), "bad examples"));
  CHECK(Contains(ErrorOf([&] { read.MapRandom(1, Read{}, {.bad = bad}); }),
                 "bad examples"));
}

}  // namespace
}  // namespace sluice
