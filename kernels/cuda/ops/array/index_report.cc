#include "kernels/cuda/ops/array/index_report.h"

#include <fmt/format.h>

#include <atomic>
#include <string>

#include "kernels/cuda/runtime/memory.h"

namespace sluice::cuda {
namespace {

std::string TextOf(BadIndex bad) {
  const auto index = static_cast<int32_t>(static_cast<uint32_t>(bad));
  if (index == INT32_MAX) return fmt::format("{} or more", index);
  if (index == INT32_MIN) return fmt::format("{} or less", index);
  return fmt::to_string(index);
}

}  // namespace

Result<std::shared_ptr<IndexReport>> IndexReport::Make(DescribeIndex describe) {
  std::shared_ptr<IndexReport> report(new IndexReport(std::move(describe)));
  SLUICE_ASSIGN_OR_RETURN(report->pinned_, AllocatePinned(sizeof(BadIndex)));
  *report->bad() = kNoBadIndex;
  return report;
}

Status IndexReport::Take() {
  // Work of a later step may be under way.
  const std::atomic_ref<BadIndex> word(*bad());
  if (word.load(std::memory_order_acquire) == kNoBadIndex) return {};
  const BadIndex bad = word.exchange(kNoBadIndex);
  return describe_(TextOf(bad), static_cast<int64_t>(bad >> 32));
}

}  // namespace sluice::cuda
