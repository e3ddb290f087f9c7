// `sluice speedup` from outside, on folders of trainings made up and real.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <string>
#include <vector>

#include "models/train/hooks/scalar_log.h"
#include "tests/places.h"
#include "tests/support/error_text.h"
#include "tests/support/last_object.h"
#include "tests/support/mnist_program.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::CheckError;
using testing::Contains;
using testing::Outcome;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

Outcome Speedup(Words arguments) {
  arguments.insert(arguments.begin(), "speedup");
  return testing::RunProgram(SLUICE_BIN_DIR "/sluice", arguments);
}

// A training's folder with these rates of steps `every`, twice that, ...
std::string Add(const TemporaryFolder& folder, const std::string& name,
                const std::string& who, const std::vector<double>& rates,
                int64_t every = 20) {
  std::string log_dir = folder / name;
  const auto log = ScalarLog::Open(log_dir, 0, true).ValueOrThrow();
  int64_t step = 0;
  for (const double rate : rates) {
    step += every;
    for (const ScalarRow& row :
         {ScalarRow{1, step, "train", "loss", 7},
          ScalarRow{1, step, "train", "examples_per_second", rate},
          ScalarRow{1, step, "eval", "examples_per_second", 9999}}) {
      ThrowIfError(log->Add(row));
    }
  }
  ThrowIfError(log->Flush());
  std::ofstream(log_dir + "/run.json") << who;
  return log_dir;
}

std::string Who(int nodes, int workers) {
  return fmt::format(R"({{"nodes": {}, "workers": {}}})", nodes, workers);
}

TEST_CASE("rows are medians of runs after 100 steps, beside the fewest") {
  const TemporaryFolder folder;
  // The first five are warming up.
  const std::vector<double> warm = {1, 2, 3, 4, 5};
  const auto with = [&](std::vector<double> rates) {
    rates.insert(rates.begin(), warm.begin(), warm.end());
    return rates;
  };
  const Words all = {
      Add(folder, "four", Who(2, 4), with({300, 320, 310})),
      Add(folder, "one-a", Who(1, 1), with({100, 90, 110})),
      Add(folder, "one-b", Who(1, 1), with({80})),
      Add(folder, "one-c", Who(1, 1), with({500, 120})),
      Add(folder, "two", Who(1, 2), with({190, 200, 170, 1000}))};
  const Outcome outcome = Speedup(all);
  CHECK(outcome.code == 0);
  CHECK(outcome.out ==
        "nodes workers runs   examples/s speed-up     per node\n"
        "    1       1    3        100.0     1.00        100.0\n"
        "    1       2    1        195.0     1.95        195.0\n"
        "    2       4    1        310.0     3.10        155.0\n");
  // A folder in other words is no other run.
  Words repeated = all;
  repeated.insert(repeated.end(), {all[1] + "/", folder / "two/../one-c"});
  CHECK(Speedup(repeated).out == outcome.out);
  // Without a run of one process the fewest stand for it.
  const Outcome json = Speedup({all[0], all[4], "--json"});
  CHECK(testing::Lines(json.out) == 2);
  const auto last = testing::LastObject(json.out);
  CHECK(last["workers"] == 4);
  CHECK(last["speedup"].get<double>() == doctest::Approx(310 / 97.5));
}

// That of step 150 is of the first 100, too.
TEST_CASE("a row counts where all of its steps are after the 100th") {
  const TemporaryFolder folder;
  const std::string seldom =
      Add(folder, "seldom", Who(1, 1), {900, 100, 120, 110}, 150);
  const Outcome outcome = Speedup({seldom, "--json"});
  CHECK(outcome.code == 0);
  CHECK(testing::LastObject(outcome.out)["examples_per_second"] == 110);
  CheckError(Speedup({Add(folder, "once", Who(1, 1), {900}, 150)}), "sluice", 1,
             "no examples/s of a step after the 100th");
}

TEST_CASE("devices of one process are no devices of several") {
  const TemporaryFolder folder;
  const std::vector<double> warm(5, 1);
  const auto add = [&](const std::string& name, int workers, int devices,
                       double rate) {
    std::vector<double> rates = warm;
    rates.insert(rates.end(), {rate, rate});
    return Add(
        folder, name,
        fmt::format(
            R"({{"nodes": 1, "workers": {}, "devices": {}, "since": 0}})",
            workers, devices),
        rates);
  };
  const Words all = {add("four", 2, 4, 360), add("mirrored", 1, 2, 180),
                     add("alone", 1, 1, 100), add("two", 2, 2, 190)};
  const Outcome outcome = Speedup(all);
  CHECK(outcome.code == 0);
  CHECK(outcome.out ==
        "nodes workers devices runs   examples/s speed-up     per node\n"
        "    1       1       1    1        100.0     1.00        100.0\n"
        "    1       1       2    1        180.0     1.80        180.0\n"
        "    1       2       2    1        190.0     1.90        190.0\n"
        "    1       2       4    1        360.0     3.60        360.0\n");
  // The fewest devices stand for one.
  const auto last =
      testing::LastObject(Speedup({all[0], all[1], "--json"}).out);
  CHECK(last["devices"] == 4);
  CHECK(last["workers"] == 2);
  CHECK(last["speedup"].get<double>() == doctest::Approx(4));
}

TEST_CASE("what others trained before does not count") {
  const TemporaryFolder folder;
  const auto since = [](int64_t step) {
    return fmt::format(R"({{"nodes": 1, "workers": 2, "since": {}}})", step);
  };
  // Steps 20 to 200 alone, to 300 warm-up, 320 to 360 as it is.
  std::vector<double> rates(10, 100);
  rates.insert(rates.end(), 5, 50);
  rates.insert(rates.end(), {190, 200, 210});
  const Outcome outcome =
      Speedup({Add(folder, "log", since(200), rates), "--json"});
  CHECK(testing::LastObject(outcome.out)["examples_per_second"] == 200);
  CheckError(Speedup({Add(folder, "short", since(280), rates)}), "sluice", 1,
             "no examples/s of a step after the 380th");
  CheckError(Speedup({Add(folder, "bad", since(-1), rates)}), "sluice", 1,
             "since step -1");
}

TEST_CASE("folders that do not say enough are one line") {
  const TemporaryFolder folder;
  CheckError(Speedup({folder / "none"}), "sluice", 1, "none");
  CheckError(Speedup({Add(folder, "short", Who(1, 1), {1, 2, 3})}), "sluice", 1,
             "no examples/s of a step after the 100th");
  const std::vector<double> many(10, 5);
  CheckError(Speedup({Add(folder, "old", "{}", many)}), "sluice", 1,
             "run.json'");
  CheckError(Speedup({Add(folder, "bad", "x", many)}), "sluice", 1,
             "run.json'");
  CheckError(Speedup({Add(folder, "odd", Who(3, 2), many)}), "sluice", 1,
             "2 workers on 3 nodes");
}

TEST_CASE("no number is taken for another that fits") {
  const TemporaryFolder folder;
  const std::vector<double> many(10, 5);
  const Outcome outcome =
      Speedup({Add(folder, "huge", R"({"nodes":1,"workers":4294967298})", many),
               "--json"});
  CHECK(testing::LastObject(outcome.out)["workers"] == 4294967298);
}

TEST_CASE("a training says how many it was of") {
  const TemporaryFolder folder;
  Words logs;
  for (const int size : {1, 2}) {
    logs.push_back(folder / std::to_string(size));
    Words words = {"-n", std::to_string(size), testing::kMnist};
    for (const std::string& word :
         testing::OnMnist("train", {"--epochs", "15", "--log-every", "10",
                                    "--log-dir", logs.back()})) {
      words.push_back(word);
    }
    REQUIRE(testing::RunProgram(SLUICE_BIN_DIR "/sluicerun", words).code == 0);
  }
  const Outcome outcome = Speedup(logs);
  CHECK(outcome.code == 0);
  CHECK(Contains(outcome.out, "\n    1       1    1 "));
  CHECK(Contains(outcome.out, "\n    1       2    1 "));
}

TEST_CASE("a training says by how many devices, and since when") {
  const TemporaryFolder folder;
  const auto train = [&](Words words, const Words& more, const Words& flags) {
    words.push_back(testing::kMnist);
    for (const std::string& word : testing::OnMnist("train", flags)) {
      words.push_back(word);
    }
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome =
        testing::RunProgram(SLUICE_BIN_DIR "/sluicerun", words);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  };
  const auto record = [](const std::string& log) {
    return nlohmann::json::parse(testing::TextOf(log + "/run.json"));
  };
  const Words two = {"--strategy", "mirrored", "--devices", "/cpu:0,/cpu:1"};
  const std::string mirrored = folder / "mirrored";
  train({"-n", "1"}, two, {"--steps", "2", "--log-dir", mirrored});
  CHECK(record(mirrored)["workers"] == 1);
  CHECK(record(mirrored)["devices"] == 2);
  CHECK(record(mirrored)["since"] == 0);

  const std::string log = folder / "log";
  const auto on = [&](const char* processes, const char* steps) {
    train({"-n", processes}, {},
          {"--steps", "90", "--max-steps", steps, "--log-dir", log});
    return record(log)["since"];
  };
  CHECK(on("1", "20") == 0);
  CHECK(on("1", "40") == 0);
  CHECK(on("2", "60") == 40);
  CHECK(on("2", "70") == 40);
  CHECK(record(log)["devices"] == 2);
  CHECK(on("1", "80") == 70);
  // Of a record that does not say it nothing is known of before.
  auto old = record(log);
  old.erase("since");
  std::ofstream(log + "/run.json") << old;
  CHECK(on("1", "90") == 80);
}

}  // namespace
}  // namespace sluice
