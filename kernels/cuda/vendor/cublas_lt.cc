#include "kernels/cuda/vendor/cublas_lt.h"

#include <fmt/format.h>

#include <map>

#include "engine/thread_annotations.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/nvidia_library.h"

namespace sluice::cuda {

std::string CublasLtFile() {
  return fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
}

const CublasLt* Lt() {
  // Never destroyed: other statics may use it in their destructors.
  static const CublasLt* const functions =
      FunctionsOrNull<CublasLt>(
          CublasLtFile(), "Sluice's own matrix products are used, slower",
          [](FunctionFinder& find, CublasLt& f) {
            find("cublasLtCreate", f.Create);
            find("cublasLtGetStatusString", f.StatusString);
            find("cublasLtMatmul", f.Matmul);
            find("cublasLtMatmulAlgoGetHeuristic", f.Heuristic);
            find("cublasLtMatmulDescCreate", f.DescCreate);
            find("cublasLtMatmulDescSetAttribute", f.DescSet);
            find("cublasLtMatmulDescDestroy", f.DescDestroy);
            find("cublasLtMatrixLayoutCreate", f.LayoutCreate);
            find("cublasLtMatrixLayoutSetAttribute", f.LayoutSet);
            find("cublasLtMatrixLayoutDestroy", f.LayoutDestroy);
            find("cublasLtMatmulPreferenceCreate", f.PreferenceCreate);
            find("cublasLtMatmulPreferenceSetAttribute", f.PreferenceSet);
            find("cublasLtMatmulPreferenceDestroy", f.PreferenceDestroy);
          })
          .release();
  return functions;
}

Status Check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return FailureOfLibrary(Internal(
      fmt::format("cuBLASLt, {}: {}", what, Lt()->StatusString(status))));
}

Result<cublasLtHandle_t> LtHandleOf(int device) {
  static Mutex mutex;
  // Never destroyed, since kernels keep them.
  static std::map<int, cublasLtHandle_t>* const handles =
      new std::map<int, cublasLtHandle_t>;
  MutexLock lock(mutex);
  cublasLtHandle_t& handle = (*handles)[device];
  if (handle == nullptr) {
    SLUICE_RETURN_IF_ERROR(Check(Lt()->Create(&handle), "making a handle"));
  }
  return handle;
}

}  // namespace sluice::cuda
