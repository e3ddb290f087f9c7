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
#include <utility>
#include <vector>

#include "dist/collective/texts.h"
#include "engine/runtime/trace.h"
#include "models/train/hooks/hooks.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/error_text.h"
#include "tests/support/recording_reporter.h"
#include "tests/support/served_training.h"
#include "tests/support/strange_collective.h"
#include "tests/support/temporary_folder.h"

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

TEST_CASE("of who is asked for its clock it is known within bounds, too") {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 20; ++trial) {
    const auto ahead =
        static_cast<int64_t>(random() % 2'000'000'000'000) - 1'000'000'000'000;
    CAPTURE(ahead);
    // Each way takes a time of its own.
    int64_t now = 1'000'000;
    const ClockShift found = ShiftByAsking(
        [&] {
          now += static_cast<int64_t>(random() % 100'000);
          const int64_t there = now + ahead;
          now += static_cast<int64_t>(random() % 1'000'000);
          return there;
        },
        [&] { return now; });
    CHECK(std::abs(found.ahead - ahead) <= found.within);
    CHECK(found.within < 1'000'000);
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

TEST_CASE("in a merged trace what servers did is theirs, by rank 0's clock") {
  ChromeTrace rank, server;
  rank.AddSpan("/cpu:0", "row", "x", 5000, 7000);
  server.AddSpan("/job:ps/task:0/cpu:0", "row", "x", 905'000, 907'000);
  server.AddSpan("/job:ps/task:0/gpu:1", "row", "x", 906'000, 907'000);
  const json merged = json::parse(MergedTrace(
      {rank.ToJson(), server.ToJson(), server.ToJson()}, {0, 900'000, 0}, 2));
  std::map<int, std::string> names;
  std::map<std::string, double> begins;
  for (const json& event : merged["traceEvents"]) {
    if (event["name"] == "process_name") {
      names[event["pid"]] = event["args"]["name"];
    } else if (event["ph"] == "X") {
      begins[names.at(event["pid"])] = event["ts"];
    }
  }
  CHECK(begins == std::map<std::string, double>{{"rank 0 /cpu:0", 5},
                                                {"ps 0 /cpu:0", 5},
                                                {"ps 0 /gpu:1", 6},
                                                {"ps 1 /cpu:0", 905},
                                                {"ps 1 /gpu:1", 906}});
  CHECK(testing::Contains(testing::ErrorOf([&] {
                            (void)MergedTrace({rank.ToJson(), "{}"}, {0, 0}, 1);
                          }),
                          "the trace of ps 0 is none"));
}

TEST_CASE("long texts come to rank 0 in pieces") {
  const dist::testing::Watchdog watchdog;
  std::mt19937 random(4);
  constexpr int64_t kAtOnce = 100;
  for (const int size : {1, 2, 3}) {
    CAPTURE(size);
    dist::testing::Groups groups(1);
    if (size > 1) groups = dist::testing::JoinAll(size, {});
    for (const size_t length : {size_t{0}, size_t{99}, size_t{100}, size_t{101},
                                size_t{200}, size_t{12'345}}) {
      std::vector<std::string> texts(static_cast<size_t>(size));
      for (size_t rank = 0; rank < texts.size(); ++rank) {
        texts[rank].resize(length + 7 * rank);
        for (char& c : texts[rank]) c = static_cast<char>(random());
      }
      std::vector<std::vector<std::string>> got(texts.size());
      dist::testing::InThreads(size, [&](int rank) {
        const auto i = static_cast<size_t>(rank);
        got[i] =
            Workers(groups[i].get()).GatherOnFirst("texts", texts[i], kAtOnce);
      });
      CHECK(got[0] == texts);
      for (size_t i = 1; i < got.size(); ++i) CHECK(got[i].empty());
    }
  }
}

TEST_CASE("a trace may be longer than texts that all have") {
  const std::string trace(static_cast<size_t>(dist::kMostText) + 1, ' ');
  testing::StrangeCollective collective(1, 2, "");
  int64_t within = 0;
  CHECK(testing::ErrorOf([&] {
          (void)GatheredTrace(Workers(&collective), {}, trace, &within);
        }) == "(no error)");
}

// Of the profile of steps 2 to 4 of a training that is said to be `whose`.
struct Profiled {
  std::map<int, std::string> processes;  // by number
  std::vector<json> ran;
  double within = 0;  // clocks of two; microseconds
};
Profiled ProfileOf(int workers, int servers, const std::string& whose) {
  const testing::TemporaryFolder folder;
  testing::RecordingReporter notes;
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
  for (const testing::Trained& trained :
       testing::TrainOn(servers, workers, testing::kSync, task)) {
    REQUIRE(trained.error == "");
  }
  const std::string said = whose + " (clocks within ";
  const std::string text = notes.text();
  REQUIRE(testing::Contains(text, said));
  Profiled profiled;
  profiled.within = 2 * std::stod(text.substr(text.find(said) + said.size()));
  std::ifstream file(folder / "trace.json");
  const json trace = json::parse(file);
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") {
      profiled.processes[event["pid"]] = event["args"]["name"];
    } else if (event["ph"] == "X") {
      profiled.ran.push_back(event);
    }
  }
  return profiled;
}

// What a worker sends to its server, and that to it, has not come before it was
// sent.
TEST_CASE("a profile has what a parameter server did, by one clock") {
  const Profiled profiled =
      ProfileOf(1, 1, "by rank 0, and of the parameter servers");
  // By tensor, and by who sends it, of each step in order.
  using Times = std::map<std::string, std::vector<double>>;
  std::map<std::string, Times> sent, received;
  std::map<std::string, int> computed;  // by a server's node
  for (const json& event : profiled.ran) {
    const std::string op = event["name"];
    const std::string& process = profiled.processes.at(event["pid"]);
    const bool serves = process == "ps 0 /cpu:0";
    if (!serves && process != "rank 0 /cpu:0") continue;
    const std::string node = event["args"]["node"];
    // Where it goes or comes from is behind that (graph/passes/partition.cc).
    const std::string tensor =
        node.substr(0, node.rfind(op == "SendStart" ? "/send_" : "/received_"));
    const double begin = event["ts"], duration = event["dur"];
    if (op == "SendStart") {
      sent[serves ? "ps" : "rank"][tensor].push_back(begin);
    } else if (op == "RecvWait") {
      received[serves ? "rank" : "ps"][tensor].push_back(begin + duration);
    } else if (serves && !op.starts_with("Recv") && !op.starts_with("Send")) {
      ++computed[node];
    }
  }
  for (const char* sender : {"rank", "ps"}) {
    CAPTURE(sender);
    int in_each = 0;  // in each of the steps
    for (const auto& [tensor, ends] : received[sender]) {
      CAPTURE(tensor);
      const std::vector<double>& begins = sent[sender][tensor];
      REQUIRE(begins.size() == ends.size());
      for (size_t i = 0; i < ends.size(); ++i) {
        CHECK(ends[i] + profiled.within >= begins[i]);
      }
      in_each += ends.size() == 3 ? 1 : 0;
    }
    CHECK(in_each > 0);
  }
  int in_each = 0;
  for (const auto& [node, times] : computed) {
    CHECK(times <= 3);
    in_each += times == 3 ? 1 : 0;
  }
  CHECK(in_each > 0);
}

TEST_CASE("a profile is of all workers and all parameter servers") {
  const Profiled profiled = ProfileOf(
      2, 2, "by rank 0, and of the other ranks and the parameter servers");
  std::set<std::string> busy;
  for (const json& event : profiled.ran) {
    busy.insert(profiled.processes.at(event["pid"]));
  }
  for (const char* process :
       {"rank 0 /cpu:0", "rank 1 /cpu:0", "ps 0 /cpu:0", "ps 1 /cpu:0"}) {
    CAPTURE(process);
    CHECK(busy.count(process) == 1);
  }
}

// Nobody has a result before everybody has begun.
TEST_CASE("a profile of several workers has what all of them did") {
  const Profiled profiled =
      ProfileOf(3, 0, "by rank 0, and of the other ranks");
  std::map<int, int> rank_of;  // by process
  for (const auto& [process, name] : profiled.processes) {
    if (name.ends_with("cpu:0")) rank_of[process] = name.at(5) - '0';
  }
  REQUIRE(rank_of.size() == 3);
  // By node and rank, of each step in order.
  std::map<std::string, std::map<int, std::vector<double>>> begun, ended;
  for (const json& event : profiled.ran) {
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
          CHECK(ends.at(step) + profiled.within >= begins[step]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice
