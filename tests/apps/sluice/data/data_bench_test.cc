// `sluice data bench` from outside: which stages it measures, on what, and that
// it says what is wrong. How fast anything is, is no matter of tests.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <random>

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
using testing::Outcome;
using testing::RunData;
using testing::TemporaryFolder;
using testing::WriteFile;

// Pictures in folders, the same in records and in an archive.
void WriteAll(const TemporaryFolder& folder, int n) {
  std::mt19937 random(1);
  std::string tar;
  for (int i = 0; i < n; ++i) {
    const std::string picture =
        i % 2 == 0 ? testing::RandomJpeg(random) : testing::RandomPng(random);
    const char* ending = i % 2 == 0 ? "jpg" : "png";
    WriteFile(fmt::format("{}/{}/{}.{}", folder / "pictures", i % 2, i, ending),
              picture);
    tar += testing::TarFile(fmt::format("{}.{}", i, ending), picture);
  }
  WriteFile(folder / "tars/train-000000.tar", tar + testing::TarEnd());
  REQUIRE(RunData({"make", folder / "pictures", folder / "records"}).code == 0);
}

TEST_CASE("each stage is measured, of records, archives and folders") {
  const TemporaryFolder folder;
  WriteAll(folder, 7);
  const Strings in_shards = {"read", "parse", "decode", "crop", "batch"};
  const Strings in_files = {"read", "decode", "crop", "batch"};
  const std::vector<std::pair<std::string, Strings>> cases = {
      {folder / "records", in_shards},
      {folder / "records/train-00000-of-00001", in_shards},
      {folder / "tars", in_shards},  // without labels
      {folder / "tars/train-000000.tar", in_shards},
      {folder / "pictures", in_files},
  };
  for (const auto& [path, stages] : cases) {
    CAPTURE(path);
    // A batch of more pictures than there are takes some again.
    const Outcome outcome =
        RunData({"bench", path, "--seconds", "0.05", "--size", "16",
                 "--batch-size", "9", "--threads", "2", "--json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    Strings found;
    for (const Json& stage : testing::Objects(outcome.out)) {
      found.push_back(stage["stage"]);
      const auto rate = stage["pictures_per_second"].get<double>();
      CHECK(rate > 0);
      CHECK(stage["least"].get<double>() <= rate);
      CHECK(stage["most"].get<double>() >= rate);
      CHECK(stage["megabytes_per_second"].get<double>() ==
            doctest::Approx(rate * stage["bytes"].get<double>() / 7e6));
      CHECK(stage["pictures"] == 7);
      CHECK(stage["threads"] == 2);
      CHECK(stage["size"] == 16);
      CHECK(stage["batch"] == 9);
    }
    CHECK(found == stages);
  }
  const Outcome table = RunData(
      {"bench", folder / "records", "--seconds", "0.05", "--batch-size", "2"});
  CHECK(table.code == 0);
  CHECK(testing::Lines(table.out) == 7);
  CHECK(Contains(table.out, "records': 7 pictures, "));
}

TEST_CASE("what cannot be read ends it") {
  const TemporaryFolder folder;
  WriteAll(folder, 4);
  const Strings end = {"--seconds", "0.05", "--batch-size", "2"};
  const auto error = [&](const std::string& path, const std::string& part) {
    Strings arguments = {"bench", path};
    arguments.insert(arguments.end(), end.begin(), end.end());
    CheckDataError(arguments, 1, part);
  };
  WriteFile(folder / "pictures/0/bad.jpg", "no picture");
  error(folder / "pictures", "bad.jpg");
  std::string bytes = testing::TextOf(folder / "records/train-00000-of-00001");
  bytes[100] ^= 1;
  WriteFile(folder / "records/train-00000-of-00001", bytes);
  error(folder / "records", "train-00000-of-00001', byte 0");
  std::filesystem::create_directory(folder / "none");
  error(folder / "none", "no pictures in");
  error(folder / "nowhere", "nowhere");
  CheckDataError({"bench", folder / "tars", "--part", "test"}, 1, "test");
  CheckDataError({"bench", folder / "tars", "--seconds", "0"}, 2, "--seconds");
  CheckDataError({"bench", folder / "tars", "--size", "0"}, 2, "--size");
  CheckDataError({"bench", folder / "tars", "--size", "032"}, 2,
                 "wanted a decimal number, got '032'");
  CheckDataError({"bench"}, 2, "where");
}

}  // namespace
}  // namespace sluice

#endif
