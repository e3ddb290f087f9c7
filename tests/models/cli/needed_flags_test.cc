// Flags that need another one, and paths that are yet to come: wherever the
// other one comes from, and wherever they are read again.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "models/cli/command_line.h"
#include "tests/support/error_text.h"
#include "tests/support/stderr_text.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::TemporaryFolder;

struct ReadWords {
  ParsedCommandLine parsed;
  std::string error;
};

ReadWords ReadOf(const std::vector<std::string>& words) {
  TrainerSpec spec = testing::ToySpec();
  spec.flags = {
      {.name = "source", .help = "", .kind = Flag::Kind::kData},
      {.name = "cache",
       .help = "",
       .choices = {"memory"},
       .kind = Flag::Kind::kPath},
  };
  std::vector<const char*> arguments = {"toy"};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  ReadWords read;
  read.error = testing::StderrOf([&] {
    read.parsed = ParseCommandLine(static_cast<int>(arguments.size()),
                                   arguments.data(), spec);
  });
  return read;
}

void CheckNeeds(const std::vector<std::string>& words,
                const std::string& message) {
  const ReadWords read = ReadOf(words);
  CAPTURE(read.error);
  CHECK(read.parsed.exit_code == 2);
  CHECK(Contains(read.error, message));
}

TEST_CASE("what a flag needs may come from a file or a training's record") {
  const TemporaryFolder folder;
  const std::string flags = folder / "flags.json", log = folder / "log";
  fs::create_directory(log);
  std::ofstream(flags) << R"({"plateau": 2, "log-dir": ")" << log << "\"}";
  std::ofstream(log + "/run.json")
      << R"({"format": "sluice.run", "version": 1, "program": "toy",)"
      << R"( "sluice": "0", "model": "toy", "flags": {"plateau": "3"}})";

  const auto plateau = [](const std::vector<std::string>& words) {
    const ReadWords read = ReadOf(words);
    CAPTURE(read.error);
    REQUIRE_FALSE(read.parsed.exit_code.has_value());
    CHECK(read.parsed.line.optimizing.plateau_factor == 0.5);
    return read.parsed.line.optimizing.plateau;
  };
  CHECK(plateau({"train", "--config", flags, "--plateau-factor", "0.5"}) == 2);
  CHECK(plateau({"train", "--log-dir", log, "--plateau-factor", "0.5"}) == 3);
  CheckNeeds({"train", "--plateau-factor", "0.5"},
             "--plateau-factor needs --plateau");

  const ReadWords follow = ReadOf({"eval", "--follow", "--config", flags});
  CAPTURE(follow.error);
  REQUIRE_FALSE(follow.parsed.exit_code.has_value());
  CHECK(follow.parsed.line.follow);
  CHECK(follow.parsed.line.training.log_dir == log);
  CheckNeeds({"eval", "--follow"}, "--follow needs --log-dir");
  CheckNeeds({"train", "--reset", "a"}, "--reset needs --weights");
}

TEST_CASE("a path is recorded as absolute before there is anything") {
  const auto recorded = [](const std::string& flag, const std::string& value) {
    const ReadWords read = ReadOf({"train", "--" + flag, value});
    CAPTURE(read.error);
    REQUIRE_FALSE(read.parsed.exit_code.has_value());
    return read.parsed.line.record.flags.at(flag);
  };
  const std::string folder = "no such folder/cache";
  CHECK(recorded("cache", folder) == (fs::current_path() / folder).string());
  for (const std::string& other : {"/" + folder, "s3://b/" + folder,
                                   std::string("memory"), std::string()}) {
    CAPTURE(other);
    CHECK(recorded("cache", other) == other);
  }
  // It may be a word of the program's.
  CHECK(recorded("source", folder) == folder);
}

}  // namespace
}  // namespace sluice
