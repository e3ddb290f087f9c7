// Records and lines of files as datasets: all of them, in any number of files
// read in turn, and resumed anywhere.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "io/files/file.h"
#include "io/files/record.h"
#include "io/records/file_datasets.h"
#include "tests/support/compressed.h"
#include "tests/support/error_text.h"
#include "tests/support/random_bytes.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::TemporaryFolder;
using Texts = std::vector<std::string>;

Texts Read(Iterator* iterator, size_t most = SIZE_MAX) {
  Texts texts;
  Example example;
  while (texts.size() < most && iterator->Next(&example).ValueOrThrow()) {
    texts.emplace_back(BytesOf(example["bytes"]));
  }
  return texts;
}

Texts Read(const Dataset& dataset) {
  Iterator iterator = dataset.MakeIterator();
  return Read(&iterator);
}

void Write(const std::string& path, const std::string& bytes) {
  REQUIRE(FileSystem::Posix().WriteAtomically(path, bytes).ok());
}

// One element of each file in turn, without those that have ended.
Texts InTurn(const std::vector<Texts>& files, size_t cycle) {
  std::vector<size_t> at(files.size());
  size_t next = 0;
  Texts out;
  std::vector<std::optional<size_t>> slots(cycle);
  for (;;) {
    bool any = false;
    for (auto& slot : slots) {
      if (!slot && next < files.size()) slot = next++;
      if (!slot) continue;
      any = true;
      if (at[*slot] == files[*slot].size()) {
        slot.reset();
      } else {
        out.push_back(files[*slot][at[*slot]++]);
      }
    }
    if (!any) return out;
  }
}

TEST_CASE("records and lines of many files, plain and compressed") {
  std::mt19937 random(3);
  const auto draw = [&](int most) {
    return static_cast<size_t>(random() % static_cast<unsigned>(most + 1));
  };
  for (int round = 0; round < 60; ++round) {
    const TemporaryFolder dir;
    const bool lines = round % 2 == 0;
    std::vector<std::string> paths;
    std::vector<Texts> contents;
    Texts all;
    for (size_t file = draw(5); file > 0; --file) {
      Texts texts;
      std::string bytes;
      for (size_t n = draw(30); n > 0; --n) {
        std::string text(draw(50), static_cast<char>('a' + draw(25)));
        if (lines) {
          bytes += text + "\n";
        } else {
          AppendRecord(text, &bytes);
        }
        texts.push_back(text);
        all.push_back(text);
      }
      switch (draw(lines ? 1 : 2)) {
        case 1:
          bytes = testing::Compressed(bytes, Compression::kGzip);
          break;
        case 2:
          bytes = testing::Compressed(bytes, Compression::kZlib);
          break;
        default:
          break;
      }
      paths.push_back(dir / std::to_string(paths.size()));
      Write(paths.back(), bytes);
      contents.push_back(texts);
    }
    const auto dataset = [&](FileOptions options) {
      return lines ? datasets::TextLines(paths, options)
                   : datasets::Records(paths, options);
    };
    CHECK(Read(dataset({})) == all);
    const size_t cycle = 1 + draw(6);
    const Dataset in_turn = dataset({.cycle = static_cast<int64_t>(cycle)});
    const Texts wanted = InTurn(contents, cycle);
    CHECK(Read(in_turn) == wanted);
    const size_t stop = draw(static_cast<int>(wanted.size()));
    Iterator saved = in_turn.MakeIterator();
    REQUIRE(Read(&saved, stop).size() == stop);
    Iterator resumed = in_turn.MakeIterator();
    REQUIRE(resumed.Restore(saved.SavePosition()).ok());
    CHECK(Read(&resumed) ==
          Texts(wanted.begin() + static_cast<int64_t>(stop), wanted.end()));

    Texts shuffled = Read(dataset({.cycle = 2, .shuffle_seed = 5}).Repeat(2));
    REQUIRE(shuffled.size() == 2 * all.size());
    const auto middle = shuffled.begin() + static_cast<int64_t>(all.size());
    std::sort(shuffled.begin(), middle);
    std::sort(middle, shuffled.end());
    std::sort(all.begin(), all.end());
    CHECK(Texts(shuffled.begin(), middle) == all);
    CHECK(Texts(middle, shuffled.end()) == all);
  }
}

TEST_CASE("a manifest beside all shards says how many records there are") {
  const TemporaryFolder dir;
  const std::vector<std::string> paths = {dir / "train-00001-of-00003",
                                          dir / "train-00000-of-00003",
                                          dir / "train-00002-of-00003"};
  Texts all;
  for (const std::string& path : paths) {
    std::string bytes;
    for (int i = 0; i < 5; ++i) {
      all.push_back(path.substr(path.size() - 14) + std::to_string(i));
      AppendRecord(all.back(), &bytes);
    }
    // The name says nothing of that.
    Write(path,
          testing::Compressed(bytes, path == paths[1] ? Compression::kGzip
                                                      : Compression::kZlib));
  }
  const auto size = [&](const std::vector<std::string>& of) {
    return datasets::Records(of).cardinality();
  };
  CHECK(size(paths) == kUnknownCardinality);
  const auto say = [&](const std::string& text) {
    Write(dir / "train.json", text);
  };
  say(R"({"records":15,"shards":["a","b","c"],"resize":9})");
  CHECK(size(paths) == 15);
  const Dataset known =
      datasets::Records(paths, {.cycle = 2, .shuffle_seed = 3});
  CHECK(known.Shuffle(7, 1).Repeat().cardinality() == kInfinite);
  CHECK(known.Shuffle(7, 1).Repeat().examples_per_epoch() == 15);
  Texts read = Read(known);
  std::sort(read.begin(), read.end());
  std::sort(all.begin(), all.end());
  CHECK(read == all);
  // Of other files it says nothing.
  CHECK(size({paths[0]}) == kUnknownCardinality);
  CHECK(size({paths[0], paths[1], paths[1]}) == kUnknownCardinality);
  Write(dir / "train-00003-of-00003", "");
  CHECK(size({paths[0], paths[1], dir / "train-00003-of-00003"}) ==
        kUnknownCardinality);
  for (const char* name : {"a", "-of-", "train", "x-of-00001", "1-of-00001"}) {
    Write(dir / name, "");
    CHECK(size({dir / name}) == kUnknownCardinality);
  }
  for (const char* text :
       {"", "[]", "{}", R"({"records":15})", R"({"shards":["a","b","c"]})",
        R"({"records":-1,"shards":["a","b","c"]})",
        R"({"records":"15","shards":["a","b","c"]})",
        R"({"records":15,"shards":["a","b"]})",
        R"({"records":15,"shards":3})"}) {
    CAPTURE(text);
    say(text);
    CHECK(size(paths) == kUnknownCardinality);
  }
  // What cannot be read may say something.
  std::filesystem::remove(dir / "train.json");
  std::filesystem::create_directory(dir / "train.json");
  CHECK_THROWS_AS(size(paths), Error);
  CHECK(size({paths[0]}) == kUnknownCardinality);
  std::filesystem::remove(dir / "train.json");
  // What contradicts it is an error at the end of the epoch, or as soon as
  // there are more.
  say(R"({"records":16,"shards":["a","b","c"]})");
  const Dataset more = datasets::Records(paths);
  Iterator iterator = more.MakeIterator();
  CHECK(Read(&iterator, 15).size() == 15);
  CHECK(ErrorOf([&] { Read(&iterator); }) ==
        "the input has 15 elements, where 16 were expected by '" +
            dir / "train.json'");
  say(R"({"records":14,"shards":["a","b","c"]})");
  CHECK(ErrorOf([&] { Read(datasets::Records(paths).Repeat()); }) ==
        "the input has more than the 14 elements that were expected by '" +
            dir / "train.json'");
}

TEST_CASE("epochs read shuffled files in different orders") {
  const TemporaryFolder dir;
  std::vector<std::string> paths;
  for (int i = 0; i < 40; ++i) {
    paths.push_back(dir / std::to_string(i));
    Write(paths.back(), std::to_string(i) + "\n");
  }
  const Texts two =
      Read(datasets::TextLines(paths, {.shuffle_seed = 1}).Repeat(2));
  CHECK(Texts(two.begin(), two.begin() + 40) !=
        Texts(two.begin() + 40, two.end()));
  CHECK(Read(datasets::TextLines(paths, {.shuffle_seed = 1}).Repeat(2)) == two);
}

TEST_CASE("files that are not there, broken or others") {
  const TemporaryFolder dir;
  CHECK(Contains(ErrorOf([&] { datasets::Records({dir / "none"}); }), "none"));
  std::string bytes;
  AppendRecord("first", &bytes);
  AppendRecord("second", &bytes);
  Write(dir / "cut", bytes.substr(0, bytes.size() - 3));
  const Dataset cut = datasets::Records({dir / "cut"});
  Iterator iterator = cut.MakeIterator();
  Example example;
  REQUIRE(iterator.Next(&example).ValueOrThrow());
  CHECK(BytesOf(example["bytes"]) == "first");
  const Status status = iterator.Next(&example).status();
  CHECK(status.code() == Code::kDataLoss);
  CHECK(Contains(status.message(), "/cut', byte 21"));

  // A file of another size is another one.
  Iterator at = cut.MakeIterator();
  const std::string position = at.SavePosition();
  Write(dir / "cut", bytes);
  CHECK(datasets::Records({dir / "cut"})
            .MakeIterator()
            .Restore(position)
            .code() == Code::kInvalidArgument);
  CHECK(Contains(ErrorOf([] { BytesOf(Tensor::Scalar(1.0F)); }),
                 "wanted bytes, which are uint8, got float32[]"));
}

}  // namespace
}  // namespace sluice
