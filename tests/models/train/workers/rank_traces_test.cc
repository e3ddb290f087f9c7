#include "models/train/workers/rank_traces.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/runtime/trace.h"
#include "models/train/hooks/hooks.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/worker_threads.h"

namespace sluice {
namespace {

using nlohmann::json;

TEST_CASE("how far ahead clocks are is known within bounds") {
  const dist::testing::Watchdog watchdog;
  std::mt19937_64 random(1);
  for (const int size : {2, 3, 5}) {
    const auto groups = dist::testing::JoinAll(size, {});
    std::vector<int64_t> ahead = {0};
    while (std::ssize(ahead) < size) {
      ahead.push_back(static_cast<int64_t>(random() % 2'000'000'000'000) -
                      1'000'000'000'000);
    }
    std::vector<ClockShift> found(static_cast<size_t>(size));
    dist::testing::InThreads(size, [&](int rank) {
      const auto i = static_cast<size_t>(rank);
      found[i] = ShiftFromFirst(Workers(groups[i].get()),
                                [&] { return SteadyNowNs() + ahead[i]; });
    });
    for (size_t i = 0; i < ahead.size(); ++i) {
      CAPTURE(ahead[i]);
      CHECK(std::abs(found[i].ahead - ahead[i]) <= found[i].within);
      // A bound that says something: an exchange is no second.
      CHECK(found[i].within < 1'000'000'000);
    }
  }
}

TEST_CASE("a merged trace has every piece, by one clock, in rows of its own") {
  std::mt19937 random(2);
  std::vector<std::string> traces;
  std::vector<int64_t> ahead;
  std::multiset<std::pair<std::string, double>> wanted;
  for (int rank = 0; rank < 3; ++rank) {
    ChromeTrace trace;
    ahead.push_back(rank * 1'000'000);
    for (int i = 0; i < 20; ++i) {
      const std::string process = fmt::format("p{}", random() % 3);
      const auto begin = static_cast<int64_t>(random() % 1'000'000) * 1000;
      trace.AddSpan(process, fmt::format("row {}", random() % 2), "x",
                    begin + ahead.back(), begin + ahead.back() + 5000);
      wanted.emplace(fmt::format("rank {} {}", rank, process),
                     static_cast<double>(begin) / 1e3);
    }
    traces.push_back(trace.ToJson());
  }
  const json merged = json::parse(MergedTrace(traces, ahead));
  std::map<int, std::string> names;
  for (const json& event : merged["traceEvents"]) {
    if (event["name"] != "process_name") continue;
    CHECK(names.emplace(event["pid"], event["args"]["name"]).second);
  }
  std::multiset<std::pair<std::string, double>> got;
  std::map<int, int> process_of_row;
  for (const json& event : merged["traceEvents"]) {
    if (event["ph"] != "X") continue;
    got.emplace(names[event["pid"]], event["ts"].get<double>());
    const int process = event["pid"];
    CHECK(process_of_row.emplace(event["tid"], process).first->second ==
          process);
  }
  CHECK(got == wanted);
  CHECK(testing::Contains(testing::ErrorOf([&] {
                            (void)MergedTrace({traces[0], "{}"}, {0, 0});
                          }),
                          "the trace of rank 1 is none"));
}

class Notes : public Reporter {
 public:
  void Note(std::string_view line) override { text += line; }
  std::string text;
};

// Nobody has a result before everybody has begun.
TEST_CASE("a profile of several workers has what all of them did") {
  const testing::TemporaryFolder folder;
  Notes notes;
  testing::Task task;
  task.spec = [](int) { return testing::PlainSpec(); };
  task.run = testing::ToyRun(1);
  task.options = [&](int rank) {
    TrainingOptions options;
    if (rank == 0) options.reporter = &notes;
    return options;
  };
  task.add_hooks = [&](Trainer& trainer) {
    trainer.AddHook(std::make_unique<Profile>(2, 4, folder / "trace.json"));
  };
  for (const testing::Trained& trained : testing::TrainWith(3, task)) {
    REQUIRE(trained.error == "");
  }
  const std::string said = "clocks within ";
  REQUIRE(testing::Contains(notes.text, said));
  const double within =  // microseconds
      2 * std::stod(notes.text.substr(notes.text.find(said) + said.size()));

  std::ifstream file(folder / "trace.json");
  const json events = json::parse(file)["traceEvents"];
  std::map<int, int> rank_of;  // by process
  for (const json& event : events) {
    if (event["name"] != "process_name") continue;
    const std::string name = event["args"]["name"];
    if (name.ends_with("cpu:0")) rank_of[event["pid"]] = name.at(5) - '0';
  }
  REQUIRE(rank_of.size() == 3);
  // By node and rank, of each step in order.
  std::map<std::string, std::map<int, std::vector<double>>> begun, ended;
  for (const json& event : events) {
    const std::string op = event["name"];
    const bool wait = op == "CollectiveWait";
    if (!wait && op != "AllReduceStart") continue;
    std::string node = event["args"]["node"];
    const int rank = rank_of.at(event["pid"]);
    const double begin = event["ts"], duration = event["dur"];
    if (wait) {
      ended[node][rank].push_back(begin + duration);
    } else {
      node.resize(node.rfind("/start"));
      begun[node][rank].push_back(begin);
    }
  }
  REQUIRE(begun.size() > 1);
  for (const auto& [node, ranks] : begun) {
    CAPTURE(node);
    REQUIRE(ranks.size() == 3);
    for (const auto& [rank, begins] : ranks) {
      REQUIRE(begins.size() == 3);
      for (const auto& [other, ends] : ended[node]) {
        for (size_t step = 0; step < 3; ++step) {
          CHECK(ends.at(step) + within >= begins[step]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice
