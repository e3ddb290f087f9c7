// Reports what a Plan keeps in memory, and which values live at its peak.
#ifndef SLUICE_GRAPH_COMPILE_MEMORY_REPORT_H_
#define SLUICE_GRAPH_COMPILE_MEMORY_REPORT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "engine/runtime/plan.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

struct MemoryReport {
  struct Live {
    std::string value;  // "conv1", "split:1", "workspace of conv1"
    std::string type;   // "float32[16,56,56,64]", empty for workspaces
    size_t bytes = 0;
    // The instructions that first write and last use it.
    int first = 0, last = 0;
  };
  std::string device;
  size_t arena_bytes = 0;
  size_t lower_bound = 0;  // largest sum of live bytes: no plan takes less
  size_t variable_bytes = 0;
  size_t constant_bytes = 0;
  int instructions = 0;
  int peak = 0;            // the first instruction at which the sum is largest
  std::string peak_node;   // its node; empty when nothing is in the arena
  std::vector<Live> live;  // at the peak, the largest first
};

MemoryReport DescribeMemory(const Plan& plan);

// The report as lines of text for people: its figures, and the `most` largest
// of the live values.
std::string ToText(const MemoryReport& report, int most = 20);

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_MEMORY_REPORT_H_
