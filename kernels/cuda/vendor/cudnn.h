// cuDNN's graph interface, opened at run time, by its C functions: NVIDIA's C++
// frontend takes a minute and 2 GB to compile, wants a second CUDA runtime when
// cuDNN is opened at run time, and allocates in every call.
#ifndef SLUICE_KERNELS_CUDA_VENDOR_CUDNN_H_
#define SLUICE_KERNELS_CUDA_VENDOR_CUDNN_H_

#include <cuda_runtime.h>
#include <cudnn_graph.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "engine/thread_annotations.h"

namespace sluice::cuda {

// The library's functions that are used here.
struct Cudnn {
  decltype(cudnnGetVersion)* GetVersion = nullptr;
  decltype(cudnnGetErrorString)* ErrorString = nullptr;
  decltype(cudnnCreate)* Create = nullptr;
  decltype(cudnnSetStream)* SetStream = nullptr;
  decltype(cudnnBackendCreateDescriptor)* CreateDescriptor = nullptr;
  decltype(cudnnBackendDestroyDescriptor)* DestroyDescriptor = nullptr;
  decltype(cudnnBackendSetAttribute)* SetAttribute = nullptr;
  decltype(cudnnBackendGetAttribute)* GetAttribute = nullptr;
  decltype(cudnnBackendFinalize)* Finalize = nullptr;
  decltype(cudnnBackendExecute)* Execute = nullptr;
};

// Null where there is no cuDNN, which is said once.
const Cudnn* Dnn();
std::string CudnnFile();  // the library's name

// `what` is for the message: "convolution".
Status Check(cudnnStatus_t status, const char* what);

// The attribute type that cuDNN wants with a value of type T. Its descriptors
// are void pointers too, so they are set by functions of their own.
template <typename T>
constexpr cudnnBackendAttributeType_t AttributeTypeOf() {
  if constexpr (std::is_same_v<T, int64_t>) return CUDNN_TYPE_INT64;
  if constexpr (std::is_same_v<T, bool>) return CUDNN_TYPE_BOOLEAN;
  if constexpr (std::is_same_v<T, float>) return CUDNN_TYPE_FLOAT;
  if constexpr (std::is_same_v<T, char>) return CUDNN_TYPE_CHAR;
  if constexpr (std::is_same_v<T, void*>) return CUDNN_TYPE_VOID_PTR;
  if constexpr (std::is_same_v<T, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
  if constexpr (std::is_same_v<T, cudnnDataType_t>) {
    return CUDNN_TYPE_DATA_TYPE;
  }
  if constexpr (std::is_same_v<T, cudnnConvolutionMode_t>) {
    return CUDNN_TYPE_CONVOLUTION_MODE;
  }
  if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>) {
    return CUDNN_TYPE_POINTWISE_MODE;
  }
  if constexpr (std::is_same_v<T, cudnnNanPropagation_t>) {
    return CUDNN_TYPE_NAN_PROPOGATION;
  }
  if constexpr (std::is_same_v<T, cudnnGenStatsMode_t>) {
    return CUDNN_TYPE_GENSTATS_MODE;
  }
  if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>) {
    return CUDNN_TYPE_HEUR_MODE;
  }
  if constexpr (std::is_same_v<T, cudnnBackendNumericalNote_t>) {
    return CUDNN_TYPE_NUMERICAL_NOTE;
  }
}

// One of cuDNN's descriptors: attributes are set, then it is finalized. What it
// refers to must live as long as it does.
class DnnDescriptor {
 public:
  DnnDescriptor() = default;  // none
  explicit DnnDescriptor(cudnnBackendDescriptorType_t type) {
    status_ = Check(Dnn()->CreateDescriptor(type, &descriptor_),
                    "making a descriptor");
  }
  DnnDescriptor(DnnDescriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, nullptr)),
        status_(std::move(other.status_)) {}
  DnnDescriptor& operator=(DnnDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(status_, other.status_);
    return *this;
  }
  ~DnnDescriptor() {
    if (descriptor_ != nullptr) Dnn()->DestroyDescriptor(descriptor_);
  }

  cudnnBackendDescriptor_t get() const { return descriptor_; }

  // Errors are kept for Finalize.
  template <typename T>
  DnnDescriptor& Set(cudnnBackendAttributeName_t name,
                     const std::vector<T>& values) {
    SetRaw(name, AttributeTypeOf<T>(), static_cast<int64_t>(values.size()),
           values.data());
    return *this;
  }
  template <typename T>
  DnnDescriptor& Set(cudnnBackendAttributeName_t name, const T& value) {
    SetRaw(name, AttributeTypeOf<T>(), 1, &value);
    return *this;
  }
  DnnDescriptor& Set(cudnnBackendAttributeName_t name,
                     const DnnDescriptor& value) {
    return SetDescriptors(name, {value.get()});
  }
  DnnDescriptor& SetDescriptors(
      cudnnBackendAttributeName_t name,
      const std::vector<cudnnBackendDescriptor_t>& values) {
    SetRaw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
           static_cast<int64_t>(values.size()), values.data());
    return *this;
  }
  // `what` is for the message.
  Status Finalize(const char* what) {
    SLUICE_RETURN_IF_ERROR(status_);
    return Check(Dnn()->Finalize(descriptor_), what);
  }

  // Up to `most` values; none if it has no such attribute.
  template <typename T>
  std::vector<T> Get(cudnnBackendAttributeName_t name, int64_t most) const {
    std::vector<T> values(static_cast<size_t>(most));
    int64_t count = 0;
    if (Dnn()->GetAttribute(descriptor_, name, AttributeTypeOf<T>(), most,
                            &count, values.data()) != CUDNN_STATUS_SUCCESS) {
      count = 0;
    }
    values.resize(static_cast<size_t>(std::min(count, most)));
    return values;
  }

 private:
  void SetRaw(cudnnBackendAttributeName_t name,
              cudnnBackendAttributeType_t type, int64_t count,
              const void* values) {
    if (!status_.ok()) return;
    status_ = Check(Dnn()->SetAttribute(descriptor_, name, type, count, values),
                    "setting an attribute");
  }

  cudnnBackendDescriptor_t descriptor_ = nullptr;
  Status status_;
};

// A device's handle that plans are made with. Who makes and compares plans
// holds the mutex meanwhile: then searches do not time each other, either.
struct DnnPlanner {
  Mutex mutex;
  cudnnHandle_t handle GUARDED_BY(mutex) = nullptr;
};

// A device's handles, each of which cuDNN lets one thread at a time use. Plans
// run with another than they were made with.
class DnnDevice {
 public:
  // The DnnDevice of the current device.
  static Result<DnnDevice*> Current();

  DnnPlanner& planner() { return planner_; }
  // The names of the GPU and of the library with its version: "NVIDIA H200,
  // cuDNN 91900".
  const std::string& name() const { return name_; }

  // Adds the plan's work on a pack of operands to the stream. Logical devices
  // that share a GPU take turns, since cuDNN keeps the stream in the handle.
  Status Execute(const DnnDescriptor& plan, const DnnDescriptor& pack,
                 cudaStream_t stream) EXCLUDES(mutex_);

 private:
  Status Open(int index);

  DnnPlanner planner_;
  Mutex mutex_;  // from the choice of the stream to the call
  cudnnHandle_t handle_ GUARDED_BY(mutex_) = nullptr;
  std::string name_;
};

// The device that cuDNN plans for: the current one by a handle, or one
// described in cuDNN's words, which need not be there.
struct DnnTarget {
  cudnnHandle_t handle = nullptr;
  const DnnDescriptor* device = nullptr;
};

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_VENDOR_CUDNN_H_
