#include "graph/compile/memory_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace sluice {
namespace {

// The first instruction with the largest sum of live bytes.
int PeakOf(const Plan& plan) {
  std::vector<int64_t> change(plan.instructions.size() + 1);
  for (const Plan::Buffer& buffer : plan.buffers) {
    change[buffer.instruction] += static_cast<int64_t>(buffer.bytes);
    change[buffer.last + 1] -= static_cast<int64_t>(buffer.bytes);
  }
  int64_t live = 0, most = -1;
  int peak = 0;
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    live += change[i];
    if (live > most) {
      most = live;
      peak = static_cast<int>(i);
    }
  }
  return peak;
}

MemoryReport::Live Describe(const Plan& plan, const Plan::Buffer& buffer) {
  const InstructionLabel& label = plan.labels[buffer.instruction];
  MemoryReport::Live live;
  if (buffer.output == Plan::Buffer::kWorkspace) {
    live.value = "workspace of " + label.node;
  } else {
    live.value = buffer.output == 0
                     ? label.node
                     : fmt::format("{}:{}", label.node, buffer.output);
    // Of what is only started a label has no types.
    if (buffer.output < static_cast<int>(label.outputs.size())) {
      live.type = label.outputs[buffer.output].ToString();
    }
  }
  live.bytes = buffer.bytes;
  live.first = buffer.instruction;
  live.last = buffer.last;
  return live;
}

double Megabytes(size_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

}  // namespace

MemoryReport DescribeMemory(const Plan& plan) {
  MemoryReport report;
  report.device = plan.device;
  report.arena_bytes = plan.arena_bytes;
  report.lower_bound = plan.arena_lower_bound;
  for (const Variable* variable : plan.variables) {
    report.variable_bytes += variable->value.bytes();
  }
  for (const Tensor& constant : plan.constants) {
    report.constant_bytes += constant.bytes();
  }
  report.instructions = static_cast<int>(plan.instructions.size());
  report.peak = PeakOf(plan);
  for (const Plan::Buffer& buffer : plan.buffers) {
    if (buffer.bytes > 0 && buffer.instruction <= report.peak &&
        report.peak <= buffer.last) {
      report.live.push_back(Describe(plan, buffer));
    }
  }
  std::stable_sort(
      report.live.begin(), report.live.end(),
      [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (!report.live.empty()) report.peak_node = plan.labels[report.peak].node;
  return report;
}

std::string ToText(const MemoryReport& report, int most) {
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(
      out,
      "{}: arena {:.1f} MB, lower bound {:.1f} MB ({:.3f} times), variables "
      "{:.1f} MB, constants {:.1f} MB\n",
      report.device, Megabytes(report.arena_bytes),
      Megabytes(report.lower_bound),
      report.lower_bound == 0 ? 1.0
                              : static_cast<double>(report.arena_bytes) /
                                    static_cast<double>(report.lower_bound),
      Megabytes(report.variable_bytes), Megabytes(report.constant_bytes));
  if (report.live.empty()) return text;
  fmt::format_to(out,
                 "most is live at '{}' ({} of {} instructions): {} values\n",
                 report.peak_node, report.peak + 1, report.instructions,
                 report.live.size());
  int shown = 0;
  size_t rest = 0;
  for (const MemoryReport::Live& live : report.live) {
    if (shown++ < most) {
      fmt::format_to(out, "{:>10.3f} MB  {}{}{}  ({} to {})\n",
                     Megabytes(live.bytes), live.value,
                     live.type.empty() ? "" : " ", live.type, live.first + 1,
                     live.last + 1);
    } else {
      rest += live.bytes;
    }
  }
  if (rest > 0) {
    fmt::format_to(out, "{:>10.3f} MB  in {} more\n", Megabytes(rest),
                   shown - most);
  }
  return text;
}

}  // namespace sluice
