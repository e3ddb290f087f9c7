#include "kernels/cuda/vendor/cudnn.h"

#include <fmt/format.h>

#include <map>
#include <memory>

#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/nvidia_library.h"

namespace sluice::cuda {

std::string CudnnFile() {
  return fmt::format("libcudnn.so.{}", CUDNN_MAJOR);
}

const Cudnn* Dnn() {
  // Never destroyed: other statics may use it in their destructors.
  static const Cudnn* const functions =
      FunctionsOrNull<Cudnn>(
          CudnnFile(), "Sluice's own convolutions are used, slower",
          [](FunctionFinder& find, Cudnn& f) {
            find("cudnnGetVersion", f.GetVersion);
            find("cudnnGetErrorString", f.ErrorString);
            find("cudnnCreate", f.Create);
            find("cudnnSetStream", f.SetStream);
            find("cudnnBackendCreateDescriptor", f.CreateDescriptor);
            find("cudnnBackendDestroyDescriptor", f.DestroyDescriptor);
            find("cudnnBackendSetAttribute", f.SetAttribute);
            find("cudnnBackendGetAttribute", f.GetAttribute);
            find("cudnnBackendFinalize", f.Finalize);
            find("cudnnBackendExecute", f.Execute);
          })
          .release();
  return functions;
}

Status Check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  Code code = Code::kInternal;
  if (status < CUDNN_STATUS_BAD_PARAM) {
    code = Code::kUnavailable;  // a part of it is missing or of another version
  } else if (status >= CUDNN_STATUS_NOT_SUPPORTED &&
             status < CUDNN_STATUS_INTERNAL_ERROR) {
    code = Code::kUnimplemented;
  }
  return FailureOfLibrary(Status(
      code, fmt::format("cuDNN, {}: {}", what, Dnn()->ErrorString(status))));
}

Result<DnnDevice*> DnnDevice::Current() {
  static Mutex mutex;
  // Never destroyed, since kernels keep them.
  static std::map<int, DnnDevice*>* const devices =
      new std::map<int, DnnDevice*>;
  int index = 0;
  SLUICE_RETURN_IF_ERROR(Check(cudaGetDevice(&index), "asking for the device"));
  MutexLock lock(mutex);
  DnnDevice*& device = (*devices)[index];
  if (device == nullptr) {
    auto made = std::make_unique<DnnDevice>();
    SLUICE_RETURN_IF_ERROR(made->Open(index));
    device = made.release();
  }
  return device;
}

Status DnnDevice::Open(int index) {
  cudaDeviceProp properties = {};
  SLUICE_RETURN_IF_ERROR(Check(cudaGetDeviceProperties(&properties, index),
                               "asking for the device's properties"));
  name_ = fmt::format("{}, cuDNN {}", properties.name, Dnn()->GetVersion());
  MutexLock planning(planner_.mutex);
  SLUICE_RETURN_IF_ERROR(
      Check(Dnn()->Create(&planner_.handle), "making a handle"));
  MutexLock running(mutex_);
  return Check(Dnn()->Create(&handle_), "making a handle");
}

Status DnnDevice::Execute(const DnnDescriptor& plan, const DnnDescriptor& pack,
                          cudaStream_t stream) {
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(
      Check(Dnn()->SetStream(handle_, stream), "choice of the stream"));
  return Check(Dnn()->Execute(handle_, plan.get(), pack.get()), "convolution");
}

}  // namespace sluice::cuda
