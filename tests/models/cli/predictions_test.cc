// Predictions as JSON and as CSV say the same, also of folders, of classes with
// odd names and of files that cannot be read.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "io/files/csv.h"
#include "tests/support/error_text.h"
#include "tests/support/last_object.h"
#include "tests/support/mnist_program.h"
#include "tests/support/resnet50_program.h"

#if SLUICE_HAVE_PNG

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::Contains;
using testing::Objects;
using testing::Outcome;
using testing::RunResNet50;
using testing::TemporaryFolder;
using testing::WritePicture;

void CheckSame(const std::vector<Json>& objects, const std::string& csv) {
  const std::vector<CsvRow> rows = ParseCsv(csv, "stdout").ValueOrThrow();
  size_t row = 0;
  REQUIRE(!rows.empty());
  CHECK(rows[row++].text == "file,rank,class,name,probability,error");
  for (const Json& object : objects) {
    const std::string source = object.contains("file")
                                   ? object["file"].get<std::string>()
                                   : object["index"].dump();
    if (object.contains("error")) {
      REQUIRE(row < rows.size());
      CHECK(rows[row].fields ==
            std::vector<std::string>{source, "", "", "", "", object["error"]});
      ++row;
      continue;
    }
    int rank = 0;
    for (const Json& entry : object["top"]) {
      REQUIRE(row < rows.size());
      const auto& fields = rows[row++].fields;
      REQUIRE(fields.size() == 6);
      CHECK(fields[0] == source);
      CHECK(fields[1] == std::to_string(++rank));
      CHECK(fields[2] == entry["class"].dump());
      CHECK(fields[3] == entry.value("name", ""));
      CHECK(std::stod(fields[4]) ==
            doctest::Approx(entry["probability"].get<double>()));
      CHECK(fields[5] == "");
    }
  }
  CHECK(row == rows.size());
}

TEST_CASE("folders, odd names and bad files, as JSON and as CSV") {
  TemporaryFolder folder;
  const std::string data = folder / "data", log = folder / "log";
  const char* const classes[] = {"cats, big", "\"dogs\"", "plain"};
  for (const char* name : classes) {
    fs::create_directories(data + "/" + name);
    for (int i = 0; i < 4; ++i) {
      WritePicture(fmt::format("{}/{}/{}.png", data, name, i), 20 + i, 30);
    }
  }
  REQUIRE(RunResNet50({"train", "--data", data, "--model", "resnet20",
                       "--steps", "2", "--batch-size", "4", "--log-dir", log})
              .code == 0);
  std::ofstream(data + "/plain/a, b.png") << "no picture";
  std::ofstream(data + "/plain/._0.png") << "no picture either";
  fs::create_directory_symlink(data, data + "/plain/loop");

  const auto predict = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"predict", "--log-dir", log};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunResNet50(arguments);
  };
  const std::string one = data + "/plain/3.png";
  const Outcome json = predict({"--json", data, one});
  const std::vector<Json> objects = Objects(json.out);
  CHECK(json.code == 1);
  REQUIRE(objects.size() == 14);  // 12, a bad one, and one again
  std::vector<std::string> files;
  for (const Json& object : objects) files.push_back(object["file"]);
  CHECK(std::is_sorted(files.begin(), files.end() - 1));
  CHECK(files.back() == one);
  CHECK(objects[0]["top"].size() == 3);

  const Outcome csv = predict({"--csv", data, one});
  CHECK(csv.code == 1);
  CheckSame(objects, csv.out);

  fs::create_directory(folder / "empty");
  const Outcome none = predict({folder / "empty"});
  CHECK(none.code == 1);
  CHECK(Contains(none.out, "/empty\n  cannot be read"));
}

TEST_CASE("of the test data, by their numbers") {
  TemporaryFolder folder;
  const std::string log = folder / "log";
  REQUIRE(testing::RunMnist(
              testing::OnMnist("train", {"--steps", "3", "--log-dir", log}))
              .code == 0);
  const Outcome csv =
      testing::RunMnist({"predict", "--log-dir", log, "--csv", "--count", "7"});
  CHECK(csv.code == 0);
  const auto rows = ParseCsv(csv.out, "stdout").ValueOrThrow();
  REQUIRE(rows.size() == 1 + 7 * 5);
  CHECK(rows[1].fields[0] == "0");
  CHECK(rows.back().fields[0] == "6");
  CHECK(rows.back().fields[1] == "5");
}

}  // namespace
}  // namespace sluice

#endif
