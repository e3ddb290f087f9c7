// Samples of tar archives, read at random; their keys against WebDataset's
// regular expression; labels, names of shards, and what is wrong with them.
#include "io/records/tar_files.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <thread>

#include "io/records/record_files.h"
#include "tests/support/error_text.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/random_bytes.h"
#include "tests/support/tar_bytes.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Contains;
using testing::ErrorOf;
using testing::FaultFileSystem;
using testing::RandomBytes;
using testing::TarEnd;
using testing::TarFile;
using testing::TarHeader;
using testing::TemporaryFolder;

void Write(FileSystem& files, const std::string& path, std::string_view bytes) {
  const auto file = files.Create(path);
  REQUIRE(file.ok());
  REQUIRE((*file)->Append(bytes).ok());
}

struct Sample {
  std::string place, name, picture;
  int64_t label;
};

// The files of one sample, in any order, with others between them.
std::string RandomSample(std::mt19937& random, const std::string& key,
                         Sample* sample) {
  const char* extensions[] = {"jpg", "jpeg", "png", "JPG", "Png"};
  const char* json = R"({"a":[1,{"label":7}],"label":)";
  sample->label = testing::RandomInt(random);
  sample->picture = RandomBytes(random, Below(random, 3000));
  sample->name = fmt::format("{}.{}", key, extensions[Below(random, 5)]);
  std::vector<std::string> members = {TarFile(sample->name, sample->picture)};
  const size_t kind = Below(random, 3);
  if (kind != 0) {
    const char* end = Below(random, 2) == 0 ? "\n" : "";
    members.push_back(
        TarFile(key + ".cls", fmt::format("{}{}", sample->label, end)));
  }
  if (kind != 1) {  // does not count beside the other
    members.push_back(TarFile(
        key + ".JSON",
        fmt::format("{}{}}}", json, kind == 0 ? sample->label : 12345)));
  }
  for (const char* other : {".seg.png", ".txt", ".jpg.bak"}) {
    if (Below(random, 4) == 0) {
      members.push_back(TarFile(key + other, RandomBytes(random, 9)));
    }
  }
  for (const char* hidden : {"README", "n01/._0001.jpg", ".DS_Store"}) {
    if (Below(random, 9) == 0) members.push_back(TarFile(hidden, "x"));
  }
  if (Below(random, 9) == 0) {
    members.push_back(TarHeader{.name = "n01/", .type = '5'}.Text());
  }
  std::shuffle(members.begin(), members.end(), random);
  std::string all;
  for (const std::string& member : members) all += member;
  return all;
}

struct RandomSet {
  std::vector<std::string> paths;
  std::vector<Sample> samples;

  RandomSet(FileSystem& files, const std::string& folder, size_t count,
            std::mt19937& random, size_t most = 12) {
    for (size_t f = 0; f < count; ++f) {
      paths.push_back(JoinPath(folder, fmt::format("train-{:06}.tar", f)));
      std::string archive;
      for (size_t n = Below(random, most + 1); n > 0; --n) {
        const std::string key = Below(random, 2) == 0
                                    ? fmt::format("n.{}/{}", n % 3, n)
                                    : fmt::format("{:06}", n);
        Sample sample;
        archive += RandomSample(random, key, &sample);
        sample.place = fmt::format("'{}', sample '{}'", paths.back(), key);
        samples.push_back(std::move(sample));
      }
      Write(files, paths.back(), archive + TarEnd());
    }
  }
};

// Reads at random from four threads; counts the samples that were not so.
int CountWrong(const TarFiles& files, const std::vector<Sample>& expected,
               size_t reads) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (size_t i = 0; i < reads; ++i) {
        const size_t at = Below(random, expected.size());
        const Sample& sample = expected[at];
        const auto number = static_cast<int64_t>(at);
        const auto read = files.Read(number);
        wrong += !read.ok() || read->encoded != sample.picture ||
                 read->label != sample.label || read->name != sample.name;
        wrong += files.PlaceOf(number) != sample.place;
        const auto label = files.Label(number);
        wrong += !label.ok() || *label != sample.label;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

TEST_CASE("samples of random archives, read at random from four threads") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const TemporaryFolder folder;
    FaultFileSystem memory;
    const bool real = seed % 2 == 0;
    FileSystem& files = real ? FileSystem::Posix() : memory;
    const RandomSet set(files, real ? folder.path() : ".", Below(random, 9),
                        random);
    const int threads = static_cast<int>(Below(random, 5));
    const auto opened =
        TarFiles::Open(set.paths, TarLabels::kRead, threads, files);
    REQUIRE_MESSAGE(opened.ok(), opened.status().message());
    REQUIRE((*opened)->size() == static_cast<int64_t>(set.samples.size()));
    if (set.samples.empty()) continue;
    CHECK(CountWrong(**opened, set.samples, 100) == 0);
    const auto ignoring =
        TarFiles::Open(set.paths, TarLabels::kIgnored, threads, files);
    CHECK((*ignoring)->Read(0)->encoded == set.samples[0].picture);
    CHECK((*ignoring)->Read(0)->label == 0);
  }
}

TEST_CASE("of 100 archives at most 64 are open") {
  std::mt19937 random(1);
  const TemporaryFolder folder;
  const RandomSet set(FileSystem::Posix(), folder.path(), 100, random, 3);
  const auto open_now = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<int>(std::distance(begin(all), end(all)));
  };
  const int before = open_now();
  const auto opened = TarFiles::Open(set.paths, TarLabels::kRead, 2);
  REQUIRE(opened.ok());
  CHECK(open_now() == before);
  CHECK(CountWrong(**opened, set.samples, 500) == 0);
  CHECK(open_now() == before + 64);
}

std::shared_ptr<const TarFiles> Opened(const std::string& archive,
                                       TarLabels labels = TarLabels::kRead) {
  static FaultFileSystem files;
  Write(files, "d-t.tar", archive);
  return TarFiles::Open({"d-t.tar"}, labels, 1, files).ValueOrThrow();
}

TEST_CASE("keys are those of WebDataset's base_plus_ext") {
  // webdataset/tariterators.py; it has hidden files of folders, too.
  static const std::regex pattern("((?:.*/|)[^.]+)[.]([^/]*)");
  std::mt19937 random(5);
  std::map<std::string, int> outcomes;
  for (int round = 0; round < 1000; ++round) {
    std::string name;
    for (size_t n = 1 + Below(random, 5); n > 0; --n) {
      const char* pieces[] = {"a", "b1", ".", "/", ".jpg", "jpg", "x.y", "_"};
      name += pieces[Below(random, 8)];
    }
    if (name.ends_with('/')) continue;  // a folder
    CAPTURE(name);
    std::smatch match;
    const bool hidden = name[name.rfind('/') + 1] == '.';
    if (hidden || !std::regex_match(name, match, pattern)) {
      CHECK(Opened(TarFile(name, "x"), TarLabels::kIgnored)->size() == 0);
      ++outcomes["none"];
    } else if (match[2] == "jpg") {
      const auto files = Opened(TarFile(name, "x"), TarLabels::kIgnored);
      REQUIRE(files->size() == 1);
      CHECK(files->PlaceOf(0) ==
            fmt::format("'d-t.tar', sample '{}'", match[1].str()));
      ++outcomes["picture"];
    } else {
      CHECK(Opened(TarFile(name, "x"))->size() == 0);
      ++outcomes["passed over"];
    }
  }
  for (const char* kind : {"none", "picture", "passed over"}) {
    CHECK(outcomes[kind] > 20);
  }
}

TEST_CASE("bad samples are among the good ones, archives are good or not") {
  const auto error = [](const std::string& archive) {
    return ErrorOf([&] { Opened(archive); });
  };
  const std::string jpg = TarFile("a.jpg", "x"), cls = TarFile("a.cls", "1");
  const std::string other = TarFile("b.png", "y") + TarFile("b.cls", "2");
  // Of an archive whose sample `a` is bad.
  const auto fault = [](const std::string& archive,
                        TarLabels labels = TarLabels::kRead) {
    const auto files = Opened(archive, labels);
    REQUIRE(files->size() == 2);
    const int64_t bad = files->PlaceOf(0).ends_with("'a'") ? 0 : 1;
    CHECK(files->Read(1 - bad)->encoded == "y");
    CHECK(files->Identity().ok());
    const Status read = files->Read(bad).status();
    CHECK(read.code() == Code::kDataLoss);
    CHECK(files->Label(bad).status().message() == read.message());
    return read.message();
  };
  CHECK(Opened(jpg + cls + other)->size() == 2);
  CHECK(fault(jpg + cls + TarFile("a.png", "y") + other) ==
        "'d-t.tar', sample 'a': two pictures: 'a.jpg' and 'a.png'");
  CHECK(Contains(fault(jpg + cls + cls + other), "'a': two files 'cls'"));
  CHECK(Contains(fault(other + jpg), "sample 'a': no label: wanted a file"));
  CHECK(Contains(fault(cls + other), "sample 'a': no picture: wanted a file"));
  CHECK(Contains(fault(cls + other, TarLabels::kIgnored), "no picture"));
  CHECK(
      Contains(fault(other + jpg + TarFile("a.cls", std::string(2 << 20, ' '))),
               "the label has 2097152 bytes, wanted at most 1048576"));
  // What is no sample at all.
  CHECK(Opened(TarFile("README.md", "x") + TarFile("dataset.json", "{}") + jpg +
               cls + TarFile("dataset.json", "{}") + TarFile("x.txt", ""))
            ->size() == 1);
  CHECK(Opened(TarFile("README.md", "x"))->size() == 0);
  CHECK(Contains(error(jpg + cls + other + jpg + cls),
                 "'d-t.tar', sample 'a': its files are not all together"));
  CHECK(Contains(error(jpg + other + TarFile("a.json", "{}")),
                 "'d-t.tar', sample 'a': its files are not all together"));
  CHECK(Contains(error(jpg + cls + other.substr(0, 700)),
                 "'d-t.tar', byte 2048: the archive ends within 'b.png'"));
  CHECK(Opened(jpg + other, TarLabels::kIgnored)->size() == 2);
  CHECK(Contains(ErrorOf([] {
                   TarFiles::Open({"/none"}, TarLabels::kRead).ValueOrThrow();
                 }),
                 "/none"));
}

TEST_CASE("links are no files to read") {
  const std::string sample = TarFile("a.jpg", "x") + TarFile("a.cls", "1");
  for (const char type : {'1', '2'}) {
    const auto link = [&](const std::string& name) {
      return TarHeader{.name = name, .type = type}.Text();
    };
    for (const char* name : {"1.jpg", "n/1.JPEG", "1.png", "1.cls", "1.json"}) {
      CHECK(ErrorOf([&] { Opened(sample + link(name)); }) ==
            fmt::format("'d-t.tar': '{}' is a link; pack with tar "
                        "--hard-dereference --dereference",
                        name));
    }
    CHECK(
        Opened(sample + link("1.txt") + link("jpg") + link(".x.jpg"))->size() ==
        1);
  }
}

TEST_CASE("messages do not command a terminal") {
  const auto files = Opened(TarFile("a\x1b[1m.jpg", "x") +
                            TarFile("a\x1b[1m.cls", "\x1b]0;owned\x07"));
  CHECK(files->Label(0).status().message() ==
        R"('d-t.tar', sample 'a\x1b[1m': cls: wanted a whole number, got )"
        R"('\x1b]0;owned\x07')");
}

TEST_CASE("labels that are none") {
  const auto read = [](const char* extension, const std::string& text) {
    const auto files =
        Opened(TarFile("a.jpg", "x") +
               TarFile(std::string("a.") + extension, text) + TarEnd());
    CHECK(files->Read(0).status().message() ==
          files->Label(0).status().message());
    return files->Read(0);
  };
  CHECK(read("cls", " 12\r\n")->label == 12);
  CHECK(read("cls", "-3")->label == -3);
  CHECK(read("json", R"({"label": 9, "x": "\u00e4"})")->label == 9);
  for (const char* text :
       {"", "x", "1.5", "1 2", "0x1", "99999999999999999999", "+1", "\xff"}) {
    CAPTURE(text);
    const Status error = read("cls", text).status();
    CHECK(error.code() == Code::kDataLoss);
    CHECK(Contains(error.message(),
                   "'d-t.tar', sample 'a': cls: wanted a whole number"));
  }
  for (const char* text :
       {"", "[]", "{}", R"({"label":"1"})", R"({"label":1.5})", R"({"label":1)",
        R"({"label":18446744073709551615})"}) {
    CAPTURE(text);
    const Status error = read("json", text).status();
    CHECK(error.code() == Code::kDataLoss);
    CHECK(Contains(error.message(), "'d-t.tar', sample 'a': json: "));
  }
  CHECK(!read("json", std::string(100'000, '[')).ok());
}

TEST_CASE("archives that are replaced after they were opened") {
  FaultFileSystem files;
  const auto archive = [](const std::string& first, const std::string& second) {
    return TarFile(first + ".jpg", "x") + TarFile(first + ".cls", "1") +
           TarFile(second + ".jpg", "y") + TarFile(second + ".cls", "2");
  };
  Write(files, "t", archive("a", "b"));
  const auto opened =
      TarFiles::Open({"t"}, TarLabels::kRead, 1, files).ValueOrThrow();
  Write(files, "t", archive("b", "a"));
  CHECK(opened->Read(0).status().code() == Code::kDataLoss);
  CHECK(Contains(opened->Read(0).status().message(),
                 "'t', sample 'a': the file has changed"));
  const auto again =
      TarFiles::Open({"t"}, TarLabels::kRead, 1, files).ValueOrThrow();
  Write(files, "t", archive("a", "b") + TarEnd());
  CHECK(Contains(again->Read(1).status().message(), "'t' has changed"));
  REQUIRE(files.Remove("t").ok());
  CHECK(again->Read(1).status().code() == Code::kUnavailable);
}

TEST_CASE("huge members are refused, not allocated") {
  const TemporaryFolder folder;
  const std::string path = folder / "train-0.tar";
  const uint64_t size = uint64_t{3} << 30;
  std::ofstream(path) << TarHeader{.name = "a.jpg", .size = size}.Text();
  std::filesystem::resize_file(path, 512 + size);  // a hole
  const auto opened = TarFiles::Open({path}, TarLabels::kIgnored);
  REQUIRE(opened.ok());
  const Status error = (*opened)->Read(0).status();
  CHECK(error.code() == Code::kDataLoss);
  CHECK(Contains(error.message(), "the picture has 3221225472 bytes"));
}

TEST_CASE("what sets are told apart by") {
  FaultFileSystem files;
  REQUIRE(files.MakeDirectories("other").ok());
  const auto identity = [&](const std::string& path,
                            const std::string& archive) {
    Write(files, path, archive);
    return TarFiles::Open({path}, TarLabels::kRead, 1, files)
        .ValueOrThrow()
        ->Identity()
        .ValueOrThrow();
  };
  const auto of = [](const char* picture, const char* label) {
    return TarFile("a.jpg", picture) + TarFile("a.cls", label);
  };
  const std::string same = identity("t", of("xx", "1"));
  CHECK(same.starts_with("tars-"));
  CHECK(identity("other/t", of("xx", "1")) == same);
  // When it was packed does not matter.
  const std::string later =
      TarHeader{.name = "a.jpg", .size = 2, .mtime = "12345670123"}.Text() +
      testing::TarPadded("xx") + TarFile("a.cls", "1");
  CHECK(identity("t", later) == same);
  std::set<std::string> all = {same};
  all.insert(identity("u", of("xx", "1")));
  all.insert(identity("t", of("xy", "1")));
  all.insert(identity("t", of("xx", "2")));
  all.insert(identity("t", of("x", "1")));
  all.insert(identity("t", of("xx", "1") + TarEnd()));
  all.insert(identity("t", TarEnd()));
  CHECK(all.size() == 7);
}

// --- The names of shards -----------------------------------------------------

// "none", "two sets", "N of M", or the names of the whole set in order.
std::string ExpectedShards(const std::set<std::string>& names) {
  static const std::regex pattern(
      R"((|.*-)train-(\d{1,18})(|-of-(\d{1,18}))\.tar)");
  std::set<std::string> sets;
  std::map<long long, std::string> shards;
  long long found = 0, count = 0;
  for (const std::string& name : names) {
    std::smatch m;
    if (!std::regex_match(name, m, pattern)) continue;
    const long long number = std::stoll(m[2]);
    if (m[4].length() > 0 && number >= std::stoll(m[4])) continue;
    sets.insert(m[1].str() + "*" + m[3].str());
    shards[number] = name;
    count = m[4].length() > 0 ? std::stoll(m[4]) : std::max(count, number + 1);
    ++found;
  }
  if (found == 0) return "none";
  if (sets.size() > 1 || static_cast<long long>(shards.size()) < found) {
    return "two sets";
  }
  if (found < count) return fmt::format("{} of {}", found, count);
  std::string all;
  for (const auto& [number, name] : shards) all += "shards/" + name + "\n";
  return all;
}

std::string RandomShard(std::mt19937& random, int64_t count) {
  const auto number = static_cast<int64_t>(Below(random, count));
  switch (Below(random, 60)) {
    case 0:
      return fmt::format("old-train-{:06}.tar", number);
    case 1:
      return fmt::format("train-{:05}-of-{:05}.tar", number, count);
    case 2:
      return fmt::format("train-{:0{}}.tar", number, 1 + Below(random, 7));
    case 3:
      return fmt::format("train-{:06}.tar.gz", number);
    case 4:
      return fmt::format("train-99999999999999999999.tar");
    case 5:
      return fmt::format("train{:06}.tar", number);
    case 6:
      return fmt::format("xtrain-{:06}.tar", number);
    case 7:
      return "train-999999999999999999.tar";
    default:
      return fmt::format("train-{:06}.tar", number);
  }
}

std::vector<std::string> TarShards(const std::string& folder, const char* part,
                                   FileSystem& files) {
  return ShardsAmong(ListFolder(folder, files).ValueOrThrow(), ShardKind::kTars,
                     part)
      .paths;
}

TEST_CASE("shards of random names") {
  std::map<std::string, int> outcomes;
  for (unsigned seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    const auto count = static_cast<int64_t>(1 + Below(random, 4));
    std::set<std::string> names;
    for (size_t n = Below(random, 12); n > 0; --n) {
      names.insert(RandomShard(random, count));
    }
    FaultFileSystem files;
    REQUIRE(files.MakeDirectories("shards").ok());
    for (const std::string& name : names) Write(files, "shards/" + name, "");
    const std::string expected = ExpectedShards(names);
    ++outcomes[expected.substr(0, expected.find_first_of(" /"))];
    std::string got;
    const std::string error = ErrorOf([&] {
      for (const auto& path : TarShards("shards", "train", files)) {
        got += path + "\n";
      }
    });
    if (error == "(no error)") {
      CHECK((got.empty() ? "none" : got) == expected);
    } else {
      CHECK(Contains(error, expected));
    }
  }
  for (const char* kind : {"none", "two", "shards", "1", "2"}) {
    CHECK(outcomes[kind] > 20);
  }
}

TEST_CASE("missing shards are named as the others are") {
  FaultFileSystem files;
  for (const char* name : {"a/x-train-000000.tar", "a/x-train-000002.tar",
                           "b/val-0-of-3.tar", "b/val-2-of-3.tar"}) {
    REQUIRE(files.MakeDirectories(std::string(name, 1)).ok());
    Write(files, name, "");
  }
  CHECK(ErrorOf([&] { TarShards("a", "train", files); }) ==
        "'a' has 2 of 3 shards of 'train'; missing: x-train-000001.tar");
  CHECK(ErrorOf([&] { TarShards("b", "val", files); }) ==
        "'b' has 2 of 3 shards of 'val'; missing: val-1-of-3.tar");
}

}  // namespace
}  // namespace sluice
