// What may be signed is shown without its signature, and is the same when it is
// signed anew.
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/cli/recorded_flags.h"
#include "models/cli/results.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

constexpr char kSigned[] = "https://h/a.tar?signature=1";
constexpr char kAnew[] = "https://h/a.tar?signature=2#x";
constexpr char kOther[] = "https://h/b.tar?signature=3";

TrainerSpec SpecOfAddresses() {
  TrainerSpec spec;
  spec.name = "program";
  spec.flags = {
      {.name = "data", .help = "", .kind = Flag::Kind::kData},
      {.name = "names", .help = "", .kind = Flag::Kind::kPath},
      {.name = "read", .help = "", .value = "all", .of_data = true},
  };
  return spec;
}

CommandFlags FlagsOfCommand(const std::map<std::string, std::string>& given) {
  CommandFlags flags;
  flags.train = true;
  for (const char* name : {"data", "names", "read"}) flags.values[name];
  for (const auto& [name, value] : given) flags.Give(name, value);
  return flags;
}

// Of a training on what is signed, in a folder; then on what is given.
struct FromTraining {
  FlagValues values;
  std::vector<std::string> notes;
};
FromTraining Resumed(const std::string& log_dir,
                     const std::map<std::string, std::string>& given,
                     const std::string& names = kSigned) {
  const nlohmann::json record = {
      {"format", "sluice.run"},
      {"version", 1},
      {"program", "program"},
      {"sluice", "1"},
      {"model", "m"},
      {"flags", {{"data", kSigned}, {"names", names}, {"read", "half"}}}};
  std::ofstream(log_dir + "/run.json") << record;
  FromTraining from;
  from.values = FromRecord(log_dir, FlagsOfCommand(given), SpecOfAddresses(),
                           &from.notes);
  return from;
}

TEST_CASE("an address that is signed anew is no other") {
  const testing::TemporaryFolder folder;
  const FromTraining same =
      Resumed(folder.path(), {{"data", kAnew}, {"names", kAnew}});
  CHECK(same.notes.empty());
  // What says how to read the data is of the same.
  CHECK(same.values == FlagValues{{"read", "half"}});
}

TEST_CASE("no signature is in what is said of another address") {
  const testing::TemporaryFolder folder;
  const FromTraining other =
      Resumed(folder.path(), {{"data", kOther}, {"names", kOther}});
  std::vector<std::string> wanted;
  for (const char* name : {"data", "names"}) {
    wanted.push_back("--" + std::string(name) +
                     " is https://h/b.tar, the training in '" + folder.path() +
                     "' had https://h/a.tar");
  }
  CHECK(other.notes == wanted);
  CHECK(other.values.empty());
  // A name on a disk may have a question mark.
  const FromTraining file = Resumed(folder.path(), {{"names", "a?1"}}, "a?2");
  CHECK(file.notes ==
        std::vector<std::string>{"--names is a?1, the training in '" +
                                 folder.path() + "' had a?2"});
}

TEST_CASE("nor is it another than a model had") {
  const testing::TemporaryFolder folder;
  const nlohmann::json manifest = {{"format", "sluice.model"},
                                   {"version", 1},
                                   {"flags", {{"names", kSigned}}}};
  std::ofstream(folder / "model.json") << manifest;
  TrainerSpec spec = SpecOfAddresses();
  for (Flag& flag : spec.flags) flag.of_reading = true;
  const auto notes = [&](const std::string& given) {
    std::vector<std::string> told;
    FromExport(folder.path(), FlagsOfCommand({{"names", given}}), spec, &told);
    return told;
  };
  CHECK(notes(kSigned).empty());
  CHECK(notes(kAnew).empty());
  CHECK(notes(kOther) ==
        std::vector<std::string>{"--names is https://h/b.tar, the model in '" +
                                 folder.path() + "' had https://h/a.tar"});
}

TEST_CASE("no signature is in the name of a dataset") {
  RunContext run;
  TrainerSpec spec;
  run.data_dir = kSigned;
  CHECK(DatasetName(spec, run) == "https://h/a.tar");
  spec.dataset_name = [](const RunContext&) { return std::string(kOther); };
  CHECK(DatasetName(spec, run) == "https://h/b.tar");
}

}  // namespace
}  // namespace sluice
