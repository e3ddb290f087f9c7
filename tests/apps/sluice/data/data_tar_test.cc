// `sluice data check`, show and stats on tar archives, as WebDataset has them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <random>

#include "io/files/record.h"
#include "io/records/image_records.h"
#include "tests/support/data_program.h"
#include "tests/support/last_object.h"
#include "tests/support/tar_bytes.h"

#if SLUICE_HAVE_PNG && SLUICE_HAVE_JPEG && SLUICE_HAVE_PROTOBUF

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
using Strings = std::vector<std::string>;
using testing::CheckDataError;
using testing::Contains;
using testing::DataObject;
using testing::Objects;
using testing::Outcome;
using testing::RandomJpeg;
using testing::RandomPng;
using testing::RunData;
using testing::TarEnd;
using testing::TarFile;
using testing::TemporaryFolder;
using testing::WriteFile;

struct Sample {
  std::string picture;
  int64_t label = 0;
};

std::vector<Sample> RandomSamples(int n, std::mt19937& random) {
  std::vector<Sample> samples;
  for (int i = 0; i < n; ++i) {
    samples.push_back(
        {i % 3 == 0 ? RandomJpeg(random) : RandomPng(random), i % 4});
  }
  return samples;
}

std::string Key(size_t i) {
  return fmt::format("n{}/{:04}", i % 3, i);
}

// As a file: its picture and its label, of either kind.
std::string Text(size_t i, const Sample& sample) {
  const char* ending = sample.picture.starts_with("\xff") ? "jpg" : "png";
  return TarFile(fmt::format("{}.{}", Key(i), ending), sample.picture) +
         (i % 2 == 0
              ? TarFile(Key(i) + ".cls", std::to_string(sample.label) + "\n")
              : TarFile(Key(i) + ".json",
                        fmt::format(R"({{"label": {}}})", sample.label)));
}

// Shards of `part`, of `texts` one after the other.
void WriteTars(const std::string& folder, const std::string& part,
               const Strings& texts, size_t shards) {
  for (size_t s = 0; s < shards; ++s) {
    std::string bytes;
    for (size_t i = texts.size() * s / shards;
         i < texts.size() * (s + 1) / shards; ++i) {
      bytes += texts[i];
    }
    WriteFile(fmt::format("{}/{}-{:06}.tar", folder, part, s),
              bytes + TarEnd());
  }
}

Strings TextsOf(const std::vector<Sample>& samples) {
  Strings texts;
  for (size_t i = 0; i < samples.size(); ++i) {
    texts.push_back(Text(i, samples[i]));
  }
  return texts;
}

TEST_CASE("what is said of archives is said of records of the same pictures") {
  std::mt19937 random(1);
  for (int round = 0; round < 5; ++round) {
    const TemporaryFolder folder;
    const std::string tars = folder / "tars", records = folder / "records";
    const auto samples =
        RandomSamples(1 + static_cast<int>(random() % 40), random);
    WriteTars(tars, "train", TextsOf(samples), 3);
    std::string file;
    for (const Sample& sample : samples) {
      AppendRecord(EncodeImageRecord({sample.picture, sample.label, {}, {}})
                       .ValueOrThrow(),
                   &file);
    }
    WriteFile(records + "/train-00000-of-00001", file);
    if (round % 2 == 0) {
      WriteFile(tars + "/labels.txt", "a\nb\nc\nd\n");
      WriteFile(records + "/labels.txt", "a\nb\nc\nd\n");
    }
    for (const char* threads : {"1", "3"}) {
      const auto stats = [&](const std::string& of) {
        return RunData({"stats", of, "--threads", threads, "--json"});
      };
      REQUIRE(stats(tars).code == 0);
      CHECK(stats(tars).out == stats(records).out);
      Json want = DataObject({"check", records, "--threads", threads});
      want["files"] = 3;
      CHECK(DataObject({"check", tars, "--threads", threads}) == want);
    }
    // Together, as long as they are named one by one.
    CHECK(DataObject({"check", tars, records})["records"] ==
          2 * samples.size());
  }
}

TEST_CASE("damaged samples are named and no others") {
  std::mt19937 random(2);
  using Spoil = std::function<std::string(size_t, Sample)>;
  const std::vector<Spoil> faults = {
      [](size_t i, Sample sample) {  // the picture is cut off
        sample.picture.resize(sample.picture.size() / 2);
        return Text(i, sample);
      },
      [](size_t i, const Sample&) {  // it is none
        return TarFile(Key(i) + ".jpg", "no picture") +
               TarFile(Key(i) + ".cls", "1");
      },
      [](size_t i, const Sample& sample) {  // no label
        return TarFile(Key(i) + ".png", sample.picture);
      },
      [](size_t i, const Sample& sample) {  // a wrong one
        return TarFile(Key(i) + ".png", sample.picture) +
               TarFile(Key(i) + ".cls", "one");
      },
      [](size_t i, const Sample&) {  // no picture
        return TarFile(Key(i) + ".cls", "1");
      },
      [](size_t i, const Sample& sample) {  // a label beyond the names
        return TarFile(Key(i) + ".png", sample.picture) +
               TarFile(Key(i) + ".cls", "4");
      },
  };
  for (int round = 0; round < 8; ++round) {
    const TemporaryFolder folder;
    const auto samples = RandomSamples(30, random);
    Strings texts = TextsOf(samples), wanted;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (random() % 5 != 0) continue;
      texts[i] = faults[random() % faults.size()](i, samples[i]);
      wanted.push_back(fmt::format("-{:06}.tar', sample '{}'", i / 10, Key(i)));
    }
    WriteTars(folder.path(), "train", texts, 3);
    WriteFile(folder / "labels.txt", "a\nb\nc\nd\n");
    const Outcome outcome = RunData({"check", folder.path(), "--threads", "2"});
    CAPTURE(outcome.out);
    CHECK(outcome.code == (wanted.empty() ? 0 : 1));
    CHECK(testing::Lines(outcome.out) ==
          static_cast<int64_t>(wanted.size()) + 1);
    for (const std::string& place : wanted) CHECK(Contains(outcome.out, place));
    CHECK(Contains(outcome.out, wanted.empty()
                                    ? "none bad"
                                    : fmt::format("{} bad", wanted.size())));
  }
}

TEST_CASE("a damaged archive is a fault, and the others are checked") {
  std::mt19937 random(3);
  const TemporaryFolder folder;
  WriteTars(folder.path(), "train", TextsOf(RandomSamples(12, random)), 3);
  const std::string bad = folder / "train-000001.tar";
  std::string bytes = testing::TextOf(bad);
  bytes[140] ^= 1;  // in its first header
  WriteFile(bad, bytes);
  Outcome outcome = RunData({"check", folder.path()});
  CHECK(outcome.code == 1);
  CHECK(Contains(outcome.out, bad));
  CHECK(Contains(outcome.out, "none of this file's records were checked"));
  CHECK(Contains(outcome.out, "8 records in 3 files"));
  CHECK(RunData({"stats", folder.path()}).code == 1);
  std::filesystem::remove(bad);
  CheckDataError({"check", folder.path()}, 1, "train");
  // Compressed, and an archive that is called otherwise.
  WriteFile(folder / "x/some.tar", "\x1f\x8b\x08 more");
  outcome = RunData({"check", folder / "x/some.tar"});
  CHECK(outcome.code == 1);
  CHECK(Contains(outcome.out, "compressed"));
  CheckDataError({"check", folder / "x"}, 1, "or train-000000.tar; name files");
}

TEST_CASE("a folder of both kinds is checked, but not one data set") {
  std::mt19937 random(4);
  const TemporaryFolder folder;
  WriteTars(folder.path(), "train", TextsOf(RandomSamples(4, random)), 1);
  std::string file;
  AppendRecord(EncodeImageRecord({RandomPng(random), 3, {}, {}}).ValueOrThrow(),
               &file);
  WriteFile(folder / "val-00000-of-00001", file);
  CHECK(DataObject({"check", folder.path()})["records"] == 5);
  CheckDataError({"stats", folder.path()}, 1, "keep one of them");
}

TEST_CASE("parts of archives are found as records' are") {
  std::mt19937 random(5);
  const TemporaryFolder folder;
  WriteTars(folder.path(), "train", TextsOf(RandomSamples(5, random)), 1);
  const std::string val = folder / "my-val-00000-of-00001.tar";
  WriteFile(val, Text(0, RandomSamples(1, random)[0]) + TarEnd());
  const Json stats =
      DataObject({"stats", folder.path(), "--part", "validation"});
  CHECK(stats["part"] == "val");
  CHECK(stats["pictures"] == 1);
  CHECK(DataObject({"stats", folder.path()})["part"] == "train");
}

TEST_CASE("show prints the files of samples, of any endings") {
  std::mt19937 random(6);
  const TemporaryFolder folder;
  const std::string png =
      EncodePng(Tensor::Full(DType::kUInt8, {5, 7, 3}, 9)).ValueOrThrow();
  std::string tar = TarFile("README", "no sample") + TarFile("d/a.png", png) +
                    TarFile("d/a.cls", "7\n") +
                    TarFile("d/a.seg.npy", std::string("\x93NUMPY\0", 7)) +
                    TarFile("d/b.txt", "two words") + TarFile("d/b.empty", "");
  for (int i = 0; i < 4; ++i) tar += TarFile(fmt::format("d/{}.txt", i), "x\n");
  // By its name, by its bytes, in a folder.
  WriteFile(folder / "x.tar", tar + TarEnd());
  WriteFile(folder / "shard", tar + TarEnd());
  WriteFile(folder / "f/train-000000.tar", tar + TarEnd());
  for (const char* name : {"x.tar", "shard", "f"}) {
    const std::vector<Json> lines =
        Objects(RunData({"show", folder / name, "--json"}).out);
    REQUIRE(lines.size() == 3);
    CHECK(Contains(lines[0]["place"], "', sample 'd/a'"));
    const Json& files = lines[0]["files"];
    REQUIRE(files.size() == 3);
    CHECK(files[0] == Json{{"ending", "png"},
                           {"bytes", png.size()},
                           {"format", "PNG"},
                           {"height", 5},
                           {"width", 7}});
    CHECK(files[1] == Json{{"ending", "cls"}, {"bytes", 2}, {"text", "7"}});
    CHECK(files[2] == Json{{"ending", "seg.npy"}, {"bytes", 7}});
    CHECK(lines[1]["files"][0]["text"] == "two words");
    CHECK(lines[1]["files"][1]["bytes"] == 0);
    CHECK(lines[2]["sample"] == 2);
  }
  const std::string text =
      RunData({"show", folder / "shard", "--records", "1"}).out;
  CHECK(testing::Lines(text) == 5);
  CHECK(Contains(text, "sample 0: '"));
  CHECK(Contains(text, "  cls      '7'\n"));
  CHECK(Contains(text, "1 of 6 samples\n"));
  // What can be shown before the damage is.
  WriteFile(folder / "cut.tar", tar.substr(0, tar.size() - 700));
  const Outcome outcome = RunData({"show", folder / "cut.tar"});
  CHECK(outcome.code == 1);
  CHECK(Contains(outcome.out, "sample 1: "));
  CHECK(Contains(outcome.err, "cut.tar"));
}

}  // namespace
}  // namespace sluice

#endif
