// Matrix products by cuBLASLt. When a kernel is made its candidates are timed
// and the fastest is taken, unless the session wants the same bits in every
// run: then the first that runs, in cuBLASLt's order, which depends on shapes
// alone. Sums are in float for half types, partial sums too. Where cuBLASLt has
// nothing for a product, the next kernel of the table is made, our own. A ReLU
// is a kernel of ours behind the product (cublas_epilogue.h says why).
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/thread_annotations.h"
#include "kernels/cuda/ops/elementwise/elementwise.h"
#include "kernels/cuda/ops/gemm/matmul.h"
#include "kernels/cuda/runtime/kernels.h"
#include "kernels/cuda/runtime/measure.h"
#include "kernels/cuda/runtime/nvidia_library.h"
#include "kernels/cuda/vendor/cublas_epilogue.h"
#include "kernels/cuda/vendor/cublas_lt.h"

namespace sluice::cuda {
namespace {

constexpr int kPriority = 20;
constexpr int kMostCandidates = 8;
// What NVIDIA recommends for Hopper; others need less.
constexpr size_t kMostWorkspace = size_t{32} << 20;
// Of operands; the engine aligns tensors to more.
constexpr uint32_t kOperandAlignment = 16;
struct Choice {
  cublasLtMatmulAlgo_t algorithm = {};
  size_t workspace = 0;
};
// The algorithms chosen so far, by what they were chosen for. Who looks for one
// and then compares candidates holds the mutex meanwhile: searches do not time
// each other, and kernels of one product have one algorithm.
struct Choices {
  Mutex mutex;
  std::map<std::string, Choice> by_key GUARDED_BY(mutex);

  static Choices& Global() {
    static Choices* const choices = new Choices;
    return *choices;
  }
};

cudaDataType_t TypeOf(DType dtype) {
  return dtype == DType::kFloat64    ? CUDA_R_64F
         : dtype == DType::kFloat16  ? CUDA_R_16F
         : dtype == DType::kBFloat16 ? CUDA_R_16BF
                                     : CUDA_R_32F;
}

// Operands of one call, before a batch's offsets.
struct Operands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* added = nullptr;
  void* c = nullptr;
};

class LtMatMul final : public Kernel {
 public:
  explicit LtMatMul(const KernelSpec& spec)
      : node_(spec.node),
        dtype_(spec.inputs[0].dtype),
        tf32_(spec.tf32),
        deterministic_(spec.deterministic),
        product_(ProductOf(spec)),
        batches_(MatMulBatchesOf(ProductShapeOf(spec))),
        added_(AddedTo(spec)),
        epilogue_(LtEpilogueOf(spec)),
        relu_(HasRelu(spec) ? FindUnary("Relu", dtype_) : nullptr) {
    const auto bytes = [](const TensorType& t) { return t.bytes(); };
    a_bytes_ = bytes(spec.inputs[0]);
    b_bytes_ = bytes(spec.inputs[1]);
    added_bytes_ = added_ == Added::kNothing ? 0 : bytes(spec.inputs[2]);
    c_bytes_ = bytes(spec.outputs[0]);
  }

  // Unimplemented where cuBLASLt has no algorithm, or none of them runs.
  Status Prepare() {
    int device = 0;
    SLUICE_RETURN_IF_ERROR(
        cuda::Check(cudaGetDevice(&device), "asking for the device"));
    SLUICE_ASSIGN_OR_RETURN(handle_, LtHandleOf(device));
    SLUICE_RETURN_IF_ERROR(Describe());
    const std::string key = KeyFor(device);
    Choices& choices = Choices::Global();
    MutexLock lock(choices.mutex);
    if (const auto it = choices.by_key.find(key); it != choices.by_key.end()) {
      choice_ = it->second;
      return {};
    }
    SLUICE_ASSIGN_OR_RETURN(const std::vector<Choice> candidates, Candidates());
    choice_ = candidates.front();
    SLUICE_RETURN_IF_ERROR(Measure(candidates));
    choices.by_key[key] = choice_;
    return {};
  }

  size_t workspace_bytes() const override {
    return choice_.workspace == 0 ? 0 : choice_.workspace + kScratchAlignment;
  }

  Status Run(const KernelContext& c) override {
    const Operands operands = {
        c.input<void>(0), c.input<void>(1),
        added_ == Added::kNothing ? nullptr : c.input<void>(2),
        c.output<void>(0)};
    return Call(operands, choice_, c.workspace(), StreamOf(c));
  }

 private:
  std::string KeyFor(int device) const {
    std::string key =
        fmt::format("{} {} {}{} {}x{}x{} {}{} {} {} {}", device, NameOf(dtype_),
                    tf32_, deterministic_, product_.m, product_.n, product_.k,
                    product_.transpose_a, product_.transpose_b,
                    static_cast<int>(added_), batches_.inner, Alignment());
    return key + fmt::format(" {} {} {}", batches_.a_stride, batches_.b_stride,
                             batches_.c_stride);
  }

  // Bytes that all matrices are aligned to.
  uint32_t Alignment() const {
    uint64_t elements = 0;  // the bits of all distances
    for (const MatMulBatches::Offsets& o : batches_.outer) {
      elements |= static_cast<uint64_t>(o.a | o.b | o.c);
    }
    if (batches_.inner > 1) {
      elements |= static_cast<uint64_t>(batches_.a_stride | batches_.b_stride |
                                        batches_.c_stride);
    }
    const uint64_t places = elements * SizeOf(dtype_) | kOperandAlignment;
    return static_cast<uint32_t>(places & (~places + 1));
  }

  template <typename T>
  Status SetDesc(cublasLtMatmulDescAttributes_t name, T value) {
    return Check(Lt()->DescSet(desc_.get(), name, &value, sizeof(value)),
                 "an attribute of a product");
  }

  Result<LtLayout> MakeLayout(const ColumnMajor& m, int64_t stride) const {
    cublasLtMatrixLayout_t layout = nullptr;
    SLUICE_RETURN_IF_ERROR(
        Check(Lt()->LayoutCreate(&layout, TypeOf(dtype_),
                                 static_cast<uint64_t>(m.rows),
                                 static_cast<uint64_t>(m.columns), m.pitch),
              "the layout of a matrix"));
    LtLayout owned(layout);
    if (batches_.inner > 1) {
      SLUICE_RETURN_IF_ERROR(
          Check(Lt()->LayoutSet(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                &batches_.inner, sizeof(batches_.inner)),
                "the size of a batch"));
      SLUICE_RETURN_IF_ERROR(Check(
          Lt()->LayoutSet(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                          &stride, sizeof(stride)),
          "the stride of a batch"));
    }
    return owned;
  }

  Status Describe() {
    const bool wide = dtype_ == DType::kFloat64;
    const cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F
                                        : dtype_ == DType::kFloat32 && tf32_
                                            ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
    cublasLtMatmulDesc_t desc = nullptr;
    SLUICE_RETURN_IF_ERROR(
        Check(Lt()->DescCreate(&desc, compute, wide ? CUDA_R_64F : CUDA_R_32F),
              "the description of a product"));
    desc_.reset(desc);
    const ColumnMajorProduct p = ColumnMajorProductOf(product_);
    const auto operation = [](const ColumnMajor& m) {
      return static_cast<int32_t>(m.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    };
    SLUICE_RETURN_IF_ERROR(
        SetDesc(CUBLASLT_MATMUL_DESC_TRANSA, operation(p.first)));
    SLUICE_RETURN_IF_ERROR(
        SetDesc(CUBLASLT_MATMUL_DESC_TRANSB, operation(p.second)));
    SLUICE_RETURN_IF_ERROR(SetDesc(CUBLASLT_MATMUL_DESC_EPILOGUE,
                                   static_cast<uint32_t>(epilogue_)));
    SLUICE_ASSIGN_OR_RETURN(first_, MakeLayout(p.first, batches_.b_stride));
    SLUICE_ASSIGN_OR_RETURN(second_, MakeLayout(p.second, batches_.a_stride));
    SLUICE_ASSIGN_OR_RETURN(result_, MakeLayout(p.result, batches_.c_stride));
    return {};
  }

  // cuBLASLt's suggestions, best first by its own estimate; at least one.
  Result<std::vector<Choice>> Candidates() const {
    cublasLtMatmulPreference_t made = nullptr;
    SLUICE_RETURN_IF_ERROR(
        Check(Lt()->PreferenceCreate(&made), "a preference"));
    const LtPreference preference(made);
    Status status;
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t name,
                         auto value) {
      if (status.ok()) {
        status = Check(Lt()->PreferenceSet(made, name, &value, sizeof(value)),
                       "a preference");
      }
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        static_cast<uint64_t>(kMostWorkspace));
    // Partial sums in the output's type would be rounded to half types.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto name : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(name, Alignment());
    }
    SLUICE_RETURN_IF_ERROR(status);
    std::vector<cublasLtMatmulHeuristicResult_t> found(kMostCandidates);
    int count = 0;
    const cublasStatus_t result = Lt()->Heuristic(
        handle_, desc_.get(), first_.get(), second_.get(), result_.get(),
        result_.get(), made, kMostCandidates, found.data(), &count);
    std::vector<Choice> candidates;
    for (int i = 0; result == CUBLAS_STATUS_SUCCESS && i < count; ++i) {
      if (found[i].state == CUBLAS_STATUS_SUCCESS) {
        candidates.push_back({found[i].algo, found[i].workspaceSize});
      }
    }
    if (candidates.empty()) {
      return Unimplemented("cuBLASLt has no algorithm for this product");
    }
    return candidates;
  }

  // Takes the fastest on operands of its own; where the same bits are wanted in
  // every run, the first that runs on them. Where there is no memory for them,
  // it stays with the first.
  Status Measure(const std::vector<Choice>& candidates) {
    Bench bench;
    if (!bench.Open().ok()) return {};
    size_t workspace = 0;
    for (const Choice& c : candidates) {
      workspace = std::max(workspace, c.workspace);
    }
    void* memory[5] = {};
    const size_t bytes[5] = {a_bytes_, b_bytes_, added_bytes_, c_bytes_,
                             workspace + kScratchAlignment};
    for (int i = 0; i < 5; ++i) {
      const Result<void*> allocated = bench.Allocate(bytes[i]);
      if (!allocated.ok()) return {};
      memory[i] = *allocated;
    }
    const Operands operands = {memory[0], memory[1], memory[2], memory[3]};
    float least = std::numeric_limits<float>::infinity();
    for (const Choice& c : candidates) {
      const float time = bench.Measure(
          [&] { return Call(operands, c, memory[4], bench.stream()); });
      if (time < least) {
        least = time;
        choice_ = c;
      }
      if (deterministic_ && std::isfinite(least)) break;
    }
    if (std::isfinite(least)) return {};
    return Unimplemented("none of cuBLASLt's algorithms for this product runs");
  }

  Status Call(const Operands& operands, const Choice& choice, void* workspace,
              cudaStream_t stream) {
    const auto address = [](const void* p) {
      return reinterpret_cast<uintptr_t>(p);
    };
    if (((address(operands.a) | address(operands.b) | address(operands.added) |
          address(operands.c)) &
         (kOperandAlignment - 1)) != 0) {
      return Internal(fmt::format("'{}': operands must be aligned to {} bytes",
                                  node_, kOperandAlignment));
    }
    if (added_ == Added::kBias) {
      SLUICE_RETURN_IF_ERROR(
          SetDesc(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.added));
    }
    // alpha and beta are of the type that is computed in.
    const bool adds = added_ == Added::kMatrix;
    const double one64 = 1, zero64 = 0;
    const float one32 = 1, zero32 = 0;
    const bool wide = dtype_ == DType::kFloat64;
    const void* const one = wide ? static_cast<const void*>(&one64) : &one32;
    const void* const zero = wide ? static_cast<const void*>(&zero64) : &zero32;
    void* const scratch = AlignScratch(workspace);
    const auto at = [&](const void* p, int64_t elements) -> const void* {
      return static_cast<const char*>(p) +
             elements * static_cast<int64_t>(SizeOf(dtype_));
    };
    for (const MatMulBatches::Offsets& o : batches_.outer) {
      void* const c = static_cast<char*>(operands.c) +
                      o.c * static_cast<int64_t>(SizeOf(dtype_));
      const cublasStatus_t status = Lt()->Matmul(
          handle_, desc_.get(), one, at(operands.b, o.b), first_.get(),
          at(operands.a, o.a), second_.get(), adds ? one : zero,
          adds ? at(operands.added, o.c) : c, result_.get(), c, result_.get(),
          &choice.algorithm, choice.workspace == 0 ? nullptr : scratch,
          choice.workspace, stream);
      if (status != CUBLAS_STATUS_SUCCESS) {
        return Check(status, "product").WithContext("'" + node_ + "'");
      }
    }
    if (relu_ == nullptr) return {};
    const auto elements = static_cast<int64_t>(c_bytes_ / SizeOf(dtype_));
    const Status status = relu_(operands.c, operands.c, elements, {}, stream);
    return status.ok() ? status : status.WithContext("'" + node_ + "'");
  }

  const std::string node_;
  const DType dtype_;
  const bool tf32_, deterministic_;
  const Product product_;
  const MatMulBatches batches_;
  const Added added_;
  const cublasLtEpilogue_t epilogue_;
  const UnaryLauncher relu_;  // null: none
  size_t a_bytes_, b_bytes_, added_bytes_, c_bytes_;
  cublasLtHandle_t handle_ = nullptr;
  LtDesc desc_;
  LtLayout first_, second_, result_;
  Choice choice_;
};

// Products of or over nothing are our own kernel's, and batches of 2^31.
bool Supports(const KernelSpec& spec) {
  const ProductShape shape = ProductShapeOf(spec);
  return shape.m > 0 && shape.n > 0 && shape.k > 0 &&
         shape.batch.elements > 0 && IsServed(shape) &&
         BatchesAreServed(shape) && Lt() != nullptr;
}

Result<KernelPtr> Make(const KernelSpec& spec) {
  auto kernel = std::make_unique<LtMatMul>(spec);
  const Status status = kernel->Prepare();
  if (status.ok()) return KernelPtr(std::move(kernel));
  if (status.code() == Code::kUnimplemented) return status;
  return status.WithContext("'" + spec.node + "'");
}

}  // namespace

void RegisterCublasMatMulKernels(KernelTable& table) {
  for (const char* op : {"MatMul", "MatMulBias", "MatMulAdd", "BatchMatMul"}) {
    table.Register({.op = op,
                    .device = DeviceType::kCuda,
                    .priority = kPriority,
                    .provider = "cublaslt",
                    .supports = Supports,
                    .dtypes = kFloating,
                    .make = Make});
  }
}

}  // namespace sluice::cuda
