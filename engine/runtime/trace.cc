#include "engine/runtime/trace.h"

#include <chrono>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "engine/text/json.h"

namespace sluice {

int64_t SteadyNowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Status ChromeTrace::AfterInstruction(const RanInstruction& ran) {
  const InstructionLabel& label = ran.label;
  std::string types;
  for (const TensorType& type : label.outputs) {
    if (!types.empty()) types += ", ";
    types += type.ToString();
  }
  const uint64_t thread =
      std::hash<std::thread::id>()(std::this_thread::get_id());
  MutexLock lock(mutex_);
  events_.push_back({label.node, label.op, std::string(ran.device),
                     std::move(types), ran.begin_ns, ran.end_ns, thread});
  return {};
}

void ChromeTrace::AddSpan(const std::string& process, const std::string& row,
                          const std::string& name, int64_t begin_ns,
                          int64_t end_ns) {
  MutexLock lock(mutex_);
  spans_.push_back({process, row, name, begin_ns, end_ns});
}

void ChromeTrace::Clear() {
  MutexLock lock(mutex_);
  events_.clear();
  spans_.clear();
}

size_t ChromeTrace::events() const {
  MutexLock lock(mutex_);
  return events_.size();
}

std::string ChromeTrace::ToJson() const {
  MutexLock lock(mutex_);
  Json out = Json::Array();
  std::map<std::string, int> processes;
  const auto process_of = [&](const std::string& name) {
    const auto [process, fresh] =
        processes.emplace(name, static_cast<int>(processes.size()));
    if (fresh) {
      out.Add({{"ph", "M"},
               {"name", "process_name"},
               {"pid", process->second},
               {"args", {{"name", name}}}});
    }
    return process->second;
  };
  // Times are in microseconds there.
  const auto add = [&](const std::string& name, int process, int row,
                       int64_t begin_ns, int64_t end_ns, Json args) {
    out.Add({{"ph", "X"},
             {"name", name},
             {"pid", process},
             {"tid", row},
             {"ts", static_cast<double>(begin_ns) / 1e3},
             {"dur", static_cast<double>(end_ns - begin_ns) / 1e3},
             {"args", std::move(args)}});
  };
  std::map<uint64_t, int> threads;
  for (const Event& event : events_) {
    const int thread =
        threads.emplace(event.thread, static_cast<int>(threads.size()))
            .first->second;
    add(event.op, process_of(event.device), thread, event.begin_ns,
        event.end_ns, {{"node", event.node}, {"outputs", event.types}});
  }
  // In the order they were added; viewers tell rows apart over all processes.
  std::map<std::pair<int, std::string>, int> rows;
  for (const Span& span : spans_) {
    const int process = process_of(span.process);
    const auto [row, fresh] =
        rows.emplace(std::pair(process, span.row),
                     static_cast<int>(threads.size() + rows.size()));
    if (fresh) {
      out.Add({{"ph", "M"},
               {"name", "thread_name"},
               {"pid", process},
               {"tid", row->second},
               {"args", {{"name", span.row}}}});
    }
    add(span.name, process, row->second, span.begin_ns, span.end_ns,
        Json::Object());
  }
  // A node's name may be any bytes, and a trace is to be read.
  return Json{{"traceEvents", std::move(out)}}.LenientText();
}

}  // namespace sluice
