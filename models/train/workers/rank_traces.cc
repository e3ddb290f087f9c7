#include "models/train/workers/rank_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "dist/servers/server.h"
#include "engine/runtime/trace.h"
#include "engine/status.h"
#include "graph/session/cluster.h"

namespace sluice {
namespace {

using nlohmann::json;

// The more, the nearer comes one that nothing disturbed.
constexpr int kExchanges = 16;
using Times = std::array<int64_t, kExchanges>;

// Of processes and of rows in a trace.
constexpr int64_t kMostNumber = int64_t{1} << 31;
// In a trace, brackets in brackets.
constexpr int kDeepest = 16;

// What traces of ranks are merged from is what these say: any text.
[[noreturn]] void NoTrace(std::string_view whose, std::string_view why) {
  throw Error(Code::kDataLoss,
              fmt::format("the trace of {} is none: {}", whose, why));
}

json Parsed(std::string_view whose, const std::string& text) {
  const auto shallow = [&](int depth, json::parse_event_t, json&) {
    if (depth > kDeepest) NoTrace(whose, "it is too deep");
    return true;
  };
  return json::parse(text, shallow, /*allow_exceptions=*/false);
}

int64_t NumberIn(std::string_view whose, const json& number) {
  if (!number.is_number_integer()) NoTrace(whose, "a number is none");
  const auto value = number.get<int64_t>();
  if (value < 0 || value > kMostNumber) NoTrace(whose, "a number is too large");
  return value;
}

int64_t CheckTime(std::string_view what, std::string_view whose, int64_t time) {
  constexpr int64_t kMost = int64_t{1} << 60;  // a steady clock of 36 years
  if (time > -kMost && time < kMost) return time;
  throw Error(Code::kDataLoss,
              fmt::format("{} of {}: {} ns are no time", what, whose, time));
}

Times TimesOfFirst(const Workers& workers, std::string_view what,
                   const Times& mine) {
  const Times times = workers.GatherEach(what, mine)[0];
  for (const int64_t time : times) CheckTime(what, "rank 0", time);
  return times;
}

// Of what it is at least, and at most.
ClockShift Between(int64_t least, int64_t most) {
  const int64_t within = (most - least + 1) / 2;
  return {least + within, within};
}

int64_t ClockOf(Cluster& cluster, const std::string& server) {
  return CheckTime(
      "clock", server,
      dist::AskNumber(cluster, server, dist::kAskClock).ValueOrThrow());
}

// "/cpu:0" of "/job:ps/task:0/cpu:0": who it is of is said before it.
std::string WithoutTask(const std::string& process) {
  return process.starts_with("/job:") ? process.substr(process.rfind('/'))
                                      : process;
}

}  // namespace

// Nobody leaves an exchange before everybody has come to it. So rank 0 came,
// by its clock, before this worker left by its own, and left after it came:
// each is a bound for the difference of the clocks.
ClockShift ShiftFromFirst(const Workers& workers,
                          const std::function<int64_t()>& now) {
  Times came = {}, left = {};
  for (int i = 0; i < kExchanges; ++i) {
    came[i] = now();
    workers.Barrier("clocks");
    left[i] = now();
  }
  const Times first_came = TimesOfFirst(workers, "clocks before", came);
  const Times first_left = TimesOfFirst(workers, "clocks behind", left);
  if (workers.leads()) return {};
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t most = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kExchanges; ++i) {
    least = std::max(least, came[i] - first_left[i]);
    most = std::min(most, left[i] - first_came[i]);
  }
  return Between(least, most);
}

// It said so behind the question, and before the answer had come.
ClockShift ShiftByAsking(const std::function<int64_t()>& ask,
                         const std::function<int64_t()>& now) {
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t most = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kExchanges; ++i) {
    const int64_t before = now();
    const int64_t there = ask();
    least = std::max(least, there - now());
    most = std::min(most, there - before);
  }
  return Between(least, most);
}

std::string MergedTrace(const std::vector<std::string>& traces,
                        const std::vector<int64_t>& ahead, size_t servers) {
  const size_t ranks = traces.size() - servers;
  json events = json::array();
  // Viewers tell rows apart over all processes.
  int64_t first_process = 0, first_row = 0;
  for (size_t i = 0; i < traces.size(); ++i) {
    const std::string whose =
        i < ranks ? fmt::format("rank {}", i) : fmt::format("ps {}", i - ranks);
    json trace = Parsed(whose, traces[i]);
    int64_t processes = first_process, rows = first_row;
    try {
      for (json& event : trace.at("traceEvents")) {
        json& process = event.at("pid");
        process = first_process + NumberIn(whose, process);
        processes = std::max(processes, process.get<int64_t>() + 1);
        if (event.contains("tid")) {
          json& row = event["tid"];
          row = first_row + NumberIn(whose, row);
          rows = std::max(rows, row.get<int64_t>() + 1);
        }
        if (event.contains("ts")) {  // microseconds
          event["ts"] =
              event["ts"].get<double>() - static_cast<double>(ahead[i]) / 1e3;
        }
        if (event.at("name") == "process_name") {
          json& name = event.at("args").at("name");
          name =
              fmt::format("{} {}", whose, WithoutTask(name.get<std::string>()));
        }
        events.push_back(std::move(event));
      }
    } catch (const json::exception& error) {
      NoTrace(whose, error.what());
    }
    first_process = processes;
    first_row = rows;
  }
  return json{{"traceEvents", std::move(events)}}.dump();
}

void TraceServers(const TrainingServers& servers) {
  for (size_t i = 0; i < servers.devices.size(); ++i) {
    ThrowIfError(
        servers.cluster->BeginTrace(dist::ServerName(static_cast<int>(i))));
  }
}

std::string GatheredTrace(const Workers& workers,
                          const TrainingServers& servers,
                          const std::string& mine, int64_t* within) {
  // First: the others may go on meanwhile.
  std::vector<std::string> served;
  std::vector<ClockShift> served_shifts;
  for (size_t i = 0; workers.leads() && i < servers.devices.size(); ++i) {
    const std::string name = dist::ServerName(static_cast<int>(i));
    served.push_back(servers.cluster->EndTrace(name).ValueOrThrow());
    served_shifts.push_back(ShiftByAsking(
        [&] { return ClockOf(*servers.cluster, name); }, SteadyNowNs));
  }
  auto shifts =
      workers.GatherEach("clocks", ShiftFromFirst(workers, SteadyNowNs));
  shifts.insert(shifts.end(), served_shifts.begin(), served_shifts.end());
  std::vector<int64_t> ahead;
  *within = 0;
  for (const ClockShift& shift : shifts) {
    ahead.push_back(shift.ahead);
    *within = std::max(*within, shift.within);
  }
  std::vector<std::string> traces = workers.GatherOnFirst("trace", mine);
  std::move(served.begin(), served.end(), std::back_inserter(traces));
  return workers.leads() ? MergedTrace(traces, ahead, served.size()) : "";
}

}  // namespace sluice
