// The names of shards, against a regular expression; records by number.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>
#include <random>
#include <regex>
#include <set>

#include "io/files/record.h"
#include "io/records/record_files.h"
#include "tests/support/error_text.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/random_bytes.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Contains;
using testing::ErrorOf;
using testing::FaultFileSystem;

void Touch(FileSystem& files, const std::string& path) {
  REQUIRE(files.Create(path).ok());
}

// One of a few spellings, most of them good.
std::string RandomShard(std::mt19937& random, int64_t count) {
  const auto any = [&](std::initializer_list<const char*> texts) {
    return std::string(texts.begin()[Below(random, texts.size())]);
  };
  const auto number = static_cast<int64_t>(Below(random, count + 1));
  std::string name = fmt::format("train-{:05}-of-{:05}", number, count);
  switch (Below(random, 40)) {
    case 0:
      return any({"x", "", "a-", "tr"}) + name;
    case 1:
      return name + any({".idx", ".tfrecord", "0", ".tmp-1-2", ".gz"});
    case 2:
      return fmt::format("train{}-{:05}-of-{:05}",
                         any({".tfrecord", ".tfrecords", "-", "ing"}), number,
                         count);
    case 3:
      return fmt::format("train-{:0{}}-of-{:0{}}", number, 4 + Below(random, 4),
                         count, 4 + Below(random, 4));
    case 4:
      return fmt::format("train{}{:05}{}{:05}", any({"-", "_", ""}), number,
                         any({"-of-", "-", "-OF-", "of"}), count);
    case 5:
      return fmt::format("train-{:05}-of-99999999999999999999", number);
    default:
      return name;
  }
}

// "none", "two sets", "missing N", or the names of the whole set in order.
std::string ExpectedShards(const std::vector<std::string>& names) {
  static const std::regex pattern(
      R"((|.*-)(train)(|\.tfrecord)-(\d{5,18})-of-(\d{5,18})(|\.tfrecord))");
  std::set<std::string> sets;
  std::map<long long, std::string> shards;
  size_t found = 0;
  long long count = 0;
  for (const std::string& name : names) {
    std::smatch m;
    if (!std::regex_match(name, m, pattern)) continue;
    if (std::stoll(m[4]) >= std::stoll(m[5])) continue;
    sets.insert(m.prefix().str() + m[1].str() + m[3].str() + "*" + m[5].str() +
                m[6].str());
    shards[std::stoll(m[4])] = name;
    count = std::stoll(m[5]);
    ++found;
  }
  if (found == 0) return "none";
  if (sets.size() > 1 || shards.size() < found) return "two sets";
  if (static_cast<long long>(found) < count) {
    return fmt::format("{} of {}", found, count);
  }
  std::string all;
  for (const auto& [number, name] : shards) all += "shards/" + name + "\n";
  return all;
}

TEST_CASE("shards of random names") {
  std::map<std::string, int> outcomes;
  for (unsigned seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    const auto count = static_cast<int64_t>(1 + Below(random, 3));
    std::set<std::string> names;
    for (size_t n = Below(random, 14); n > 0; --n) {
      names.insert(RandomShard(random, count));
    }
    FaultFileSystem files;
    REQUIRE(files.MakeDirectories("shards").ok());
    std::string all;
    for (const std::string& name : names) {
      Touch(files, "shards/" + name);
      Touch(files, "shards/" + name + ".idx");
      all += name + " ";
    }
    CAPTURE(all);
    const std::string expected = ExpectedShards({names.begin(), names.end()});
    const std::string kind = expected.substr(0, expected.find_first_of(" /"));
    ++outcomes[kind];
    try {
      std::string got;
      for (const std::string& path : FindShards("shards", "train", files)) {
        got += path + "\n";
      }
      CHECK((got.empty() ? "none" : got) == expected);
    } catch (const Error& error) {
      if (expected == "two sets") {
        CHECK(error.code() == Code::kInvalidArgument);
      } else {
        CHECK(error.code() == Code::kNotFound);
      }
      CHECK(Contains(error.what(), expected));
    }
    // A folder that may lack some: the same, or those that there are.
    if (expected == "two sets") continue;
    const ShardSet some = ShardsAmong({.path = "shards",
                                       .names = {names.begin(), names.end()},
                                       .may_lack_shards = true},
                                      ShardKind::kRecords, "train");
    const std::string counted =
        fmt::format("{} of {}", some.paths.size(), some.count);
    const bool lacks = std::ssize(some.paths) < some.count;
    CHECK(lacks == (expected.find(" of ") != std::string::npos));
    if (lacks) CHECK(counted == expected);
    CHECK(std::is_sorted(some.paths.begin(), some.paths.end()));
  }
  for (const char* kind : {"none", "two", "shards", "1", "2"}) {
    CHECK(outcomes[kind] > 20);
  }
}

TEST_CASE("shards as ImageNet's and others are named") {
  FaultFileSystem files;
  const auto make = [&](const std::string& folder, const char* form, int count,
                        int step) {
    REQUIRE(files.MakeDirectories(folder).ok());
    for (int i = 0; i < count; i += step) {
      Touch(files, JoinPath(folder, fmt::format(fmt::runtime(form), i, count)));
    }
  };
  make("plain", "train-{:05}-of-{:05}", 1024, 1);
  make("plain", "validation-{:05}-of-{:05}", 128, 1);
  make("tfds", "imagenet2012-train.tfrecord-{:05}-of-{:05}", 1024, 1);
  make("one", "mnist-train.tfrecord-{:05}-of-{:05}", 1, 1);
  make("end", "train-{:05}-of-{:05}.tfrecord", 3, 1);
  make("gaps", "train-{:05}-of-{:05}", 10, 2);
  make("gap", "train-{:05}-of-{:05}", 2, 2);
  make("large", "train-{:06}-of-{:06}", 100'001, 50'000);
  const auto plain = FindShards("plain", "train", files);
  REQUIRE(plain.size() == 1024);
  CHECK(plain[0] == "plain/train-00000-of-01024");
  CHECK(plain[1023] == "plain/train-01023-of-01024");
  CHECK(FindShards("plain", "validation", files).size() == 128);
  CHECK(FindShards("plain", "test", files).empty());
  CHECK(FindShards("tfds", "train", files).size() == 1024);
  CHECK(FindShards("one", "train", files) ==
        std::vector<std::string>{"one/mnist-train.tfrecord-00000-of-00001"});
  CHECK(FindShards("end", "train", files).size() == 3);
  const auto error = [&](const std::string& folder) {
    return ErrorOf([&] { FindShards(folder, "train", files); });
  };
  CHECK(Contains(error("gaps"),
                 "'gaps' has 5 of 10 shards of 'train'; missing: "
                 "train-00001-of-00010, train-00003-of-00010, "
                 "train-00005-of-00010, ..."));
  CHECK(error("gap").ends_with("missing: train-00001-of-00002"));
  CHECK(Contains(error("large"), "3 of 100001"));
  make("gap", "old-train-{:05}-of-{:05}", 1, 1);
  CHECK(Contains(error("gap"), "old-train-00000-of-00001"));
  CHECK(Contains(error("nowhere"), "nowhere"));
}

TEST_CASE("hidden files beside shards are none of them") {
  using Strings = std::vector<std::string>;
  const Strings records = {"tiny-train-00000-of-00002",
                           "tiny-train-00001-of-00002"};
  const Strings tars = {"tiny-train-000000.tar", "tiny-train-000001.tar"};
  // As macOS puts them there.
  Strings hidden, all;
  for (const Strings& names : {records, tars}) {
    for (const std::string& name : names) hidden.push_back("._" + name);
    all.insert(all.end(), names.begin(), names.end());
  }
  all.insert(all.end(), hidden.begin(), hidden.end());
  FaultFileSystem files;
  REQUIRE(files.MakeDirectories("shards").ok());
  for (const std::string& name : all) Touch(files, "shards/" + name);
  const auto in_folder = [](Strings names) {
    for (std::string& name : names) name = "shards/" + name;
    return names;
  };
  CHECK(FindShards("shards", "train", files) == in_folder(records));
  const ListedFolder listed = ListFolder("shards", files).ValueOrThrow();
  CHECK(ShardsAmong(listed, ShardKind::kTars, "train").paths ==
        in_folder(tars));
  for (const ShardKind kind : {ShardKind::kRecords, ShardKind::kTars}) {
    CHECK(ShardsAmong({.path = "shards", .names = hidden}, kind, "train")
              .paths.empty());
  }
}

TEST_CASE("the numbers of records, and positions among them") {
  FaultFileSystem files;
  std::string bytes;
  for (const char* payload : {"a", "bb", "ccc", "dd"}) {
    AppendRecord(payload, &bytes);
  }
  REQUIRE(files.MakeDirectories("other").ok());
  std::string moved;
  for (const char* payload : {"a", "ccc", "bb", "dd"}) {
    AppendRecord(payload, &moved);
  }
  for (const char* path : {"f", "other/f", "g"}) {
    REQUIRE(files.WriteAtomically(path, bytes).ok());
  }
  REQUIRE(files.WriteAtomically("other/g", moved).ok());
  std::string changed;
  for (const char* payload : {"a", "bb", "ccx", "dd"}) {
    AppendRecord(payload, &changed);
  }
  REQUIRE(files.MakeDirectories("changed").ok());
  REQUIRE(files.WriteAtomically("changed/g", changed).ok());
  const auto open = [&](const std::vector<std::string>& paths) {
    return RecordFiles::Open(paths, 1, files).ValueOrThrow();
  };
  const auto records = open({"f", "g"});
  Iterator iterator = datasets::RecordNumbers(*records).MakeIterator();
  Example example;
  for (int64_t i = 0; i < 8; ++i) {
    REQUIRE(*iterator.Next(&example));
    CHECK(example["record"].BitEqual(Tensor::Scalar<int64_t>(i)));
  }
  CHECK(!*iterator.Next(&example));
  const auto restores = [&](const std::vector<std::string>& paths) {
    Iterator other = datasets::RecordNumbers(*open(paths)).MakeIterator();
    return other.Restore(iterator.SavePosition()).ok();
  };
  CHECK(restores({"f", "g"}));
  CHECK(restores({"other/f", "g"}));
  CHECK(!restores({"f", "other/g"}));
  CHECK(!restores({"f", "changed/g"}));
  CHECK(!restores({"g", "f"}));
  CHECK(!restores({"f", "g", "g"}));
  CHECK(records->Identity()->starts_with("records-"));
  // What examples are made of them counts, too.
  Iterator other =
      datasets::RecordNumbers(*records, " otherwise").MakeIterator();
  CHECK(!other.Restore(iterator.SavePosition()).ok());
}

}  // namespace
}  // namespace sluice
