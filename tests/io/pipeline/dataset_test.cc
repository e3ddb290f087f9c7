// Pipelines: what comes in which order, that a saved position continues bit
// for bit, and errors.
#include "io/pipeline/dataset.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>
#include <stdexcept>

#include "io/files/file.h"
#include "io/sources/datasets.h"

namespace sluice {
namespace {

using Values = std::vector<int64_t>;

// Examples {"x": i, "image": [i, i]} for i in [0, n).
Dataset Numbers(int64_t n) {
  Tensor x(DType::kInt64, {n});
  Tensor image(DType::kUInt8, {n, 2});
  for (int64_t i = 0; i < n; ++i) {
    x.data<int64_t>()[i] = i;
    image.data<uint8_t>()[2 * i] = image.data<uint8_t>()[2 * i + 1] =
        static_cast<uint8_t>(i);
  }
  return datasets::FromTensors({{"x", x}, {"image", image}});
}

// Row by row, so that nothing downstream is done on row numbers.
Dataset Generic(int64_t n) {
  return Numbers(n).Map([](Example&) {});
}

// All the x of at most `limit` elements, in order.
Values Collect(const Dataset& dataset, int limit = 1000) {
  Values values;
  Iterator iterator = dataset.MakeIterator();
  Example example;
  for (int i = 0; i < limit; ++i) {
    if (!iterator.Next(&example).ValueOrThrow()) break;
    const auto x = example["x"].values<int64_t>();
    values.insert(values.end(), x.begin(), x.end());
  }
  return values;
}

Values Iota(int64_t n) {
  Values values(n);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

Values Sorted(Values values) {
  std::sort(values.begin(), values.end());
  return values;
}

Values Part(const Values& values, size_t begin, size_t end) {
  return {values.begin() + begin, values.begin() + end};
}

TEST_CASE("rows, take, shard, repeat") {
  for (const Dataset& ten : {Numbers(10), Generic(10)}) {
    CHECK(Collect(ten) == Iota(10));
    CHECK(Collect(ten.Take(3)) == Values{0, 1, 2});
    CHECK(Collect(ten.Take(30)) == Iota(10));
    CHECK(Collect(ten.Shard(1, 4)) == Values{1, 5, 9});
    CHECK(Collect(ten.Shard(3, 4)) == Values{3, 7});
    CHECK(Collect(ten.Take(2).Repeat(3)) == Values{0, 1, 0, 1, 0, 1});
    CHECK(Collect(ten.Take(2).Repeat().Take(5)) == Values{0, 1, 0, 1, 0});
    CHECK(Collect(ten.Take(2).Repeat(2).Repeat(2)).size() == 8);
    CHECK(Collect(ten.Repeat(0)).empty());
    CHECK(Collect(ten.Take(0).Repeat()).empty());
    CHECK(Collect(ten.Shard(0, 3).Shard(1, 2)) == Values{3, 9});
  }
}

TEST_CASE("one example, and a batch of them") {
  const Example one = Numbers(5).First();
  CHECK(one["x"].shape() == Shape{});
  CHECK(one["image"].shape() == Shape{2});
  const Example batch = Numbers(5).Batch(3).First();
  CHECK(batch["x"].shape() == Shape{3});
  CHECK(batch["image"].shape() == Shape{3, 2});
  CHECK(batch["image"].dtype() == DType::kUInt8);
  CHECK(batch["image"].data<uint8_t>()[5] == 2);
  CHECK_THROWS_AS(Numbers(0).First(), Error);
}

TEST_CASE("batches, whole and remainder") {
  for (const Dataset& seven : {Numbers(7), Generic(7)}) {
    CHECK(Collect(seven.Batch(3)) == Iota(7));
    CHECK(Collect(seven.Batch(3), 2) == Iota(6));
    CHECK(Collect(seven.Batch(3, true)) == Iota(6));
    CHECK(Collect(seven.Batch(8, true)).empty());
    CHECK(Collect(seven.Batch(2).Take(2)) == Iota(4));
    CHECK(Collect(seven.Batch(3).Shard(1, 2)) == Values{3, 4, 5});
    // Batches before Repeat keep the remainder in each pass, after it not.
    CHECK(Collect(seven.Batch(3).Repeat(2), 4) ==
          Values{0, 1, 2, 3, 4, 5, 6, 0, 1, 2});
    CHECK(Collect(seven.Repeat(2).Batch(4), 2) ==
          Values{0, 1, 2, 3, 4, 5, 6, 0});
    const Example nested = seven.Batch(2, true).Batch(2).First();
    CHECK(nested["x"].shape() == Shape{2, 2});
  }
}

TEST_CASE("shuffle: a permutation, another each epoch, the same again") {
  for (const Dataset& all : {Numbers(100), Generic(100)}) {
    const Values epochs = Collect(all.Shuffle(100, 7).Repeat(2));
    const Values first = Part(epochs, 0, 100);
    const Values second = Part(epochs, 100, 200);
    CHECK(Sorted(first) == Iota(100));
    CHECK(Sorted(second) == Iota(100));
    CHECK(first != Iota(100));
    CHECK(first != second);
    CHECK(Collect(all.Shuffle(100, 7)) == first);
    CHECK(Collect(all.Shuffle(100, 8)) != first);
    // A buffer larger than the data changes nothing.
    CHECK(Collect(all.Shuffle(1000, 7)) == first);
    CHECK(Collect(all.Shuffle(1, 7)) == Iota(100));
    // A small one mixes nearby elements only.
    const Values near = Collect(all.Shuffle(10, 7));
    CHECK(Sorted(near) == Iota(100));
    for (int64_t i = 0; i < 100; ++i) CHECK(near[i] < i + 10);
  }
  CHECK(Collect(Numbers(100).Shuffle(30, 1)) ==
        Collect(Generic(100).Shuffle(30, 1)));
}

TEST_CASE("shuffle is close to uniform") {
  // Where does element 0 of 5 go? 2000 seeds, so 400 +- 5 sigma (18) each.
  int counts[5] = {};
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Values values = Collect(Numbers(5).Shuffle(5, seed));
    ++counts[std::find(values.begin(), values.end(), 0) - values.begin()];
  }
  for (int count : counts) CHECK(std::abs(count - 400) < 90);
}

TEST_CASE("cardinality and examples per epoch") {
  const Dataset d = Numbers(10);
  CHECK(d.cardinality() == 10);
  CHECK(d.Take(4).cardinality() == 4);
  CHECK(d.Repeat().cardinality() == kInfinite);
  CHECK(d.Repeat(3).cardinality() == 30);
  CHECK(d.Repeat(3).examples_per_epoch() == 10);
  CHECK(d.Repeat().Batch(4).cardinality() == kInfinite);
  CHECK(d.Repeat().Batch(4).examples_per_epoch() == 10);
  CHECK(d.Batch(4).cardinality() == 3);
  CHECK(d.Batch(4, true).cardinality() == 2);
  CHECK(d.Batch(4).Prefetch(2).cardinality() == 3);
  CHECK(d.Batch(4).Take(1).examples_per_epoch() == 4);
  CHECK(d.Repeat().Take(25).cardinality() == 25);
  // Of several passes, however many: the part of one.
  CHECK(d.Repeat(3).Shard(0, 2).examples_per_epoch() == 5);
  CHECK(d.Repeat().Shard(0, 2).examples_per_epoch() == 5);
  for (int64_t count : {1, 3, 4, 10, 11}) {
    int64_t sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      const Dataset shard = d.Shard(i, count);
      CHECK(shard.cardinality() == static_cast<int64_t>(Collect(shard).size()));
      CHECK(shard.Shuffle(5, 1).Repeat().examples_per_epoch() ==
            shard.cardinality());
      sum += shard.cardinality();
    }
    CHECK(sum == 10);
  }
}

TEST_CASE("ScaleTo01 on examples and on batches") {
  const Dataset d = Numbers(256).Map(ScaleTo01("image"));
  CHECK(d.First()["image"].dtype() == DType::kFloat32);
  const Example before = d.Batch(256).First();
  const Example after = Numbers(256).Batch(256).Map(ScaleTo01("image")).First();
  CHECK(before["image"].BitEqual(after["image"]));
  const auto values = before["image"].values<float>();
  CHECK(values[0] == 0.0f);
  CHECK(values[2 * 255] == 1.0f);
  for (int i = 0; i < 256; ++i) {
    CHECK(values[2 * i] == doctest::Approx(i / 255.0).epsilon(1e-6));
  }
  // It replaces the tensor and leaves the source alone.
  CHECK(Numbers(3)
            .Map(ScaleTo01("image"))
            .Map(ScaleTo01("x"))
            .MakeIterator()
            .Next(std::make_unique<Example>().get())
            .status()
            .message()
            .find("uint8") != std::string::npos);
}

// Runs `dataset` to step `total`, then again from every position saved on the
// way, with a fresh iterator each time.
void CheckResume(const Dataset& dataset, int total) {
  std::vector<std::string> positions;
  std::vector<Example> elements;
  Iterator iterator = dataset.MakeIterator();
  for (int i = 0; i <= total; ++i) {
    positions.push_back(iterator.SavePosition());
    Example element;
    if (!iterator.Next(&element).ValueOrThrow()) break;
    elements.push_back(element);
  }
  REQUIRE(elements.size() > 3);
  for (size_t start = 0; start < positions.size(); ++start) {
    CAPTURE(start);
    Iterator resumed = dataset.MakeIterator();
    Example element;
    // Restoring must not depend on where the iterator was.
    if (start % 2 == 1) REQUIRE(*resumed.Next(&element));
    const Status status = resumed.Restore(positions[start]);
    REQUIRE_MESSAGE(status.ok(), status.message());
    CHECK(resumed.SavePosition() == positions[start]);
    for (size_t i = start; i < elements.size(); ++i) {
      REQUIRE(*resumed.Next(&element));
      for (const auto& [name, tensor] : elements[i]) {
        REQUIRE(element[name].BitEqual(tensor));
      }
    }
    if (static_cast<int>(elements.size()) <= total) {
      CHECK(!*resumed.Next(&element));
    }
  }
}

void AddKey(Example& example, uint64_t key) {
  example.Set("key", Tensor::Scalar(static_cast<int64_t>(key)));
}

TEST_CASE("a restored position continues bit for bit") {
  SUBCASE("as the trainer uses it") {
    CheckResume(Numbers(50)
                    .Shard(1, 2)
                    .Shuffle(60'000, 3)
                    .Repeat()
                    .Map(ScaleTo01("image"))
                    .Batch(4)
                    .Prefetch(2),
                30);
  }
  SUBCASE("evaluation with a remainder") {
    CheckResume(Numbers(23).Map(ScaleTo01("image")).Batch(4).Prefetch(3), 100);
  }
  SUBCASE("random maps, each epoch another") {
    CheckResume(
        Numbers(7).Shuffle(3, 5).MapRandom(11, AddKey).Repeat(3).Batch(2), 100);
  }
  SUBCASE("repeat before shuffle") {
    CheckResume(Numbers(7).Repeat().Shuffle(10, 5).Batch(3), 20);
  }
  SUBCASE("repeats of repeats") {
    CheckResume(Numbers(5).Shuffle(5, 1).Repeat(2).Shuffle(3, 2).Repeat(2),
                100);
  }
  SUBCASE("batches are shuffled, sharded, repeated") {
    CheckResume(Generic(20).Batch(3).Shuffle(4, 9).Repeat(2).Shard(0, 2), 100);
  }
  SUBCASE("batches before repeat, remainder dropped") {
    CheckResume(Numbers(11).Shuffle(11, 2).Batch(3, true).Repeat(3), 100);
  }
  SUBCASE("take cuts in the middle of a pass") {
    CheckResume(Numbers(5).Repeat().Take(13).Batch(2), 100);
  }
  SUBCASE("a map behind the prefetch") {
    CheckResume(Numbers(9).Prefetch(2).MapRandom(1, AddKey).Repeat(2), 100);
  }
}

TEST_CASE("a position of another pipeline is refused") {
  const std::string saved = Numbers(10)
                                .Shuffle(10, 1)
                                .Repeat()
                                .Batch(2)
                                .MakeIterator()
                                .SavePosition();
  for (const Dataset& other :
       {Numbers(11).Shuffle(10, 1).Repeat().Batch(2),
        Numbers(10).Shuffle(10, 2).Repeat().Batch(2),
        Numbers(10).Shard(0, 2).Shuffle(10, 1).Repeat().Batch(2)}) {
    Iterator iterator = other.MakeIterator();
    CHECK(iterator.Restore(saved).code() == Code::kInvalidArgument);
  }
  Iterator iterator = Numbers(3).MakeIterator();
  for (const char* junk :
       {"", "{}", "[1]", "nonsense", R"({"examples":-1,"pipeline":"x"})",
        R"({"examples":"1","pipeline":"tensors[3]"})",
        R"({"examples":18446744073709551615,"pipeline":"tensors[3]"})"}) {
    CHECK(iterator.Restore(junk).code() == Code::kInvalidArgument);
  }
  CHECK(iterator.Restore(R"({"examples":3,"pipeline":"tensors[3]"})").ok());
  Example example;
  CHECK(!*iterator.Next(&example));
  CHECK(iterator.Restore(R"({"examples":4,"pipeline":"tensors[3]"})").code() ==
        Code::kOutOfRange);
}

TEST_CASE("a run may be resumed with another batch size") {
  const Dataset source = Numbers(20).Shuffle(20, 4).Repeat();
  const Values all = Collect(source, 100);
  Iterator first = source.Batch(4).MakeIterator();
  Example batch;
  for (int i = 0; i < 6; ++i) REQUIRE(*first.Next(&batch));
  Iterator second = source.Batch(3).MakeIterator();
  REQUIRE(second.Restore(first.SavePosition()).ok());
  REQUIRE(*second.Next(&batch));
  const auto x = batch["x"].values<int64_t>();
  CHECK(Values(x.begin(), x.end()) == Part(all, 24, 27));
  // At the end, too, where the last batch counts as full.
  Iterator ended = Numbers(10).Batch(4).MakeIterator();
  while (*ended.Next(&batch)) continue;
  Iterator pairs = Numbers(10).Batch(2).MakeIterator();
  REQUIRE(pairs.Restore(ended.SavePosition()).ok());
  CHECK(pairs.consumed() == 5);
  CHECK(!*pairs.Next(&batch));
}

TEST_CASE("random keys: of the seed, the epoch and the place") {
  std::set<int64_t> keys;
  Iterator iterator = Numbers(50).MapRandom(1, AddKey).Repeat(4).MakeIterator();
  Example example;
  while (*iterator.Next(&example)) keys.insert(example["key"].IntAt(0));
  CHECK(keys.size() == 200);
  CHECK(Numbers(1).MapRandom(1, AddKey).First()["key"].IntAt(0) ==
        Numbers(1).MapRandom(1, AddKey).First()["key"].IntAt(0));
  CHECK(Numbers(1).MapRandom(2, AddKey).First()["key"].IntAt(0) !=
        Numbers(1).MapRandom(1, AddKey).First()["key"].IntAt(0));
}

TEST_CASE("what a map throws comes out of Next, after what came before") {
  for (bool prefetch : {false, true}) {
    Dataset d = Numbers(10).Map([](Example& e) {
      if (e["x"].IntAt(0) == 3) throw std::runtime_error("three");
    });
    if (prefetch) d = d.Prefetch(2);
    Iterator iterator = d.MakeIterator();
    Example example;
    for (int i = 0; i < 3; ++i) REQUIRE(*iterator.Next(&example));
    for (int again = 0; again < (prefetch ? 2 : 1); ++again) {
      const auto result = iterator.Next(&example);
      REQUIRE(!result.ok());
      CHECK(result.status().message() == "three");
    }
    CHECK(iterator.Restore(d.MakeIterator().SavePosition()).ok());
    CHECK(*iterator.Next(&example));
  }
}

TEST_CASE("batches of unequal examples are refused") {
  const auto run = [](std::function<void(Example&)> fn) {
    Example example;
    return Numbers(4)
        .Map(std::move(fn))
        .Batch(4)
        .MakeIterator()
        .Next(&example)
        .status();
  };
  CHECK(run([](Example& e) {
          e["image"] = Tensor(DType::kUInt8, {1 + e["x"].IntAt(0)});
        }).code() == Code::kInvalidArgument);
  CHECK(run([](Example& e) {
          if (e["x"].IntAt(0) == 2) e.Set("more", Tensor::Scalar(1.0f));
        }).code() == Code::kInvalidArgument);
}

TEST_CASE("a prefetching iterator can be dropped at any time") {
  const Dataset d = Numbers(100).Repeat().Batch(3).Prefetch(4);
  for (int consumed = 0; consumed < 8; ++consumed) {
    Iterator iterator = d.MakeIterator();
    Example example;
    for (int i = 0; i < consumed; ++i) REQUIRE(*iterator.Next(&example));
    Iterator moved = std::move(iterator);
    CHECK(*moved.Next(&example));
  }
}

TEST_CASE("iterators of one dataset are independent") {
  const Dataset d = Numbers(10).Shuffle(10, 1);
  Iterator a = d.MakeIterator();
  Example example;
  REQUIRE(*a.Next(&example));
  CHECK(Sorted(Collect(d)) == Iota(10));
}

TEST_CASE("arguments that can never work") {
  const Dataset d = Numbers(3);
  CHECK_THROWS_AS(d.Batch(0), Error);
  CHECK_THROWS_AS(d.Shuffle(0, 1), Error);
  CHECK_THROWS_AS(d.Shard(2, 2), Error);
  CHECK_THROWS_AS(d.Shard(0, 0), Error);
  CHECK_THROWS_AS(d.Take(-1), Error);
  CHECK_THROWS_AS(d.Repeat(-2), Error);
  CHECK_THROWS_AS(d.Prefetch(0), Error);
  CHECK_THROWS_AS(datasets::FromTensors({}), Error);
  CHECK_THROWS_AS(datasets::FromTensors({{"x", Tensor::Scalar(1.0f)}}), Error);
  CHECK_THROWS_AS(datasets::FromTensors({{"x", Tensor(DType::kFloat32, {2})},
                                         {"y", Tensor(DType::kFloat32, {3})}}),
                  Error);
  const Example example = d.First();
  CHECK_THROWS_WITH(example["label"],
                    "an example has no tensor 'label'; it has 'x', 'image'");
}

// A folder with the four MNIST files: n images each, and these labels.
struct FakeMnist {
  explicit FakeMnist(const std::string& labels) {
    std::filesystem::create_directories(path);
    const auto head = [](char type, const std::vector<int>& dims) {
      std::string bytes = {'\0', '\0', type, static_cast<char>(dims.size())};
      for (int d : dims) bytes += {'\0', '\0', '\0', static_cast<char>(d)};
      return bytes;
    };
    const int n = static_cast<int>(labels.size());
    for (const std::string split : {"train", "t10k"}) {
      Write(split + "-images-idx3-ubyte",
            head(8, {n, 28, 28}) + std::string(n * 784, '\7'));
      Write(split + "-labels-idx1-ubyte", head(8, {n}) + labels);
    }
  }
  ~FakeMnist() { std::filesystem::remove_all(path); }
  void Write(const std::string& name, const std::string& bytes) const {
    REQUIRE(FileSystem::Posix().WriteAtomically(path + "/" + name, bytes).ok());
  }
  std::string path = (std::filesystem::temp_directory_path() /
                      fmt::format("sluice_dataset_{}", getpid()))
                         .string();
};

// The message with which Mnist refuses a folder.
std::string Refusal(const std::string& dir) {
  try {
    datasets::Mnist(dir, Mode::kTrain);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("MNIST files") {
  const FakeMnist files(std::string("\0\1\11", 3));
  const Dataset d = datasets::Mnist(files.path, Mode::kEval);
  CHECK(d.cardinality() == 3);
  const Example batch = d.Batch(3).First();
  CHECK(batch["image"].shape() == Shape{3, 28, 28, 1});
  CHECK(batch["image"].dtype() == DType::kUInt8);
  CHECK(batch["label"].BitEqual(Tensor::Array<int64_t>({3}, {0, 1, 9})));

  const std::string label_file = files.path + "/train-labels-idx1-ubyte";
  files.Write("train-labels-idx1-ubyte",
              std::string("\0\0\x08\1\0\0\0\3\0\x0a\1", 11));
  CHECK(Refusal(files.path) ==
        "'" + label_file + "': label 10 at index 1 is not in 0..9");
  files.Write("train-labels-idx1-ubyte",
              std::string("\0\0\x08\1\0\0\0\2\0\1", 10));
  CHECK(Refusal(files.path).find("3 images") != std::string::npos);
  std::filesystem::remove(label_file);
  const std::string missing = Refusal(files.path);
  CHECK(missing.find("train-labels-idx1-ubyte") != std::string::npos);
  CHECK(missing.find("leave --data-dir away") != std::string::npos);
}

TEST_CASE("a sample has batches of one, whatever their size") {
  int made = 0;
  const Dataset huge =
      datasets::FromTensors({{"x", Tensor::Array<int32_t>({3}, {5, 6, 7})}})
          .Repeat()
          .Map([&made](Example&) { ++made; })
          .Batch(int64_t{1} << 50)
          .Map([](Example&) {});
  const Example sample = huge.Sample();
  CHECK(sample["x"].BitEqual(Tensor::Array<int32_t>({1}, {5})));
  CHECK(made == 1);
}

TEST_CASE("synthetic digits as a dataset") {
  const Dataset d = datasets::SyntheticDigits(20, 1);
  CHECK(d.cardinality() == 20);
  const Example batch = d.Batch(20).First();
  CHECK(batch["image"].shape() == Shape{20, 28, 28, 1});
  CHECK(batch["label"].dtype() == DType::kInt64);
  CHECK_THROWS_AS(datasets::SyntheticDigits(-1, 1), Error);
}

}  // namespace
}  // namespace sluice
