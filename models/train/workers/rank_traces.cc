#include "models/train/workers/rank_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/runtime/trace.h"
#include "engine/status.h"

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
[[noreturn]] void NoTrace(size_t rank, std::string_view why) {
  throw Error(Code::kDataLoss,
              fmt::format("the trace of rank {} is none: {}", rank, why));
}

json Parsed(size_t rank, const std::string& text) {
  const auto shallow = [&](int depth, json::parse_event_t, json&) {
    if (depth > kDeepest) NoTrace(rank, "it is too deep");
    return true;
  };
  return json::parse(text, shallow, /*allow_exceptions=*/false);
}

int64_t NumberIn(size_t rank, const json& number) {
  if (!number.is_number_integer()) NoTrace(rank, "a number is none");
  const auto value = number.get<int64_t>();
  if (value < 0 || value > kMostNumber) NoTrace(rank, "a number is too large");
  return value;
}

Times TimesOfFirst(const Workers& workers, std::string_view what,
                   const Times& mine) {
  constexpr int64_t kMost = int64_t{1} << 60;  // a steady clock of 36 years
  const Times times = workers.GatherEach(what, mine)[0];
  for (const int64_t time : times) {
    if (time > -kMost && time < kMost) continue;
    throw Error(Code::kDataLoss,
                fmt::format("{} of rank 0: {} ns are no time", what, time));
  }
  return times;
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
  const int64_t within = (most - least + 1) / 2;
  return {least + within, within};
}

std::string MergedTrace(const std::vector<std::string>& traces,
                        const std::vector<int64_t>& ahead) {
  json events = json::array();
  // Viewers tell rows apart over all processes.
  int64_t first_process = 0, first_row = 0;
  for (size_t rank = 0; rank < traces.size(); ++rank) {
    json trace = Parsed(rank, traces[rank]);
    int64_t processes = first_process, rows = first_row;
    try {
      for (json& event : trace.at("traceEvents")) {
        json& process = event.at("pid");
        process = first_process + NumberIn(rank, process);
        processes = std::max(processes, process.get<int64_t>() + 1);
        if (event.contains("tid")) {
          json& row = event["tid"];
          row = first_row + NumberIn(rank, row);
          rows = std::max(rows, row.get<int64_t>() + 1);
        }
        if (event.contains("ts")) {  // microseconds
          event["ts"] = event["ts"].get<double>() -
                        static_cast<double>(ahead[rank]) / 1e3;
        }
        if (event.at("name") == "process_name") {
          json& name = event.at("args").at("name");
          name = fmt::format("rank {} {}", rank, name.get<std::string>());
        }
        events.push_back(std::move(event));
      }
    } catch (const json::exception& error) {
      NoTrace(rank, error.what());
    }
    first_process = processes;
    first_row = rows;
  }
  return json{{"traceEvents", std::move(events)}}.dump();
}

std::string GatheredTrace(const Workers& workers, const std::string& mine,
                          int64_t* within) {
  const auto shifts =
      workers.GatherEach("clocks", ShiftFromFirst(workers, SteadyNowNs));
  std::vector<int64_t> ahead;
  *within = 0;
  for (const ClockShift& shift : shifts) {
    ahead.push_back(shift.ahead);
    *within = std::max(*within, shift.within);
  }
  const std::vector<std::string> traces = workers.Gather("traces", mine);
  return workers.leads() ? MergedTrace(traces, ahead) : "";
}

}  // namespace sluice
