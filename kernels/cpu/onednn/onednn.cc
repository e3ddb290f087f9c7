#if SLUICE_HAVE_ONEDNN
#include "kernels/cpu/onednn/onednn.h"

#include <dlfcn.h>
#include <dnnl_debug.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "engine/ceil_div.h"
#include "engine/tensor.h"
#include "engine/threads.h"
#include "kernels/cpu/kernels.h"

namespace sluice::cpu {
namespace {

// Below our own vector code, which on AVX2 is as fast or faster on all layers
// of ResNet-50 and MNIST (docs/performance.md); above the plain loops.
constexpr int kPriority = 5;

// Elements converted as one piece of work, about.
constexpr int64_t kReorderElements = 1 << 16;
// A multiple of every block of channels that the library uses.
constexpr int64_t kChannelBlock = 64;

// OpenMP's settings belong to the calling thread. Its runtime comes with the
// library, so that none is named when linking.
struct OpenMp {
  int (*threads)() = nullptr;
  void (*set_threads)(int) = nullptr;
};
const OpenMp& Runtime() {
  static const OpenMp runtime = {
      reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads")),
      reinterpret_cast<void (*)(int)>(
          dlsym(RTLD_DEFAULT, "omp_set_num_threads"))};
  return runtime;
}

size_t AlignedBytes(size_t bytes) {
  return RoundUp(bytes, kAlignment);
}

}  // namespace

dnnl::engine& OnednnEngine() {
  // Never destroyed: kernels of static objects may outlive it.
  static auto* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

OnednnOnThisThread::OnednnOnThisThread()
    : saved_(Runtime().threads != nullptr ? Runtime().threads() : 1) {
  if (saved_ != 1) Runtime().set_threads(1);
}

OnednnOnThisThread::~OnednnOnThisThread() {
  if (saved_ != 1) Runtime().set_threads(saved_);
}

dnnl::primitive_attr OnednnAttributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

bool IsOnednnReference(const dnnl::primitive_desc_base& desc) {
  return std::string_view(desc.impl_info_str()).find("ref") !=
         std::string_view::npos;
}

OnednnDesc OnednnImages(int64_t images, int64_t h, int64_t w,
                        int64_t channels) {
  return {{images, channels, h, w}, kOnednnF32, dnnl::memory::format_tag::nhwc};
}

OnednnCall::OnednnCall(const dnnl::primitive& primitive,
                       const dnnl::primitive_desc_base& desc,
                       const std::vector<Argument>& arguments)
    : primitive_(primitive), stream_(OnednnEngine()) {
  const auto add = [&](int index, const OnednnDesc& layout) {
    memories_.emplace_back(layout, OnednnEngine(), nullptr);
    arguments_.push_back({index, memories_.back().get()});
  };
  for (const auto& [index, layout] : arguments) add(index, layout);
  add(DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc());
  scratchpad_bytes_ = AlignedBytes(desc.scratchpad_desc().get_size());
}

dnnl_status_t OnednnCall::Run(std::initializer_list<const void*> data,
                              void* scratchpad) {
  SLUICE_CHECK(data.size() + 1 == arguments_.size());
  const OnednnOnThisThread scope;
  auto argument = arguments_.begin();
  for (const void* pointer : data) {
    // The library takes inputs without const.
    const dnnl_status_t status = dnnl_memory_set_data_handle(
        argument++->memory, const_cast<void*>(pointer));
    if (status != dnnl_success) return status;
  }
  dnnl_memory_set_data_handle(argument->memory, scratchpad);
  return dnnl_primitive_execute(primitive_.get(), stream_.get(),
                                static_cast<int>(arguments_.size()),
                                arguments_.data());
}

OnednnReorder::OnednnReorder(const OnednnDesc& from, const OnednnDesc& to) {
  if (from == to) return;
  const OnednnOnThisThread scope;
  const dnnl::memory::dims dims = from.dims();
  const int64_t row = static_cast<int64_t>(from.get_size() / sizeof(float)) /
                      std::max<int64_t>(dims[0], 1);
  const int64_t blocks = std::max<int64_t>(
      kReorderElements / std::max<int64_t>(row * kChannelBlock, 1), 1);
  const OnednnSlices slices = {dims[0], blocks * kChannelBlock};
  for (int64_t s = 0; s < slices.count(); ++s) {
    dnnl::memory::dims size = dims, offset(dims.size(), 0);
    size[0] = slices.size(s);
    offset[0] = slices.begin(s);
    const OnednnDesc a = from.submemory_desc(size, offset);
    const OnednnDesc b = to.submemory_desc(size, offset);
    const dnnl::reorder::primitive_desc desc(OnednnEngine(), a, OnednnEngine(),
                                             b, OnednnAttributes());
    calls_.emplace_back(dnnl::reorder(desc), desc,
                        std::vector<OnednnCall::Argument>{{DNNL_ARG_FROM, a},
                                                          {DNNL_ARG_TO, b}});
    scratchpad_ = std::max(scratchpad_, calls_.back().scratchpad_bytes());
  }
}

dnnl_status_t OnednnReorder::Run(const void* from, void* to, char* scratchpad) {
  std::atomic<dnnl_status_t> result{dnnl_success};
  ParallelFor(static_cast<int64_t>(calls_.size()), 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  const dnnl_status_t status =
                      calls_[i].Run({from, to}, scratchpad + i * scratchpad_);
                  if (status != dnnl_success) result = status;
                }
              });
  return result;
}

Status OnednnStatus::ToStatus(std::string_view node) const {
  const dnnl_status_t status = first_.load();
  if (status == dnnl_success) return {};
  return Internal(
      fmt::format("'{}': oneDNN failed: {}", node, dnnl_status2str(status)));
}

OnednnSlices OnednnSlicesOf(int64_t n, int64_t most) {
  return {n, std::max<int64_t>(CeilDiv(n, most), 1)};
}

void RegisterOnednn(KernelTable& table, const char* op,
                    KernelPtr (*make)(const KernelSpec& spec),
                    bool (*supports)(const KernelSpec& spec)) {
  const auto checked = [supports](const KernelSpec& spec) {
    for (const auto* types : {&spec.inputs, &spec.outputs}) {
      for (const TensorType& type : *types) {
        if (type.shape.elements() == 0) return false;
      }
    }
    try {
      return supports(spec);
    } catch (const dnnl::error&) {
      return false;  // nothing implements it
    }
  };
  table.Register(
      {.op = op,
       .priority = kPriority,
       .provider = "onednn",
       .supports = checked,
       .dtypes = DType::kFloat32,
       .make = [make](const KernelSpec& s) -> Result<KernelPtr> {
         try {
           KernelPtr kernel = make(s);
           if (kernel != nullptr) return kernel;
           return Unimplemented("oneDNN has no kernel for it");
         } catch (const dnnl::error& error) {
           if (error.status == dnnl_out_of_memory) {
             return ResourceExhausted(fmt::format("oneDNN: {}", error.what()));
           }
           return Unimplemented(
               fmt::format("oneDNN has no kernel for it: {}", error.what()));
         }
       }});
}

void RegisterOnednnKernels(KernelTable& table) {
  RegisterOnednnConvKernels(table);
  RegisterOnednnMatMulKernels(table);
  RegisterOnednnPoolKernels(table);
}

}  // namespace sluice::cpu
#endif  // SLUICE_HAVE_ONEDNN
