#include "engine/runtime/checked_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace sluice {

CheckedRun::CheckedRun(const Plan& plan)
    : plan_(plan),
      last_used_(plan.instructions.size()),
      waits_(plan.instructions.size()) {
  for (const Plan::Pending& pending : plan.pending) waits_[pending.wait] = true;
  for (uint32_t b = 0; b < plan.buffers.size(); ++b) {
    last_used_[plan.buffers[b].last].push_back(b);
  }
}

void CheckedRun::Begin(char* arena, void* const* operands) {
  arena_ = arena;
  operands_ = operands;
  if (plan_.arena_bytes > 0) std::memset(arena, kPoison, plan_.arena_bytes);
}

void CheckedRun::Before(uint32_t i) {
  const Instruction& instruction = plan_.instructions[i];
  kept_.clear();
  for (int k = plan_.labels[i].mutates; k < instruction.num_inputs; ++k) {
    const uint32_t at = instruction.first_location + static_cast<uint32_t>(k);
    // A variable that it updates may be another operand as well, and what it
    // waits for is still being written.
    bool updated = waits_[i] && k == 0;
    for (int m = 0; m < plan_.labels[i].mutates; ++m) {
      updated |= operands_[instruction.first_location + m] == operands_[at];
    }
    const size_t bytes = plan_.operand_bytes[at];
    if (updated || bytes == 0) continue;
    const char* data = static_cast<const char*>(operands_[at]);
    kept_.push_back({k, {data, data + bytes}});
  }
}

Status CheckedRun::After(uint32_t i) {
  const Instruction& instruction = plan_.instructions[i];
  for (const Kept& kept : kept_) {
    const void* now = operands_[instruction.first_location + kept.input];
    if (std::memcmp(now, kept.bytes.data(), kept.bytes.size()) != 0) {
      return Internal(fmt::format("it changed input {}", kept.input));
    }
  }
  const uint32_t count = instruction.num_outputs + 1u;  // the workspace, too
  for (uint32_t k = 0; k < count; ++k) {
    const uint32_t at = instruction.first_location + instruction.num_inputs + k;
    if (plan_.locations[at].kind != Location::Kind::kArena) continue;
    const auto* begin = static_cast<const unsigned char*>(operands_[at]);
    const auto* end = begin + plan_.operand_bytes[at];
    const auto written = [](unsigned char c) { return c != kPoison; };
    if (std::any_of(begin - kAlignment, begin, written) ||
        std::any_of(end, end + kAlignment, written)) {
      return Internal(fmt::format("it wrote around output {}", k));
    }
  }
  for (uint32_t b : last_used_[i]) {
    const Plan::Buffer& buffer = plan_.buffers[b];
    std::memset(arena_ + buffer.offset, kPoison, buffer.bytes);
  }
  return {};
}

}  // namespace sluice
