// Predictions as JSON and as CSV say the same, also of folders, of classes with
// odd names and of files that cannot be read.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "io/files/csv.h"
#include "models/cli/predictions.h"
#include "tests/support/error_text.h"
#include "tests/support/last_object.h"
#include "tests/support/mnist_program.h"
#include "tests/support/resnet50_program.h"
#include "tests/support/stderr_text.h"

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

  // CLI11 would take what is in brackets for a list.
  for (const char* name : {"[x]", "x"}) fs::create_directory(folder / name);
  WritePicture(folder / "[x]/0.png", 20, 30);
  WritePicture(folder / "x/1.png", 30, 20);
  const std::vector<Json> wanted =
      Objects(predict({"--json", folder / "[x]"}).out);
  REQUIRE(wanted.size() == 1);
  for (const char* words : {"'[x]'", "-- '[x]'"}) {
    CAPTURE(words);
    const Outcome here = testing::RunProgram(
        "/bin/sh",
        {"-c", fmt::format("cd '{}' && {}/resnet50 predict --log-dir log "
                           "--json {}",
                           folder.path(), SLUICE_BIN_DIR, words)});
    CAPTURE(here.err);
    const std::vector<Json> got = Objects(here.out);
    REQUIRE(got.size() == 1);
    CHECK(got[0]["file"] == "./[x]/0.png");
    CHECK(got[0]["top"] == wanted[0]["top"]);
  }

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

// What is printed of one example with these probabilities.
std::string Printed(const std::vector<float>& values,
                    PredictionOptions options) {
  Tensor row(DType::kFloat32, {1, static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), row.data<float>());
  return testing::StdoutOf([&] {
    PredictionPrinter(std::move(options)).Print({{"probabilities", row}});
  });
}

// As JSON says them, however many digits they have.
TEST_CASE("whole numbers are printed whole") {
  for (const int64_t whole :
       {int64_t{7}, int64_t{12346}, int64_t{-20231105}, (int64_t{1} << 53) + 1,
        std::numeric_limits<int64_t>::max()}) {
    const Example one = {{"class", Tensor::Array<int64_t>({1}, {whole})}};
    CHECK(testing::StdoutOf([&] { PredictionPrinter({}).Print(one); }) ==
          fmt::format("0: class {}\n", whole));
    const std::string json = testing::StdoutOf(
        [&] { PredictionPrinter({.json = true}).Print(one); });
    CHECK(Objects(json)[0]["class"] == whole);
  }
  const Example row = {
      {"counts", Tensor::Array<int32_t>({1, 3}, {1, 70000, 2})}};
  CHECK(testing::StdoutOf([&] { PredictionPrinter({}).Print(row); }) ==
        "0: counts 1 (70000)\n");
}

TEST_CASE("a row without elements is an empty list") {
  const Example none = {{"boxes", Tensor(DType::kFloat32, {2, 0})},
                        {"ids", Tensor(DType::kInt64, {2, 0, 4})}};
  CHECK(testing::StdoutOf([&] { PredictionPrinter({}).Print(none); }) ==
        "0: boxes [] ids []\n1: boxes [] ids []\n");
  const std::string json =
      testing::StdoutOf([&] { PredictionPrinter({.json = true}).Print(none); });
  CHECK(Objects(json)[1]["boxes"] == Json::array());
}

TEST_CASE("what is no number is the least probable") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto top = [](const std::vector<float>& values) {
    std::vector<int> classes;
    const std::string csv = Printed(values, {.csv = true});
    for (const CsvRow& row : ParseCsv(csv, "stdout").ValueOrThrow()) {
      if (row.fields[0] != "file") classes.push_back(std::stoi(row.fields[2]));
    }
    return classes;
  };
  CHECK(top({kNan, 0.2f, kNan, 0.5f, 0.3f, kNan, 0.1f}) ==
        std::vector<int>{3, 4, 1, 6, 0});
  CHECK(top({0.2f, kNan, 0.2f}) == std::vector<int>{0, 2, 1});
  CHECK(top(std::vector<float>(7, kNan)) == std::vector<int>{0, 1, 2, 3, 4});
  // Of many, as many as make a sort by no order read beyond its end.
  std::vector<float> many(1000);
  for (size_t i = 0; i < many.size(); ++i) {
    many[i] = i % 3 ? kNan : static_cast<float>(i);
  }
  CHECK(top(many) == std::vector<int>{999, 996, 993, 990, 987});

  CHECK(Printed({kNan, 0.25f, 0.75f}, {}) == "0: probabilities 2 (0.7500)\n");
  CHECK(Printed({0.25f, kNan}, {}) == "0: probabilities 0 (0.2500)\n");
  CHECK(Printed({kNan, kNan}, {}) == "0: probabilities nan\n");
  CHECK(Printed({kNan}, {}) == "0: probabilities nan\n");
  CHECK(Contains(Printed({kNan, 0.5f}, {.files = {"a.png"}}),
                 "a.png\n  0.5000     1\n  nan     0"));
}

// In whatever order they come: a model that was exported has its own.
TEST_CASE("of several exports that of the name are the probabilities") {
  const Tensor probabilities = Tensor::Array<float>({1, 2}, {0.25f, 0.75f});
  const Tensor logits = Tensor::Array<float>({1, 2}, {9, -9});
  const auto printed = [](const Example& exports) {
    return testing::StdoutOf(
        [&] { PredictionPrinter({.files = {"a.png"}}).Print(exports); });
  };
  const std::string wanted = printed({{"p", probabilities}});
  CHECK(Contains(wanted, "0.7500     1"));
  CHECK(printed({{"logits", logits}, {"probabilities", probabilities}}) ==
        wanted);
  CHECK(printed({{"probabilities", probabilities}, {"logits", logits}}) ==
        wanted);
  CHECK(Contains(
      testing::ErrorOf([&] {
        printed({{"a", logits}, {"b", logits}});
      }),
      "exports 'a', 'b' [n, classes] and none of them as 'probabilities'"));
}

}  // namespace
}  // namespace sluice

#endif
