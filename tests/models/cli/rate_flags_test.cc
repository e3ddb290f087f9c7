// Flags of a program's learning rate, beside --optimizer and --learning-rate:
// none that is given does nothing.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "models/cli/command_line.h"
#include "tests/support/error_text.h"
#include "tests/support/stderr_text.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

// Of `train`: "" where all is well, "kept" where --optimizer has the program's
// rate, else the error.
std::string Parse(const Words& words) {
  TrainerSpec spec = testing::ToySpec();
  spec.flags = {{.name = "high", .help = "", .rate = Flag::Rate::kHeight},
                {.name = "course",
                 .help = "",
                 .value = "falling",
                 .rate = Flag::Rate::kCourse},
                {.name = "other", .help = ""}};
  std::vector<const char*> arguments = {"toy", "train"};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  ParsedCommandLine parsed;
  const std::string error = testing::StderrOf([&] {
    parsed = ParseCommandLine(static_cast<int>(arguments.size()),
                              arguments.data(), spec);
  });
  CAPTURE(error);
  CHECK(parsed.exit_code.value_or(2) == 2);
  if (parsed.exit_code) return error;
  CHECK(error == "");
  return parsed.line.optimizing.keeps_rate ? "kept" : "";
}

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Words kRate = {"--learning-rate", "0.1"}, kLars = {"--optimizer", "lars"},
            kHigh = {"--high", "2"}, kFlat = {"--course", "flat"};

constexpr char kOfRate[] = "which --learning-rate takes the place of";
constexpr char kNeedsHigh[] =
    "--course is of the program's learning rate: beside --optimizer, which has "
    "one of its own, give --high, too";

TEST_CASE("flags that are given") {
  CHECK(Parse({}) == "");
  CHECK(Parse(kHigh + kFlat) == "");
  CHECK(Parse(kRate) == "");
  CHECK(Parse(kLars) == "");
  CHECK(Parse(kLars + kRate) == "");
  CHECK(Parse(kLars + Words{"--other", "1"}) == "");
  CHECK(Parse(kLars + kHigh) == "kept");
  CHECK(Parse(kLars + kHigh + kFlat) == "kept");
  CHECK(Contains(Parse(kLars + kFlat), kNeedsHigh));
  // The default, too, is meant by who gives it.
  CHECK(Contains(Parse(kLars + Words{"--course", "falling"}), kNeedsHigh));
  CHECK(Contains(Parse(kRate + kHigh), "--high is of"));
  CHECK(Contains(Parse(kRate + kHigh), kOfRate));
  CHECK(Contains(Parse(kRate + kFlat), kOfRate));
  CHECK(Contains(Parse(kLars + kRate + kHigh), kOfRate));
}

TEST_CASE("flags of a file, and of the record of a training") {
  const TemporaryFolder folder;
  const std::string flags = folder / "flags.json", log = folder / "log";
  const std::string record = log + "/run.json";
  std::filesystem::create_directory(log);
  const auto write = [&](const std::string& values) {
    std::ofstream(flags) << "{" << values << "}";
    std::ofstream(record) << R"({"format": "sluice.run", "version": 1,
      "program": "toy", "sluice": "0", "model": "toy", "flags": {)"
                          << values << "}}";
  };
  const Words by_file = {"--config", flags}, by_record = {"--config", record},
              resumed = {"--log-dir", log};

  write(R"("optimizer": "lars", "course": "falling")");
  CHECK(Contains(Parse(by_file), kNeedsHigh));
  for (const Words& from : {by_record, resumed}) {
    CHECK(Parse(from) == "");
    CHECK(Parse(from + kHigh) == "kept");
    CHECK(Contains(Parse(from + kFlat), kNeedsHigh));
    CHECK(Parse(from + kRate) == "");
  }
  write(R"("learning-rate": "0.1", "course": "falling")");
  CHECK(Contains(Parse(by_file), kOfRate));
  for (const Words& from : {by_record, resumed}) {
    CHECK(Parse(from) == "");
    CHECK(Contains(Parse(from + kHigh), kOfRate));
  }
  write(R"("high": "2", "course": "flat")");
  CHECK(Contains(Parse(by_file + kRate), kOfRate));
  for (const Words& from : {by_record, resumed}) {
    CHECK(Parse(from + kRate) == "");  // in the place of the training's
    CHECK(Parse(from + kLars) == "kept");
  }
  write(R"("course": "flat")");
  for (const Words& from : {by_record, resumed}) {
    CHECK(Contains(Parse(from + kLars), kNeedsHigh));
  }
  write(R"("optimizer": "lars", "high": "2", "course": "falling")");
  for (const Words& from : {by_file, by_record, resumed}) {
    CHECK(Parse(from) == "kept");
  }
}

}  // namespace
}  // namespace sluice
