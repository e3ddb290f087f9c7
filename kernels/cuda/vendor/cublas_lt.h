// cuBLASLt, opened at run time.
#ifndef SLUICE_KERNELS_CUDA_VENDOR_CUBLAS_LT_H_
#define SLUICE_KERNELS_CUDA_VENDOR_CUBLAS_LT_H_

#include <cublasLt.h>

#include <memory>
#include <string>

#include "engine/status.h"

namespace sluice::cuda {

// The library's functions that are used here.
struct CublasLt {
  decltype(cublasLtCreate)* Create = nullptr;
  decltype(cublasLtGetStatusString)* StatusString = nullptr;
  decltype(cublasLtMatmul)* Matmul = nullptr;
  decltype(cublasLtMatmulAlgoGetHeuristic)* Heuristic = nullptr;
  decltype(cublasLtMatmulDescCreate)* DescCreate = nullptr;
  decltype(cublasLtMatmulDescSetAttribute)* DescSet = nullptr;
  decltype(cublasLtMatmulDescDestroy)* DescDestroy = nullptr;
  decltype(cublasLtMatrixLayoutCreate)* LayoutCreate = nullptr;
  decltype(cublasLtMatrixLayoutSetAttribute)* LayoutSet = nullptr;
  decltype(cublasLtMatrixLayoutDestroy)* LayoutDestroy = nullptr;
  decltype(cublasLtMatmulPreferenceCreate)* PreferenceCreate = nullptr;
  decltype(cublasLtMatmulPreferenceSetAttribute)* PreferenceSet = nullptr;
  decltype(cublasLtMatmulPreferenceDestroy)* PreferenceDestroy = nullptr;
};

// Null where there is no cuBLASLt, which is said once.
const CublasLt* Lt();
std::string CublasLtFile();  // the library's name

// `what` is for the message: "product".
Status Check(cublasStatus_t status, const char* what);

// A device's handle, made while it is the current one. All threads share it:
// cuBLASLt takes the stream with each call.
Result<cublasLtHandle_t> LtHandleOf(int device);

struct LtDestroy {
  void operator()(cublasLtMatmulDescOpaque_t* p) const { Lt()->DescDestroy(p); }
  void operator()(cublasLtMatrixLayoutOpaque_t* p) const {
    Lt()->LayoutDestroy(p);
  }
  void operator()(cublasLtMatmulPreferenceOpaque_t* p) const {
    Lt()->PreferenceDestroy(p);
  }
};
using LtDesc = std::unique_ptr<cublasLtMatmulDescOpaque_t, LtDestroy>;
using LtLayout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, LtDestroy>;
using LtPreference =
    std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, LtDestroy>;

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_VENDOR_CUBLAS_LT_H_
