// oneDNN as a provider of kernels, shared by the onednn_*.cc files.
//
// Debian's oneDNN runs on OpenMP, whose team of threads would compete with our
// workers for the cores (and spin for milliseconds after each primitive). So a
// primitive is never spread by the library: work is cut into slices, and each
// slice is computed by a primitive made for one thread, on whichever of our
// threads ParallelFor gives it to. Cut by size and combined in a fixed order,
// the bits are the same for any number of threads.
//
// Primitives are made with the kernel, run on memory objects of their own and
// find their scratchpad in the kernel's workspace. The library itself still
// allocates a few small objects at each run.
#ifndef SLUICE_KERNELS_CPU_ONEDNN_ONEDNN_H_
#define SLUICE_KERNELS_CPU_ONEDNN_ONEDNN_H_

#include <algorithm>
#include <atomic>
#include <dnnl.hpp>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/ceil_div.h"
#include "engine/kernel.h"
#include "engine/semantics/window.h"
#include "engine/threads.h"

namespace sluice::cpu {

using OnednnDesc = dnnl::memory::desc;
inline constexpr auto kOnednnF32 = dnnl::memory::data_type::f32;

// The process's CPU engine.
dnnl::engine& OnednnEngine();

// While it lives, what this thread asks of oneDNN stays on this thread; so it
// must live where a primitive is made and where it runs.
class OnednnOnThisThread {
 public:
  OnednnOnThisThread();
  ~OnednnOnThisThread();
  OnednnOnThisThread(const OnednnOnThisThread&) = delete;
  OnednnOnThisThread& operator=(const OnednnOnThisThread&) = delete;

 private:
  int saved_;
};

// The attributes of every primitive: the caller gives scratch memory.
dnnl::primitive_attr OnednnAttributes();

// "ref:any" and its like are loops that may be 1,000 times slower.
bool IsOnednnReference(const dnnl::primitive_desc_base& desc);

// Rows of NHWC images as oneDNN names their dimensions, n c h w.
OnednnDesc OnednnImages(int64_t images, int64_t h, int64_t w, int64_t channels);

// A prepared primitive with memory objects of its own. May run on any thread,
// by one at a time.
class OnednnCall {
 public:
  using Argument = std::pair<int, OnednnDesc>;  // DNNL_ARG_SRC, its layout
  OnednnCall(const dnnl::primitive& primitive,
             const dnnl::primitive_desc_base& desc,
             const std::vector<Argument>& arguments);

  // data: of the arguments, in their order. scratchpad: scratchpad_bytes().
  dnnl_status_t Run(std::initializer_list<const void*> data, void* scratchpad);
  // Rounded up, so that what follows is aligned.
  size_t scratchpad_bytes() const { return scratchpad_bytes_; }

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> memories_;  // the scratchpad is the last
  std::vector<dnnl_exec_arg_t> arguments_;
  size_t scratchpad_bytes_ = 0;
};

// Converts an array from one layout to another, in slices of the first
// dimension; nothing where both are the same.
class OnednnReorder {
 public:
  OnednnReorder(const OnednnDesc& from, const OnednnDesc& to);

  bool needed() const { return !calls_.empty(); }
  size_t scratchpad_bytes() const { return calls_.size() * scratchpad_; }
  dnnl_status_t Run(const void* from, void* to, char* scratchpad);

 private:
  std::vector<OnednnCall> calls_;
  size_t scratchpad_ = 0;
};

// The first failure among slices that run in parallel.
class OnednnStatus {
 public:
  void Note(dnnl_status_t status) {
    dnnl_status_t none = dnnl_success;
    if (status != dnnl_success) first_.compare_exchange_strong(none, status);
  }
  Status ToStatus(std::string_view node) const;

 private:
  std::atomic<dnnl_status_t> first_{dnnl_success};
};

// [0, n) in slices of `each`, the last one shorter.
struct OnednnSlices {
  int64_t n = 0, each = 1;

  int64_t count() const { return CeilDiv(n, each); }
  int64_t begin(int64_t slice) const { return slice * each; }
  int64_t size(int64_t slice) const {
    return slice + 1 < count() ? each : n - slice * each;
  }
};
// Cuts [0, n) into at most `most` slices, of equal size but the last.
OnednnSlices OnednnSlicesOf(int64_t n, int64_t most);

// A kernel whose slices run in parallel, each by its call:
// run(call, context, begin of the slice, scratchpad) -> dnnl_status_t.
template <typename SliceFn>
KernelPtr OnednnSlicedKernel(const KernelSpec& spec, const OnednnSlices& slices,
                             std::vector<OnednnCall> calls, SliceFn run) {
  size_t scratchpad = 0;
  for (const OnednnCall& call : calls) {
    scratchpad = std::max(scratchpad, call.scratchpad_bytes());
  }
  return KernelOf(
      [=, node = spec.node,
       shared = std::make_shared<std::vector<OnednnCall>>(std::move(calls))](
          const KernelContext& c) -> Status {
        OnednnStatus status;
        ParallelFor(slices.count(), 1, [&](int64_t begin, int64_t end) {
          for (int64_t s = begin; s < end; ++s) {
            status.Note(
                run((*shared)[s], c, slices.begin(s),
                    static_cast<char*>(c.workspace()) + s * scratchpad));
          }
        });
        return status.ToStatus(node);
      },
      slices.count() * scratchpad);
}

// Whether windows are such as the library is made for. It counts in 32 bits,
// and with ever larger strides, dilations or padding an image takes it minutes.
inline bool OnednnTakes(const Window2D& window) {
  constexpr int64_t kMost = 1 << 16;
  const auto takes = [](const WindowDim& d) {
    return std::max({d.stride, d.extent(), d.pad_before, d.pad_after}) <= kMost;
  };
  return takes(window.h) && takes(window.w);
}

// A row of the kernel table. make() may throw dnnl::error; a spec that it
// throws for, or returns null for, is not supported.
void RegisterOnednn(KernelTable& table, const char* op,
                    KernelPtr (*make)(const KernelSpec& spec),
                    bool (*supports)(const KernelSpec& spec));

// The parts of RegisterOnednnKernels.
void RegisterOnednnConvKernels(KernelTable& table);
void RegisterOnednnMatMulKernels(KernelTable& table);
void RegisterOnednnPoolKernels(KernelTable& table);

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_ONEDNN_ONEDNN_H_
