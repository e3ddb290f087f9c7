// What a kernel's threads reported of its indices or labels (bad_index.h), as
// an error like the CPU's. The word stays where it is for as long as the kernel
// lives, so that captured steps report too.
#ifndef SLUICE_KERNELS_CUDA_OPS_ARRAY_INDEX_REPORT_H_
#define SLUICE_KERNELS_CUDA_OPS_ARRAY_INDEX_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "engine/kernel.h"
#include "kernels/cuda/device/bad_index.h"

namespace sluice::cuda {

// The error for an index, as text, and its position.
using DescribeIndex =
    std::function<Status(std::string_view index, int64_t position)>;

class IndexReport final : public WorkReport {
 public:
  // Makes a report on the current device.
  static Result<std::shared_ptr<IndexReport>> Make(DescribeIndex describe);

  BadIndex* bad() const { return static_cast<BadIndex*>(pinned_.get()); }
  // While work is under way it may name an index again that it has named.
  Status Take() override;

 private:
  explicit IndexReport(DescribeIndex describe)
      : describe_(std::move(describe)) {}

  const DescribeIndex describe_;
  std::shared_ptr<void> pinned_;
};

template <typename Fn>
class CheckingKernel final : public Kernel {
 public:
  CheckingKernel(Fn fn, std::shared_ptr<IndexReport> report, size_t workspace)
      : fn_(std::move(fn)), report_(std::move(report)), workspace_(workspace) {}
  Status Run(const KernelContext& context) override {
    return fn_(context, report_->bad());
  }
  size_t workspace_bytes() const override { return workspace_; }
  std::shared_ptr<WorkReport> report() const override { return report_; }

 private:
  Fn fn_;
  std::shared_ptr<IndexReport> report_;
  size_t workspace_;
};

// A kernel from a callable of a KernelContext and where its threads report.
template <typename Fn>
Result<KernelPtr> CheckingKernelOf(DescribeIndex describe, Fn fn,
                                   size_t workspace_bytes = 0) {
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<IndexReport> report,
                          IndexReport::Make(std::move(describe)));
  return KernelPtr(std::make_unique<CheckingKernel<Fn>>(
      std::move(fn), std::move(report), workspace_bytes));
}

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_OPS_ARRAY_INDEX_REPORT_H_
